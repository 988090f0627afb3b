"""The folder of the sockets is ours alone, and one daemon holds it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from assistant import paths
from assistant.api import sockets
from assistant.api.queries import QueryEvents
from assistant.api.server import Server
from assistant.errors import AssistantError, ConfigError
from tests.api.backend import Backend
from tests.api.daemon_process import Place
from tests.elsewhere import elsewhere


def test_the_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    folder = sockets.prepared(tmp_path / "new" / "assistant")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert sockets.prepared(folder) == folder


@pytest.mark.parametrize("kind", ["link", "file", "open to others", "in a file"])
def test_a_folder_that_others_could_reach_is_refused(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "assistant"
    match kind:
        case "link":
            (tmp_path / "real").mkdir(mode=0o700)
            folder.symlink_to(tmp_path / "real")
        case "file":
            folder.write_text("")
        case "open to others":
            folder.mkdir()
            folder.chmod(0o770)
        case _:
            folder.write_text("")
            folder = folder / "assistant"
    with pytest.raises(ConfigError, match="XDG_RUNTIME_DIR") as caught:
        sockets.prepared(folder)
    assert caught.value.code == "runtime-dir"


@pytest.mark.root
@pytest.mark.parametrize("name", [sockets.COMMAND, sockets.CONTROL, sockets.EVENTS])
def test_a_folder_in_the_place_of_a_socket_is_told_in_a_line(name: str) -> None:
    with Place() as place:
        (sockets.prepared(place.runtime) / name).mkdir()
        ran = place.run("run", code=2)
        assert name in ran.stderr
        assert "remove it" in ran.stderr
        assert len(ran.stderr.splitlines()) == 1
        assert (place.runtime / name).is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder that belongs to somebody else")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "assistant"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, -1)
    with pytest.raises(ConfigError, match="belongs to user 12345"):
        sockets.prepared(folder)


def test_a_path_that_no_socket_can_have_is_told_before_anything_is_made(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    with pytest.raises(ConfigError, match="107 bytes"):
        sockets.prepared(folder)
    assert not folder.exists()
    fits = Path("/" + "y" * (107 - len("//command.sock")))
    assert sockets.checked_length(fits) == fits
    with pytest.raises(ConfigError):
        sockets.checked_length(Path(f"{fits}z"))


def folder_in(environ: dict[str, str]) -> str:
    code = "from assistant import paths; print(paths.runtime_dir())"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return subprocess.run(
        [sys.executable, "-c", code], env=clean | environ, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_where_the_folder_is() -> None:
    assert folder_in({"XDG_RUNTIME_DIR": "/run/user/7"}) == "/run/user/7/assistant"
    without = "/run/assistant" if os.geteuid() == 0 else "/srv/state/assistant/run"
    assert folder_in({"XDG_STATE_HOME": "/srv/state"}) == without
    assert folder_in({"XDG_STATE_HOME": "/srv/state", "XDG_RUNTIME_DIR": "relative"}) == without
    assert paths.control_socket().name == sockets.CONTROL


def test_a_home_that_nobody_has_told_is_the_users_own() -> None:
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("XDG_", "HOME"))}
    told = subprocess.run(
        [sys.executable, "-c", "from assistant import paths; print(paths.state_dir(), paths.config_files()[-1])"],
        env=environ, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    home = pwd.getpwuid(os.getuid()).pw_dir
    assert told == [f"{home}/.local/state/assistant", f"{home}/.config/assistant/config.toml"]


@pytest.mark.parametrize("name", [sockets.EVENTS, sockets.COMMAND, sockets.CONTROL])
def test_a_socket_that_cannot_be_bound_is_told_and_nothing_waits_for_it(tmp_path: Path, name: str) -> None:
    """The folder goes away between the look at it and the bind, as a full disk would refuse it."""

    class Vanishing(type(tmp_path)):  # type: ignore[misc]
        """Another folder for the last of the three."""

        def __truediv__(self, key: str) -> Path:
            return Path(self) / ("gone/" + key if key == name else key)

    async def run() -> None:
        events = QueryEvents()
        async with Server(Backend(events), events, Vanishing(tmp_path), lambda: None):
            pytest.fail("it cannot serve")

    with pytest.raises(ConfigError, match=r"cannot be made: No such file") as caught:
        asyncio.run(asyncio.wait_for(run(), 5))
    assert caught.value.code == "runtime-dir"
    assert not list(tmp_path.glob("*.sock"))


def test_bytes_that_are_no_text_in_a_path_reach_the_socket() -> None:
    assert sockets.ipc(Path(os.fsdecode(b"/run/\xff\xc3\xa9/a.sock"))) == b"ipc:///run/\xff\xc3\xa9/a.sock"


def test_one_lock_at_a_time_and_its_holder_is_named(tmp_path: Path) -> None:
    with sockets.DaemonLock(tmp_path):
        with pytest.raises(AssistantError, match=f"process {os.getpid()}") as caught:
            sockets.DaemonLock(tmp_path)
        assert caught.value.code == "already-running"
        assert caught.value.exit_code == 1
    with sockets.DaemonLock(tmp_path):
        pass


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib; from assistant.api.sockets import DaemonLock;"
        "lock = DaemonLock(pathlib.Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(AssistantError, match=f"process {holder.pid}"):
            sockets.DaemonLock(tmp_path)
        holder.kill()
        holder.wait()
    with sockets.DaemonLock(tmp_path):
        assert (tmp_path / "daemon.lock").read_text() == f"{os.getpid()}\n"


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("keep me")
    (tmp_path / "daemon.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigError):
        sockets.DaemonLock(tmp_path)
    assert (tmp_path / "victim").read_text() == "keep me"


def test_a_socket_that_was_left_behind_is_nobody(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    assert not sockets.somebody_listens(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen(1)
        assert sockets.somebody_listens(path)
    assert path.exists()
    assert not sockets.somebody_listens(path)
    assert not sockets.somebody_listens(tmp_path / ("x" * 200))


def test_a_folder_that_anybody_may_exchange_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    folder = open_to_all / "assistant"
    with pytest.raises(ConfigError, match="anybody may put another folder"):
        sockets.prepared(folder)
    open_to_all.chmod(0o1777)  # as /tmp has it: only the owner may rename
    assert sockets.prepared(folder) == folder


@pytest.mark.parametrize("left", ["nothing", "a socket of a killed daemon", "a file", "a link"])
def test_a_new_socket_takes_the_place_of_what_was_left_behind(tmp_path: Path, left: str) -> None:
    path = tmp_path / "a.sock"
    victim = tmp_path / "victim"
    victim.write_text("keep me")
    with (
        contextlib.closing(socket.socket(socket.AF_UNIX)) as old,
        contextlib.closing(socket.socket(socket.AF_UNIX)) as new,
    ):
        match left:
            case "a socket of a killed daemon":
                old.bind(str(path))
            case "a file":
                path.write_text("")
            case "a link":
                path.symlink_to(victim)
            case _:
                pass
        with sockets.fresh(path):
            new.bind(str(path))
        assert stat.S_ISSOCK(path.lstat().st_mode)
        assert path.lstat().st_mode & 0o777 == 0o600
    assert victim.read_text() == "keep me"


def test_a_socket_that_others_could_open_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with (
        contextlib.closing(socket.socket(socket.AF_UNIX)) as new,
        pytest.raises(ConfigError, match="mode 666"),
        sockets.fresh(path),
    ):
        new.bind(str(path))
        path.chmod(0o666)  # a file system that knows no modes


LISTEN = """
import os, socket, sys, time
one = socket.socket(socket.AF_UNIX)
one.bind(sys.argv[1])
one.listen()
print(os.getpid(), flush=True)
time.sleep(60)
"""
ASK = "from pathlib import Path; from assistant.api.sockets import listener; print(listener(Path(sys.argv[1])))"


@pytest.mark.root
def test_who_listens_is_told_by_the_number_that_he_has_here(tmp_path: Path) -> None:
    """Of a daemon in another container; whom its own number means here must not be named, or even killed."""
    path = tmp_path / "a"
    assert sockets.listener(path) is None
    with elsewhere(f"exec({LISTEN!r})", path) as (number, _):
        assert number == "1"
        assert (sockets.listener(path) or 0) > 1
        assert sockets.somebody_listens(path)
    with socket.socket(socket.AF_UNIX) as mine:
        mine.bind(str(tmp_path / "b"))
        mine.listen()
        assert sockets.listener(tmp_path / "b") == os.getpid()
        with elsewhere(ASK, tmp_path / "b") as (told, _):
            assert told == "0", "it is not to be seen from there"
    assert sockets.listener(tmp_path / "b") is None
