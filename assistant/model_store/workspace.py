"""Locks and temporary folders that survive nothing: not Ctrl-C, not a crash, not a second run. Imports `errors`,
`locked_folder`.

A lock is an flock, so the kernel drops it with the process that held it. A temporary folder is locked by its owner
for as long as it lives; a folder that nobody locks belongs to a dead run and is swept.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from assistant.errors import FetchFailed
from assistant.locked_folder import made_locked, remove_unless_held

_TEMP_PREFIX = ".tmp-"
_LOCKS = ".locks"


@contextmanager
def locked(folder: Path, key: str, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds the lock `key` of the folder; waits for another holder after telling `on_wait` once."""
    (folder / _LOCKS).mkdir(parents=True, exist_ok=True)
    fd = os.open(folder / _LOCKS / key, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """A fresh folder below `folder` (so a rename out of it is atomic); gone when the block ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    path, fd = made_locked(lambda: Path(tempfile.mkdtemp(prefix=_TEMP_PREFIX, dir=folder)))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(fd)


def sweep(folder: Path) -> None:
    """Removes temporary folders of runs that are dead."""
    for path in folder.glob(_TEMP_PREFIX + "*"):
        remove_unless_held(path)


def need_space(folder: Path, wanted: int, what: str, free: Callable[[Path], int] | None = None) -> None:
    """Raises `FetchFailed` when the folder's file system has fewer than `wanted` bytes (and 16 MiB to spare)."""
    folder.mkdir(parents=True, exist_ok=True)
    there = (free or bytes_free)(folder)
    wanted += 16 << 20
    if there < wanted:
        raise FetchFailed(
            f"{what} needs {_mib(wanted)} MiB on the disk of {folder}, and {_mib(there)} MiB are free. "
            "Make room and run this again.",
            code="disk-full",
        )


def bytes_free(folder: Path) -> int:
    """Free for us on the file system of a folder."""
    return shutil.disk_usage(folder).free


def disk_is_full(error: OSError) -> bool:
    """The disk, or what we may have of it."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _mib(size: int) -> int:
    return -(-size // (1 << 20))


def link_or_copy(source: Path, target: Path) -> None:
    """A hard link, or a copy when the two lie on different file systems (or links are not to be had)."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
