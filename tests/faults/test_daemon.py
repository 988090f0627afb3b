"""The daemon itself: killed and restarted, two at once, its container's limit lowered, the OOM killer next door.

Real daemons, real sockets, real memory cgroups."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assistant.api import wire
from assistant.api.client import Client
from assistant.bench.cgroups import MemoryCgroup
from assistant.bench.daemons import OwnDaemon
from assistant.errors import AssistantError, UsageError
from assistant.memory_orchestrator.probe import MIB
from assistant.memory_orchestrator.writers import SHM, segment_name, stale_segments
from assistant.messages import STAGE_ORDER, Outcome, QueryReport
from assistant.model_store.store import ModelInfo
from tests.faults.house import children

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

HOGS = """
import os, sys, time
for _ in range(3):
    if os.fork() == 0:
        break
block = []
while True:
    block.append(b'x' * (1 << 20))
    print(len(block), flush=True)
    time.sleep(0.001)
"""
"""Four share what there is: each is smaller than a worker with its raised score, and so not the kernel's choice."""


@pytest.fixture(autouse=True)
def models(model: Callable[[str], ModelInfo]) -> None:
    for name in ("whisper-tiny.en", "smollm2-135m-instruct", "en_US-joe-medium"):
        model(name)


@pytest.fixture
def group() -> Iterator[MemoryCgroup]:
    one = MemoryCgroup(f"assistant-faults-{os.getpid()}", 1200 * MIB)
    try:
        one.__enter__()
    except UsageError as error:
        pytest.skip(f"no memory cgroup: {error.message}")
    try:
        yield one
    finally:
        one.__exit__(None, None, None)


def ask(client: Client, text: str = "What is the capital of France?") -> QueryReport:
    asked = client.ask(wire.Ask(text=text, speech=True, stream=False))
    return next(reply for reply, _ in client.replies(asked, 60) if isinstance(reply, wire.Report))


def next_query_succeeds(client: Client) -> QueryReport:
    report = ask(client)
    assert report.outcome is Outcome.ANSWERED, report.error
    assert "Paris" in report.reply
    return report


def everybody(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            found += children(one)
    return found


def gone(pids: list[int], within_s: float = 5) -> bool:
    give_up = time.monotonic() + within_s
    while time.monotonic() < give_up:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.01)
    return False


def test_a_daemon_that_is_killed_leaves_no_process_and_the_next_one_starts(fault_times: int) -> None:
    killed: list[str] = []
    for _ in range(fault_times):
        with OwnDaemon() as daemon:
            next_query_succeeds(daemon.client)
            family = everybody(daemon.pid)
            assert len(family) >= 4
            killed.append(segment_name(daemon.owner))
            os.kill(daemon.pid, signal.SIGKILL)
            daemon.process.wait(10)
            assert gone(family[1:])
    with OwnDaemon() as daemon:
        next_query_succeeds(daemon.client)
        mine = segment_name(daemon.owner)
    assert not (SHM / mine).exists()
    assert not [path for path in stale_segments() if path.name in killed]


def test_of_two_daemons_started_at_once_one_serves_and_one_says_why_not(tmp_path: Path, fault_times: int) -> None:
    environment = {**os.environ, "ASSISTANT_AUDIO_ENABLED": "false", "XDG_RUNTIME_DIR": str(tmp_path)}
    environment["XDG_STATE_HOME"] = str(tmp_path / "state")  # the timers of the user may be kept by another daemon
    for _ in range(fault_times):
        both = [
            subprocess.Popen(
                [sys.executable, "-m", "assistant.service"], env=environment, stderr=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        lines = {one: one.stderr.readline() for one in both if one.stderr is not None}
        ready = [one for one, line in lines.items() if line.startswith("ready")]
        refused = [one for one in both if one not in ready]
        assert len(ready) == 1, lines
        assert str(ready[0].pid) in lines[refused[0]]
        assert refused[0].wait(5) == 1
        with Client(tmp_path / "assistant") as client:
            assert ask(client, "what time is it").outcome is Outcome.HANDLED
        ready[0].terminate()
        assert ready[0].wait(5) == 0
        for one in both:
            assert one.stderr is not None
            one.stderr.close()


@pytest.mark.root
def test_a_container_whose_limit_is_lowered_below_what_is_loaded(group: MemoryCgroup, fault_times: int) -> None:
    with OwnDaemon(procs=group.procs) as daemon:
        for _ in range(fault_times):
            group.limit_to(1200 * MIB)
            for stage in STAGE_ORDER:
                daemon.client.load(stage)
            assert daemon.client.status().memory.mode == "resident"
            group.limit_to(460 * MIB)
            assert next_query_succeeds(daemon.client).memory.mode != "resident"
            memory = daemon.client.status().memory
            assert memory.used_mib + memory.margin_mib <= memory.budget_mib <= 460
            assert group.oom_kills() == 0


@pytest.mark.root
def test_an_idle_daemon_gives_back_what_a_lowered_limit_has_no_room_for(group: MemoryCgroup) -> None:
    with OwnDaemon(procs=group.procs) as daemon:
        for stage in STAGE_ORDER:
            daemon.client.load(stage)
        group.limit_to(460 * MIB)
        give_up = time.monotonic() + 10
        while (memory := daemon.client.status().memory).used_mib + memory.margin_mib > memory.budget_mib:
            assert time.monotonic() < give_up
            time.sleep(0.1)
        assert daemon.client.status().stages


@pytest.mark.root
def test_the_oom_killer_next_door_takes_workers_and_not_the_daemon(group: MemoryCgroup, fault_times: int) -> None:
    """Neighbours in our cgroup eat everything: workers die, the daemon lives."""
    with OwnDaemon(procs=group.procs) as daemon:
        for _ in range(fault_times):
            kills = group.oom_kills()
            for stage in STAGE_ORDER:
                daemon.client.load(stage)
            enter = f'echo $$ > {group.procs} && exec "$@"'
            hog = subprocess.Popen(
                ["sh", "-c", enter, "sh", sys.executable, "-c", HOGS],
                stdout=subprocess.PIPE, text=True, start_new_session=True,
            )  # fmt: skip
            try:
                assert hog.stdout is not None
                while group.oom_kills() == kills:
                    assert hog.stdout.readline()
            finally:
                os.killpg(hog.pid, signal.SIGKILL)
                hog.communicate()
            assert daemon.process.poll() is None
            next_query_succeeds(daemon.client)


@pytest.mark.root
def test_a_neighbour_that_takes_the_memory_is_busy_and_not_never(group: MemoryCgroup) -> None:
    """What others hold may come back: the refusal says so, and it does."""
    with OwnDaemon(procs=group.procs) as daemon:
        enter = f'echo $$ > {group.procs} && exec "$@"'
        take = "block = b'x' * (900 << 20); print('on', flush=True); input()"
        neighbour = subprocess.Popen(
            ["sh", "-c", enter, "sh", sys.executable, "-c", take],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert neighbour.stdout is not None
        assert neighbour.stdout.readline()
        refused = ask(daemon.client)
        assert refused.error is not None
        assert refused.error.code == "memory-taken"
        assert refused.error.retryable
        neighbour.communicate("\n")
        next_query_succeeds(daemon.client)
        assert group.oom_kills() == 0


def test_errors_of_a_daemon_are_typed() -> None:
    with OwnDaemon(("memory.budget_mib=330",)) as daemon:
        report = ask(daemon.client)
        assert report.error is not None
        assert report.error.code == "memory-never-fits"
    with pytest.raises(AssistantError), OwnDaemon(("memory.budget=1",)):
        pass
