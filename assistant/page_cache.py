"""Advice to the kernel on files: which it shall read ahead, which it may forget. Imports nothing of ours.

Never raises: it is advice."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def read_ahead(folder: Path) -> None:
    """The kernel reads all files below `folder` while we do other things, and drops them when memory gets scarce."""
    _advise(folder, os.POSIX_FADV_WILLNEED)


def forget(folder: Path) -> None:
    """Drops all files below `folder` from the page cache, as far as nobody has them mapped."""
    _advise(folder, os.POSIX_FADV_DONTNEED)


def _advise(folder: Path, advice: int) -> None:
    with contextlib.suppress(OSError):
        for file in (one for one in folder.rglob("*") if one.is_file()):
            with contextlib.suppress(OSError):
                fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.posix_fadvise(fd, 0, 0, advice)
                finally:
                    os.close(fd)
