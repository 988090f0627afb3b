"""Folders of files that are derived from a model and can be made again: found, checked, made whole or not at all.

Every cache of the engines is one of these. A folder is named by all that its content depends on. It is made aside,
brought to the disk (fsync), and renamed into place with its marker in it, so a crash or a power cut leaves the whole of
it or nothing. Whoever finds it may use it at once and must ask `Check.good` before the first result leaves.

When is a found folder read in full? Sizes are compared at each start. The bytes are compared with the digests of the
marker (in a thread, beside the start of the engine) once per boot of the machine, because a power cut or a failing card
shows after one; and whenever a file's inode, change time or blocks are not those that the last good user noted:
somebody has written to it, or has punched a hole into it. The change time cannot be set by programs. Otherwise
nothing is read: a gigabyte from an SD card at every start would cost more than the cache saves.

This module finds and believes; it is imported at each start of a worker, so it imports little: `derived_check`.
`derived_make` makes. Neither imports an engine.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import msgspec

from assistant.model_store.derived_check import Check, FileMark

MARKER = "complete.json"
NOTE = "checked.json"
"""What the last good user saw: the boot, and the identity of each file. Losing it costs one full check."""
FORMAT = 1
DISK_FULL, NOT_WRITABLE = "cache-disk-full", "cache-not-writable"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

Free = Callable[[Path], int]
"""Bytes free for us on the file system of a folder."""


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    id: str
    """Random; tells one making from another."""
    files: dict[str, FileMark]


class Note(msgspec.Struct, frozen=True):
    boot: str
    files: dict[str, tuple[int, int, int]]
    """Inode, change time in ns, blocks."""


class Found:
    """A folder that is complete by its marker and by size."""

    def __init__(self, path: Path, marker: Marker, boot: str) -> None:
        self.path = path
        self.marker = marker
        self._boot = boot

    @property
    def doubtful(self) -> bool:
        """Whether its bytes must be compared before they are believed."""
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            note = msgspec.json.decode((self.path / NOTE).read_bytes(), type=Note)
            return not self._boot or note != Note(self._boot, _identity(self.path, self.marker))
        return True

    def check(self, *, full: bool = False) -> Check:
        """Begins to compare, if there is a doubt or `full` says so. Small files are compared before this returns."""
        return Check(self.path, self.marker.files if full or self.doubtful else {})

    def note(self) -> None:
        """After a good check, and after the engine has written what it writes: this is what the next user may trust."""
        with contextlib.suppress(OSError):  # read-only, or gone: the next start checks in full
            write_note(self.path, self.marker, self._boot)

    def writable(self) -> bool:
        """Whether the files may be opened for writing."""
        return all(os.access(self.path / name, os.W_OK) for name in self.marker.files)


class Derived:
    """The folder for one content below `root`, whether it exists or not."""

    def __init__(
        self,
        root: Path,
        kind: str,
        digest: str,
        settings: Mapping[str, object],
        *,
        free: Free | None = None,
        boot_id: Path = BOOT_ID,
    ) -> None:
        """`digest`: of the model's files; `settings`: all else that the content depends on. The CPU is added."""
        key = json.dumps([FORMAT, digest, cpu_signature(), dict(settings)], sort_keys=True)
        self.root = root
        self.path = root / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
        self.free = free or (lambda folder: shutil.disk_usage(folder).free)
        self._boot_id = boot_id

    def find(self, *, touch: bool = True) -> Found | None:
        """The folder, when it is complete; works on a read-only file system. `touch`: it is about to be used."""
        try:
            marker = self._marker()
            same = all((self.path / name).stat().st_size == mark.bytes for name, mark in marker.files.items())
        except (OSError, ValueError, msgspec.MsgspecError):
            return None
        if marker.format != FORMAT or not marker.files or not same:
            return None
        if touch:
            with contextlib.suppress(OSError):
                os.utime(self.path / MARKER)  # when it was last used
        return Found(self.path, marker, boot_of(self._boot_id))

    def _marker(self) -> Marker:
        return msgspec.json.decode((self.path / MARKER).read_bytes(), type=Marker)

    def drop(self, seen: Found | None = None) -> None:
        """Takes the folder away in one step; what is open or mapped stays usable.

        Nothing happens when it is no longer the one that was `seen`: another process has made it anew.
        """
        aside = self.root / f".tmp-{os.getpid()}-{time.monotonic_ns()}"  # what is left of it is swept
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):  # not there, read-only, or unreadable
            if seen is not None and self._marker().id != seen.marker.id:
                return
            self.path.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)


def write_note(folder: Path, marker: Marker, boot: str) -> None:
    note = msgspec.json.encode(Note(boot, _identity(folder, marker)))
    temporary = folder / f".{NOTE}.{os.getpid()}"
    try:
        temporary.write_bytes(note)
        temporary.replace(folder / NOTE)
    finally:
        temporary.unlink(missing_ok=True)


def _identity(folder: Path, marker: Marker) -> dict[str, tuple[int, int, int]]:
    stats = {name: (folder / name).stat() for name in marker.files}
    return {name: (stat.st_ino, stat.st_ctime_ns, stat.st_blocks) for name, stat in stats.items()}


def boot_of(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except OSError:
        return ""  # never believed


@cache
def cpu_signature() -> str:
    """Changes when the files move to another kind of machine: they may hold layouts that fit one kind."""
    flags = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        flags = next((line.partition(":")[2] for line in file if line.startswith(("flags", "Features"))), "")
    return f"{os.uname().machine}-{hashlib.sha256(' '.join(sorted(flags.split())).encode()).hexdigest()[:12]}"
