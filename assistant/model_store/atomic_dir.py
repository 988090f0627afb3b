"""A directory that appears whole or not at all. Imports `locked_folder`.

Work goes on in a hidden sibling, `.NAME.tmp-PID`, which is renamed at the end and removed on any exception. A process
that is killed leaves its sibling behind: the next one to build the same directory removes it, told from a living one by
the lock that its maker holds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assistant.locked_folder import made_locked, remove_unless_held


def sweep(target: Path) -> None:
    """Removes what killed builders of `target` have left."""
    for left in [*target.parent.glob(f".{target.name}.tmp-*"), *target.parent.glob(f".{target.name}.old-*")]:
        remove_unless_held(left)


def _made(path: Path) -> Path:
    path.mkdir()
    return path


@contextmanager
def building(target: Path) -> Iterator[Path]:
    """Yields an empty directory that takes the place of `target` when the block ends well. Raises `OSError`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target)
    work = target.with_name(f".{target.name}.tmp-{os.getpid()}")
    old = target.with_name(f".{target.name}.old-{os.getpid()}")
    lock = -1
    try:
        _, lock = made_locked(lambda: _made(work))
        yield work
        if target.exists():
            target.rename(old)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        if lock >= 0:
            os.close(lock)
