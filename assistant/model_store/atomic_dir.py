"""A directory that appears whole or not at all. Imports nothing of ours.

Work goes on in a hidden sibling, `.NAME.tmp-PID`, which is renamed at the end and removed on any exception. A process
that is killed leaves its sibling behind: the next one to build the same directory removes it, told from a living one by
the lock that its maker holds.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def sweep(target: Path) -> None:
    """Removes what killed builders of `target` have left."""
    for left in [*target.parent.glob(f".{target.name}.tmp-*"), *target.parent.glob(f".{target.name}.old-*")]:
        try:
            fd = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # just removed by another, or not ours
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        except BlockingIOError:
            pass  # its maker is alive
        finally:
            os.close(fd)


def _locked(path: Path) -> int:
    """Makes the directory and locks it. A sweeper may catch it in between, so look again."""
    while True:
        path.mkdir()
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), path.stat()):
                return fd
        os.close(fd)


@contextmanager
def building(target: Path) -> Iterator[Path]:
    """Yields an empty directory that takes the place of `target` when the block ends well. Raises `OSError`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target)
    work = target.with_name(f".{target.name}.tmp-{os.getpid()}")
    old = target.with_name(f".{target.name}.old-{os.getpid()}")
    lock = -1
    try:
        lock = _locked(work)
        yield work
        if target.exists():
            target.rename(old)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        if lock >= 0:
            os.close(lock)
