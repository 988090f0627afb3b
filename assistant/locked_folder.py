"""Folders that are somebody's for as long as he lives: he holds an flock on them, which the kernel drops with him.

So whoever finds one can tell a living owner's from a dead one's, also from another PID namespace. Imports nothing of
ours.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


def made_locked(make: Callable[[], Path]) -> tuple[Path, int]:
    """The folder that `make` has made, and its descriptor, which holds the lock until it is closed. Raises `OSError`.

    A sweeper may catch the folder between its making and its lock: then `make` is called again.
    """
    while True:
        path = make()
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(path, _FLAGS)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(fd), path.lstat()):
                    return path, fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)


def remove_unless_held(path: Path) -> None:
    """Removes what a dead owner has left; leaves a living one's, and what is no folder. Never raises."""
    with contextlib.suppress(OSError):
        fd = os.open(path, _FLAGS)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(fd)
