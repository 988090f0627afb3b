"""Makes folders of derived files (see `derived`), whole or not at all. Imports `errors`, `derived`, `workspace`."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from assistant.errors import EngineFailed
from assistant.model_store.derived import (
    BOOT_ID,
    DISK_FULL,
    FORMAT,
    MARKER,
    NOT_WRITABLE,
    Derived,
    Marker,
    boot_of,
    write_note,
)
from assistant.model_store.derived_check import mark_of
from assistant.model_store.workspace import disk_is_full, sweep, workspace

_KEEP_S = 30 * 24 * 3600
"""Seconds that a folder is kept after its last use."""
_SPARE = 64 << 20
"""Bytes of disk that must stay free: a full disk harms more than a slow start."""


def prepare(cache: Derived, needed: int) -> None:
    """Before anything is made: removes what is broken, and what nobody uses.

    Raises `EngineFailed` code "cache-not-writable", or "cache-disk-full" when fewer than `needed` bytes are free.
    """
    try:
        cache.root.mkdir(parents=True, exist_ok=True)
        _try_writing(cache.root)
        if cache.find() is None:
            cache.drop()  # broken, and in the way of the new one
        sweep_unused(cache.root)
        free = cache.free(cache.root)
    except OSError as error:
        raise failed(cache, error) from None
    needed += _SPARE
    if free < needed:
        raise EngineFailed(
            f"the cache {cache.root} needs {needed >> 20} MiB, and its disk has {free >> 20} MiB free;"
            " free some, or set XDG_CACHE_HOME to another disk",
            code=DISK_FULL,
        )


def _try_writing(root: Path) -> None:
    probe = tempfile.mkdtemp(prefix=".tmp-", dir=root)
    with contextlib.suppress(FileNotFoundError):  # a sweeper was faster
        os.rmdir(probe)


@contextmanager
def building(cache: Derived, needed: int) -> Iterator[Path]:
    """An empty folder that becomes this one when the block ends well. Raises `EngineFailed` as `prepare` does."""
    prepare(cache, needed)
    try:
        with workspace(cache.root) as work:
            yield work
            publish(work, cache.path)
    except OSError as error:
        raise failed(cache, error) from None


def failed(cache: Derived, error: OSError) -> EngineFailed:
    if disk_is_full(error):
        return disk_filled_up(cache)
    return EngineFailed(
        f"the cache {cache.root} cannot be written: {error.strerror}; set XDG_CACHE_HOME to a disk that can",
        code=NOT_WRITABLE,
    )


def disk_filled_up(cache: Derived) -> EngineFailed:
    return EngineFailed(
        f"the disk of {cache.root} filled up while the cache was made; free some, or set XDG_CACHE_HOME to another"
        " disk",
        code=DISK_FULL,
    )


def sweep_unused(root: Path) -> None:
    """Removes what dead builders left half made, and folders that nobody has used for a month."""
    sweep(root)
    for marker in root.glob(f"*/{MARKER}"):
        with contextlib.suppress(OSError):  # another sweeper was faster
            if time.time() - marker.stat().st_mtime > _KEEP_S:
                shutil.rmtree(marker.parent, ignore_errors=True)


def publish(work: Path, target: Path) -> None:
    """Makes `work` durable and names it `target`; when another was faster, his is as good. Raises `OSError`."""
    names = sorted(path.name for path in work.iterdir())
    for name in names:
        _fsync(work / name)
    marker = Marker(format=FORMAT, id=os.urandom(8).hex(), files={name: mark_of(work / name) for name in names})
    (work / MARKER).write_bytes(msgspec.json.encode(marker))
    _fsync(work / MARKER)
    write_note(work, marker, boot_of(BOOT_ID))
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
