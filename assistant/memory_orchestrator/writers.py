"""Who writes a ledger, and whether he lives; what the dead have left is found and removed. Imports `segment`.

He lives as long as somebody holds his lock, whatever his number says here: in another PID namespace (containers that
share /dev/shm) it means nobody, or somebody else. Ledgers of other versions may come without a lock: their writer lives
as long as some process has the segment mapped to write, or has his number and does not let us look.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from assistant.errors import AssistantError
from assistant.machine import has_ended, lines_of, pid_namespace
from assistant.memory_orchestrator.probe import MIB, Probe, Usage
from assistant.memory_orchestrator.segment import opened, remove_left_behind

log = logging.getLogger(__name__)

SHM = Path("/dev/shm")  # noqa: S108 - where shm_open() puts segments on Linux; names are ours, mode is 0600
MAGIC = b"VALEDGR1"
VERSION = 2
_HEAD = struct.Struct("<8sI12xI4xQ72xQI")
"""Magic, version, (rows, sequence,) the writer's process: so begins every version. In ours also his start, and at 112
his PID namespace and whether he holds a lock."""
_FIRST_NAMESPACE = 0xEFFFFFFC
"""Where a machine starts (PROC_PID_INIT_INO): who is in another one is in a container."""
_IN_NAMESPACE = re.compile(r"@(\d{1,19})(?:\.\d+)?$", re.ASCII)
_PROC = Path("/proc")


class Head(NamedTuple):
    version: int
    pid: int
    start: int = 0
    """0 = unknown, as the next."""
    namespace: int = 0
    locks: bool = False
    """Its writer holds a lock on it for as long as he lives."""
    known: bool = False
    """It is of our layout."""


class Writer(NamedTuple):
    """One who lives, as far as he can be seen from here."""

    name: str
    """Of his ledger."""
    head: Head
    pid: int
    """His number here; 0 = he is in another container."""
    usage: Usage
    """PSS of him and his descendants; nothing where he cannot be seen."""

    def __str__(self) -> str:
        return f"process {self.pid}" if self.pid else f"process {self.head.pid} of another container"


def segment_name(owner: str) -> str:
    """`owner` is "daemon" (see `paths.daemon_owner`) or the pid of a stand-alone query. In a container with its
    namespace: both are the same in another one."""
    space = pid_namespace()
    return f"assistant-{os.getuid()}-{owner}" + (f"@{space}" if space not in (0, _FIRST_NAMESPACE) else "")


# --- life -----------------------------------------------------------------------------------------------------------
def head_of(fd: int) -> Head | None:
    """None for what is no ledger of any version."""
    raw = os.pread(fd, _HEAD.size, 0)
    if len(raw) < _HEAD.size:
        return None
    magic, version, pid, start, namespace, locks = _HEAD.unpack(raw)
    if (magic, version) == (MAGIC, VERSION):
        return Head(version, pid, start, namespace, bool(locks), known=True)
    return Head(version, pid) if magic[:7] == MAGIC[:7] else None


def lives(fd: int) -> bool:
    """Whether the writer of this segment does. Holds its lock for a moment."""
    return _locked(fd) or living_owner(fd, False) != 0


def living_owner(fd: int, locked: bool) -> int:
    """The pid of another process that owns this segment and lives; 0 when it has gone, or has no number here.

    `locked`: whether somebody holds the lock, which may be one who only looks.
    """
    head = head_of(fd)
    if head is None:
        return 0
    if not head.locks:
        return _unlocked(fd, head)
    here = locked and head.namespace == pid_namespace()
    return head.pid if here and head.pid != os.getpid() and not has_ended(head.pid, head.start) else 0


def _locked(fd: int) -> bool:
    """The descriptor must not hold the lock itself."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _unlocked(fd: int, head: Head) -> int:
    """Of a ledger whose writer may hold no lock."""
    pid = _mapped_by(fd)
    if not pid and head.pid and not has_ended(head.pid, head.start) and _hides(head.pid):
        pid = head.pid
    return pid if pid != os.getpid() else 0


