"""The daemon's process: real ones, started, killed, doubled; nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from assistant.api import wire
from assistant.api.client import Client
from assistant.api.sockets import CONTROL, somebody_listens
from assistant.memory_orchestrator.probe import Probe
from assistant.model_store.store import ModelInfo
from tests.api.daemon_process import LONG, STORY, Place, alive, children, until

pytestmark = pytest.mark.timeout(60)

IDLE_MIB = 60
"""Of the daemon and its fork server together, PSS."""
STOP_S = 2.0


@pytest.fixture
def place() -> Iterator[Place]:
    with Place() as one:
        yield one


def stopped(daemon: subprocess.Popen[str], number: signal.Signals) -> float:
    """Seconds until it had ended; everything that it started has ended, too."""
    family = children(daemon.pid)
    started = time.monotonic()
    daemon.send_signal(number)
    assert daemon.wait(10) == 0
    took = time.monotonic() - started
    assert until(lambda: not any(map(alive, family)), 1), "a process was left behind"
    return took


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_runs_until_a_signal_and_leaves_nothing(place: Place, number: signal.Signals) -> None:
    daemon = place.daemon()
    assert place.log() == f"ready: {place.runtime}\n"
    assert sorted(path.name for path in place.runtime.glob("*.sock")) == ["command.sock", "control.sock", "events.sock"]
    assert place.ledger_keeper() == daemon.pid
    assert stopped(daemon, number) < STOP_S
    assert list(place.runtime.glob("*.sock")) == []
    assert place.ledger_keeper() != daemon.pid


def test_it_is_the_daemon_itself_and_light(place: Place) -> None:
    daemon = place.daemon()
    with Client(place.runtime) as client:
        assert client.ping().pid == daemon.pid  # it replaced the command line, which would stay in memory else
    time.sleep(1.5)  # the fork server's preloads
    family = [daemon.pid, *children(daemon.pid)]
    assert len(family) == 2, "at rest it has started a stage"
    total = sum(Probe().usage(pid).total for pid in family) / 2**20
    assert total <= IDLE_MIB
    mapped = (f"/proc/{daemon.pid}/maps", "numpy", "soundfile", "sounddevice", "soxr")
    with open(mapped[0]) as maps:
        text = maps.read()
    assert not any(name in text for name in mapped[1:])


def test_its_import_path_is_lean() -> None:
    code = (
        "import sys, assistant.service, assistant.daemon, assistant.api.server;"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"typer", "rich", "numpy", "soundfile", "soxr", "sounddevice"} & set(loaded)


def test_shutdown_over_the_socket_ends_it_like_a_signal(place: Place) -> None:
    daemon = place.daemon()
    with Client(place.runtime) as client:
        assert client.shutdown() == daemon.pid
    assert daemon.wait(3) == 0


def test_a_second_one_is_refused_and_the_first_is_not_disturbed(place: Place) -> None:
    daemon = place.daemon()
    with Client(place.runtime) as client:
        before = client.ping()
        refused = place.run("run", code=1)
        assert refused.stderr == f"error: a daemon already runs (process {daemon.pid}); 'assistant status' shows it\n"
        assert client.ping() == before
    with Client(place.runtime) as fresh:
        assert fresh.ping() == before


def test_another_folder_is_the_place_of_another_daemon(place: Place) -> None:
    daemon = place.daemon()
    with Place() as other:
        second = other.daemon()
        assert other.ledger_keeper() == second.pid
        assert stopped(second, signal.SIGTERM) < STOP_S
    assert place.ledger_keeper() == daemon.pid
    with Client(place.runtime) as client:
        assert client.ping().pid == daemon.pid


def test_of_two_that_start_at_the_same_moment_one_wins(place: Place) -> None:
    both = [place.start("run"), place.start("run")]
    assert until(lambda: any(one.poll() is not None for one in both), 10)
    loser = next(one for one in both if one.poll() is not None)
    winner = next(one for one in both if one is not loser)
    assert loser.returncode == 1
    assert loser.stderr is not None
    assert "already runs" in loser.stderr.read()
    assert until(lambda: somebody_listens(place.runtime / CONTROL))
    with Client(place.runtime) as client:
        assert client.ping().pid == winner.pid


def test_after_a_kill_the_next_one_takes_over(place: Place) -> None:
    first = place.daemon()
    family = children(first.pid)
    first.kill()
    first.wait()
    assert (place.runtime / "control.sock").exists()
    assert place.run("ps", code=3).stderr.startswith("error: ")
    assert place.run("status", code=3).stderr.startswith("error: ")
    assert until(lambda: not any(map(alive, family))), "the fork server outlived its daemon"
    second = place.daemon()
    with Client(place.runtime) as client:
        assert client.ping().pid == second.pid


@pytest.mark.engine
def test_sigterm_ends_it_within_two_seconds_while_a_query_runs(place: Place, model: Callable[[str], ModelInfo]) -> None:
    model("smollm2-135m-instruct")
    daemon = place.daemon(*LONG)
    with Client(place.runtime) as client:
        sent = client.ask(wire.Ask(text=STORY))
        replies = client.replies(sent)
        for reply, _ in replies:
            if isinstance(reply, wire.Event) and reply.name == "reply-delta":
                break
        assert stopped(daemon, signal.SIGTERM) < STOP_S
        *_, (last, _) = replies
        assert isinstance(last, wire.Report)
        assert (last.outcome, last.exit_code) == ("cancelled", 130)


@pytest.mark.engine
def test_a_killed_daemon_ends_the_queries_of_its_clients(place: Place, model: Callable[[str], ModelInfo]) -> None:
    model("smollm2-135m-instruct")
    daemon = place.daemon(*LONG)
    asking = place.start("ask", STORY, "--no-speech", "--json")
    assert until(lambda: place.state() != "idle")
    daemon.kill()
    out, _ = asking.communicate(timeout=10)
    assert asking.returncode == 3
    assert json.loads(out)["error"]["code"] == "not-running"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--set", "memory.margin=1"], "memory.margin_mib"),
        (["--set", "stages.llm.engine=gguf"], "gguf"),
        (["--bogus"], "bogus"),
        (["extra"], ""),
    ],
)
def test_a_wrong_start_is_one_line_and_exit_code_2(place: Place, args: list[str], words: str) -> None:
    told = place.run("run", *args, code=2).stderr
    assert told.startswith("error: ")
    assert len(told.splitlines()) == 1
    assert words in told


@pytest.mark.parametrize("kind", ["link", "open", "long"])
def test_a_folder_that_will_not_do_is_told(place: Place, kind: str) -> None:
    match kind:
        case "link":
            place.runtime.symlink_to("/tmp")
        case "open":
            place.runtime.mkdir()
            place.runtime.chmod(0o755)
        case _:
            place.environ["XDG_RUNTIME_DIR"] = f"{place.folder}/{'x' * 100}"
    told = place.run("run", code=2).stderr
    assert "XDG_RUNTIME_DIR" in told
    assert len(told.splitlines()) == 1


def test_closed_streams_do_not_become_sockets(place: Place) -> None:
    command = f"exec {sys.executable} -m assistant run <&- >&- 2>&-"
    daemon = place.start("config")  # its place in the list of what is ended
    daemon.wait()
    with subprocess.Popen(["sh", "-c", command], env=place.environ, cwd=place.folder) as quiet:
        try:
            assert until(lambda: somebody_listens(place.runtime / CONTROL) or quiet.poll() is not None, 10)
            with Client(place.runtime) as client:
                assert client.ping().pid == quiet.pid
            for number in (0, 1, 2):
                assert os.readlink(f"/proc/{quiet.pid}/fd/{number}") == "/dev/null"
        finally:
            quiet.terminate()
        assert quiet.wait(5) == 0


def test_top_ends_with_the_daemon(place: Place) -> None:
    daemon = place.daemon()
    top = place.start("top", "--interval", "0.1")
    assert top.stdout is not None
    assert top.stdout.readline().startswith("NAME")
    daemon.terminate()
    _, err = top.communicate(timeout=5)
    assert top.returncode == 3
    assert err.startswith("error: ")
