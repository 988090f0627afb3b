"""A small JSON file that survives power cuts: whole or as it was before. Imports nothing of ours.

Blocks; whoever has an event loop calls it in a thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_BYTES = 2**20
_MOST_DAMAGED = 5
"""Damaged files that are kept."""


class StateFile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self, read: Callable[[Any], T]) -> T | None:
        """What `read` makes of the file, or None when there is none. One that is damaged (no JSON, or `read` raises
        `ValueError`) is put aside, which the log tells. Raises `OSError` for one that cannot be read at all."""
        try:
            with self.path.open("rb") as file:
                written = file.read(MAX_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            if len(written) > MAX_BYTES:
                raise ValueError("it is too large")
            return read(json.loads(written.decode("utf-8")))
        except (ValueError, RecursionError) as error:
            aside = self._aside()
            log.error("%s is damaged (%s); begun anew, and it is kept as %s", self.path, error, aside.name)
            self.path.rename(aside)
            return None

    def _aside(self) -> Path:
        """A name that is free; the last one is used again and again."""
        names = [self.path.with_name(f"{self.path.name}.damaged-{at}") for at in range(1, _MOST_DAMAGED + 1)]
        return next((name for name in names if not name.exists()), names[-1])

    def lock(self, *, wait: bool) -> int:
        """A descriptor that keeps other processes out until it is closed. Raises `OSError`; `BlockingIOError` where
        somebody else has the lock and it shall not `wait`."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self.path.with_name(f".{self.path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def save(self, data: Any) -> None:
        """It is on the disk when this returns. Raises `OSError`; the old one is still there then."""
        written = json.dumps(data, ensure_ascii=True, separators=(",", ":")).encode()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self.path.with_name(f".{self.path.name}.new")
        try:
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                file.write(written)
                file.flush()
                os.fsync(fd)
            fresh.rename(self.path)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
