"""Folders of files that are derived from a model and can be made again: found, checked, made whole or not at all.

Every cache of the engines is one of these. A folder is named by all that its content depends on. It is made aside,
brought to the disk (fsync), and renamed into place with its marker in it, so a crash or a power cut leaves the whole of
it or nothing. Whoever finds it may use it at once and must ask `Check.good` before the first result leaves.

When is a found folder read in full? Sizes are compared at each start. The bytes are compared with the digests of the
marker (in a thread, beside the start of the engine) once per boot of the machine, because a power cut or a failing card
shows after one; and whenever a file's inode, change time or blocks are not those that the last good user noted:
somebody has written to it, or has punched a hole into it. The change time cannot be set by programs. Otherwise
nothing is read: a gigabyte from an SD card at every start would cost more than the cache saves.

Imports `errors`, `workspace`. Never imports an engine.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import msgspec

from assistant.errors import EngineFailed
from assistant.model_store.derived_check import Check, FileMark, mark_of
from assistant.model_store.workspace import sweep, workspace

MARKER = "complete.json"
NOTE = "checked.json"
"""What the last good user saw: the boot, and the identity of each file. Losing it costs one full check."""
FORMAT = 1
DISK_FULL, NOT_WRITABLE = "cache-disk-full", "cache-not-writable"
_KEEP_S = 30 * 24 * 3600
"""Seconds that a folder is kept after its last use."""
_SPARE = 64 << 20
"""Bytes of disk that must stay free: a full disk harms more than a slow start."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FULL = (errno.ENOSPC, errno.EDQUOT)

Free = Callable[[Path], int]
"""Bytes free for us on the file system of a folder."""


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    format: int
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

    def check(self) -> Check:
        """Begins to compare, if there is a doubt. Small files are compared before this returns."""
        return Check(self.path, self.marker.files if self.doubtful else {})

    def note(self) -> None:
        """After a good check, and after the engine has written what it writes: this is what the next user may trust."""
        with contextlib.suppress(OSError):  # read-only, or gone: the next start checks in full
            _write_note(self.path, self.marker, self._boot)

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
        boot_id: Path = _BOOT_ID,
    ) -> None:
        """`digest`: of the model's files; `settings`: all else that the content depends on. The CPU is added."""
        key = json.dumps([FORMAT, digest, cpu_signature(), dict(settings)], sort_keys=True)
        self.root = root
        self.path = root / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
        self._free = free or (lambda folder: shutil.disk_usage(folder).free)
        self._boot_id = boot_id

    def find(self) -> Found | None:
        """The folder, when it is complete; works on a read-only file system."""
        try:
            marker = msgspec.json.decode((self.path / MARKER).read_bytes(), type=Marker)
            same = all((self.path / name).stat().st_size == mark.bytes for name, mark in marker.files.items())
        except (OSError, ValueError, msgspec.MsgspecError):
            return None
        if marker.format != FORMAT or not marker.files or not same:
            return None
        with contextlib.suppress(OSError):
            os.utime(self.path / MARKER)  # when it was last used
        return Found(self.path, marker, _boot(self._boot_id))

    def prepare(self, needed: int) -> None:
        """Before anything is made: removes what is there, and what nobody uses.

        Raises `EngineFailed` code "cache-not-writable", or "cache-disk-full" when fewer than `needed` bytes are free.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self._try_writing()
            self.drop()
            self.sweep()
            free = self._free(self.root)
        except OSError as error:
            raise self.failed(error) from None
        needed += _SPARE
        if free < needed:
            raise EngineFailed(
                f"the cache {self.root} needs {needed >> 20} MiB, and its disk has {free >> 20} MiB free;"
                " free some, or set XDG_CACHE_HOME to another disk",
                code=DISK_FULL,
            )

    def _try_writing(self) -> None:
        probe = tempfile.mkdtemp(prefix=".tmp-", dir=self.root)
        with contextlib.suppress(FileNotFoundError):  # a sweeper was faster
            os.rmdir(probe)

    @contextmanager
    def building(self, needed: int) -> Iterator[Path]:
        """An empty folder that becomes this one when the block ends well. Raises `EngineFailed` as `prepare` does."""
        self.prepare(needed)
        try:
            with workspace(self.root) as work:
                yield work
                publish(work, self.path)
        except OSError as error:
            raise self.failed(error) from None

    def failed(self, error: OSError) -> EngineFailed:
        if error.errno in _FULL:
            return self.disk_filled_up()
        return EngineFailed(
            f"the cache {self.root} cannot be written: {error.strerror}; set XDG_CACHE_HOME to a disk that can",
            code=NOT_WRITABLE,
        )

    def disk_filled_up(self) -> EngineFailed:
        return EngineFailed(
            f"the disk of {self.root} filled up while the cache was made; free some, or set XDG_CACHE_HOME to another"
            " disk",
            code=DISK_FULL,
        )

    def drop(self) -> None:
        """Takes the folder away in one step; what is open or mapped stays usable."""
        with contextlib.suppress(OSError):  # not there, or read-only
            aside = Path(tempfile.mkdtemp(prefix=".tmp-", dir=self.root))
            try:
                self.path.rename(aside)
            finally:
                shutil.rmtree(aside, ignore_errors=True)

    def sweep(self) -> None:
        """Removes what dead builders left half made, and folders that nobody has used for a month."""
        sweep(self.root)
        for marker in self.root.glob(f"*/{MARKER}"):
            with contextlib.suppress(OSError):  # another sweeper was faster
                if time.time() - marker.stat().st_mtime > _KEEP_S:
                    shutil.rmtree(marker.parent, ignore_errors=True)


def publish(work: Path, target: Path) -> None:
    """Makes `work` durable and names it `target`; when another was faster, his is as good. Raises `OSError`."""
    names = sorted(path.name for path in work.iterdir())
    for name in names:
        _fsync(work / name)
    marker = Marker(format=FORMAT, files={name: mark_of(work / name) for name in names})
    (work / MARKER).write_bytes(msgspec.json.encode(marker))
    _fsync(work / MARKER)
    _write_note(work, marker, _boot(_BOOT_ID))
    _fsync(work)
    try:
        work.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    _fsync(target.parent)


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_note(folder: Path, marker: Marker, boot: str) -> None:
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


def _boot(path: Path) -> str:
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
