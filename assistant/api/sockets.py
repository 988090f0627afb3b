"""The folder of the sockets, and the lock that makes one daemon of several. Imports `errors`, `paths`; no zmq.

The folder is ours alone (0700, no link), or it is refused: whoever can write to it could stand between a client and
the daemon.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assistant import paths
from assistant.closing import Closing
from assistant.errors import AssistantError, ConfigError

COMMAND = "command.sock"
CONTROL = "control.sock"
EVENTS = "events.sock"
LOCK = "daemon.lock"
_LONGEST = 107
"""Bytes of a path in a `sockaddr_un`, its closing NUL apart."""
_PID_WAIT_S = 0.3
_CREDENTIALS = struct.Struct("3i")
"""`struct ucred`: process, user, group."""


def folder() -> Path:
    """The folder of this user's daemon. Raises `ConfigError` when its path is too long for sockets."""
    return checked_length(paths.runtime_dir())


def checked_length(directory: Path) -> Path:
    longest = max(len(os.fsencode(directory / name)) for name in (COMMAND, CONTROL))
    if longest > _LONGEST:
        raise ConfigError(
            f"{directory} is too long: the path of a socket may have {_LONGEST} bytes, these have {longest};"
            " set XDG_RUNTIME_DIR to a shorter one",
            code="runtime-dir",
        )
    return directory


def prepared(directory: Path) -> Path:
    """Makes the folder (0700) unless it is there. Raises `ConfigError` when it is not ours alone."""
    checked_length(directory)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(directory, error.strerror or str(error)) from None
    return trusted(directory)


def trusted(directory: Path) -> Path:
    """Of a folder that exists. Raises `ConfigError` when somebody else could have put sockets into it."""
    return checked_private(directory, "the sockets", "XDG_RUNTIME_DIR")


def checked_private(directory: Path, what: str, setting: str) -> Path:
    """`what` is kept in it, `setting` moves it. Raises `ConfigError` unless the folder is ours alone, and no link."""
    try:
        found = directory.lstat()
        above = directory.parent.stat()
    except OSError as error:
        raise _refused(directory, error.strerror or str(error), what, setting) from None
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode):
        raise _refused(directory, "it is a link or a file, not a folder", what, setting)
    if found.st_uid != os.geteuid():
        raise _refused(directory, f"it belongs to user {found.st_uid}", what, setting)
    if mode & 0o077:
        raise _refused(directory, f"others may enter it (mode {mode:o}); chmod 700 it", what, setting)
    if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        raise _refused(directory, f"anybody may put another folder in its place in {directory.parent}", what, setting)
    return directory


def _refused(directory: Path, why: str, what: str = "the sockets", setting: str = "XDG_RUNTIME_DIR") -> ConfigError:
    return ConfigError(
        f"{what} cannot be in {directory}: {why}; or set {setting} to a folder of your own",
        code="runtime-dir" if setting == "XDG_RUNTIME_DIR" else None,
    )


@contextlib.contextmanager
def fresh(path: Path) -> Iterator[None]:
    """Around the bind of a socket: it is made 0600, in place of one that a killed daemon left there.

    The caller holds the daemon's lock. Raises `ConfigError` when something is there that cannot be replaced, or the
    file system makes something else of it.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:  # a folder
        why = f"what is at {path.name} cannot be removed ({error.strerror}); remove it"
        raise _refused(path.parent, why) from None
    mask = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(mask)
    found = path.lstat()
    if not stat.S_ISSOCK(found.st_mode) or stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid != os.geteuid():
        raise _refused(path.parent, f"{path.name} was made with mode {stat.S_IMODE(found.st_mode):o}, not 600")


def ipc(path: Path) -> Any:
    """Its address for zmq, which makes UTF-8 of a text, whatever the locale; bytes where the path is none, which zmq
    takes, though its types do not say so."""
    raw = b"ipc://" + os.fsencode(path)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


def somebody_listens(path: Path) -> bool:
    """Whether a process has this socket open: False for none, and for one that a killed daemon left behind."""
    return listener(path) is not None


def listener(path: Path) -> int | None:
    """The process that has this socket open, by its number here, which need not be what it says of itself: in another
    container it has another one, or none. 0 = not to be known (as when it is too busy); None = nobody."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except BlockingIOError:  # its backlog is full: somebody is there, and busy
            return 0
        except OSError:
            return None
        pid, _, _ = _CREDENTIALS.unpack(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(pid)


class DaemonLock(Closing):
    """Held for as long as the daemon lives; the kernel releases it with the process, however that ends.

    The file stays: removing it would let two processes hold locks on two files of the same name.
    """

    def __init__(self, directory: Path) -> None:
        """Raises `AssistantError` code "already-running" that names the process which holds it."""
        path = directory / LOCK
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _refused(directory, f"{path.name}: {error.strerror}") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = self._holder()
            os.close(self._fd)
            raise AssistantError(
                f"a daemon already runs (process {holder}); 'assistant status' shows it", code="already-running"
            ) from None
        with contextlib.suppress(OSError):  # a full disk: nobody learns our number, and the lock holds all the same
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def _holder(self) -> str:
        """Its process id; one that has just taken the lock may still be about to write it."""
        give_up = time.monotonic() + _PID_WAIT_S
        while not (text := os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()):
            if time.monotonic() > give_up:
                return "unknown"
            time.sleep(0.01)
        return text

    def close(self) -> None:
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1