def _hides(pid: int) -> bool:
    """Whether it is a process of our user, so that it could be, and does not let us look."""
    users = next((line.split()[1:] for line in lines_of(_PROC / str(pid) / "status") if line.startswith("Uid:")), [])
    try:
        _maps(pid).open("rb").close()
    except PermissionError:
        return str(os.getuid()) in users
    except OSError:  # it has just gone
        return False
    return False


def _maps(pid: int) -> Path:
    return _PROC / str(pid) / "maps"


def _mapped_by(fd: int) -> int:
    """The number that the process has here which has mapped this file to write; 0 when none is to be seen."""
    inode = str(os.fstat(fd).st_ino)
    for process in _PROC.iterdir():
        if not process.name.isdigit():
            continue
        with (
            contextlib.suppress(OSError),
            _maps(int(process.name)).open("r", encoding="utf-8", errors="replace") as file,
        ):
            for line in file:
                _, modes, _, _, number, *path = line.split(maxsplit=5)
                # inodes are those of one file system: another one may have this number, too
                if number == inode and "w" in modes and modes.endswith("s") and "assistant-" in "".join(path):
                    return int(process.name)
    return 0


# --- others ---------------------------------------------------------------------------------------------------------
def writers(
    directory: Path = SHM, probe: Probe | None = None, which: Callable[[Head], bool] = lambda head: True
) -> Iterator[Writer]:
    """All who live and write a ledger of this user, ourselves left out."""
    for path in sorted(directory.glob(f"assistant-{os.getuid()}-*")):
        with contextlib.suppress(OSError), opened(path) as fd:
            head = head_of(fd)
            if head is None or not which(head) or not lives(fd):
                continue
            pid = _mapped_by(fd) or (0 if head.locks else _unlocked(fd, head))
            if pid != os.getpid():
                usage = (probe or Probe()).family_sample(pid).now if pid else Usage()
                yield Writer(path.name, head, pid, usage)


def other_version(name: str, directory: Path = SHM) -> tuple[int, int] | None:
    """(version, pid) when a living process writes a ledger of another layout under this name."""
    try:
        with opened(directory / name) as fd:
            head = head_of(fd)
            return (head.version, head.pid) if head is not None and not head.known and lives(fd) else None
    except OSError:
        return None


# --- what was left behind -------------------------------------------------------------------------------------------
def stale_segments(directory: Path = SHM) -> list[Path]:
    """Segments of ours whose owners have gone (killed before they could remove them)."""
    found = [path for path in directory.glob(f"assistant-{os.getuid()}-*") if _left_behind(path)]
    for path in directory.glob(f".assistant-{os.getuid()}-*"):
        pid = path.suffix[1:]
        if pid.isascii() and pid.isdigit() and has_ended(int(pid)) and _left_behind(path):
            found.append(path)
    return found


def _left_behind(path: Path) -> bool:
    try:
        with opened(path) as fd:
            head = head_of(fd)
            judged = (head is not None and head.locks) or _is_seen(path.name)
            return judged and not lives(fd)
    except OSError:
        return False


def _is_seen(name: str) -> bool:
    """Whether its writer would be seen from here, had it one: from the machine's first namespace everybody is, from
    another one who is in it."""
    space, found = pid_namespace(), _IN_NAMESPACE.search(name)
    return space == _FIRST_NAMESPACE or (found is not None and int(found[1]) == space)


def remove_stale(directory: Path = SHM) -> None:
    for path in stale_segments(directory):
        with contextlib.suppress(OSError, AssistantError):
            remove_left_behind(path, living_owner)


def tell_of_other_versions(directory: Path = SHM) -> None:
    """In the log: who writes a ledger that we cannot read is left alone, and not forgotten."""
    for one in writers(directory, which=lambda head: not head.known):
        log.warning(
            "%s writes the ledger %s in version %d, which cannot be read here: it is left alone, and its memory (%s)"
            " counts as that of other programs", one, one.name, one.head.version,
            f"{one.usage.total / MIB:.0f} MiB now" if one.usage.total else "not to be seen from here",
        )  # fmt: skip
