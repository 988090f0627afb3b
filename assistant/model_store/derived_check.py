"""Digests of derived files, which may be sparse, and their comparison beside other work. Imports nothing of ours.

A runtime holds Python's lock while it loads and computes, so each piece of data is digested in one call that does not
need that lock.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec

_SMALL = 4 << 20
"""Bytes of a file that is compared before anything opens it: tables and graphs, which can crash their readers."""
_GAP = 1 << 20
"""Holes shorter than this are digested as the zeros that they read as: few long pieces are compared fastest."""


class FileMark(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str
    """Of the pieces, one after the other."""
    pieces: tuple[tuple[int, int], ...]
    """(offset, bytes) of what was allocated when the file was made; the rest are holes."""


def mark_of(path: Path) -> FileMark:
    """Raises `OSError`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        pieces = _pieces(fd, size)
    finally:
        os.close(fd)
    return FileMark(size, _digest(_mapped(path), pieces), pieces)


def intact(path: Path, mark: FileMark) -> bool:
    """Reads the pieces and compares."""
    try:
        return path.stat().st_size == mark.bytes and _digest(_mapped(path), mark.pieces) == mark.sha256
    except (OSError, ValueError):
        return False


class Check:
    """A comparison that runs in a thread, for about as long as an engine takes to start. No files: good at once."""

    def __init__(self, folder: Path, files: Mapping[str, FileMark]) -> None:
        small = [name for name, mark in files.items() if mark.bytes <= _SMALL]
        large = sorted(set(files) - set(small), key=lambda name: -files[name].bytes)
        self._good = all(intact(folder / name, files[name]) for name in small)
        self.plausible = self._good
        """Whether the small files are right: without that nothing should open the folder."""
        self._thread: threading.Thread | None = None
        if self._good and large:
            begun = threading.Event()
            wanted = {folder / name: files[name] for name in large}
            self._thread = threading.Thread(target=self._run, args=(wanted, begun), name="cache-check", daemon=True)
            self._thread.start()
            begun.wait()

    def _run(self, wanted: Mapping[Path, FileMark], begun: threading.Event) -> None:
        try:
            mapped = {path: _mapped(path) for path in wanted}
            begun.set()
            self._good = all(_digest(data, wanted[path].pieces) == wanted[path].sha256 for path, data in mapped.items())
        except (OSError, ValueError):
            self._good = False  # gone, or empty
        finally:
            begun.set()

    @property
    def pending(self) -> bool:
        """Whether `good` may still say no."""
        return self._thread is not None or not self._good

    def good(self) -> bool:
        """Waits for the result."""
        if self._thread is not None:
            self._thread.join()
        return self._good


def _pieces(fd: int, size: int) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    at = 0
    while at < size:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break  # nothing but a hole from here on
            raise
        at = os.lseek(fd, begin, os.SEEK_HOLE)
        if found and begin - sum(found[-1]) < _GAP:
            begin = found.pop()[0]
        found.append((begin, at - begin))
    return tuple(found)


def _digest(data: memoryview, pieces: tuple[tuple[int, int], ...]) -> str:
    """Raises `ValueError` when a piece lies outside the data."""
    digest = hashlib.sha256()
    for begin, size in pieces:
        if begin < 0 or begin + size > len(data):
            raise ValueError("the file is shorter than its marker says")
        digest.update(data[begin : begin + size])
    return digest.hexdigest()


def _mapped(path: Path) -> memoryview:
    """A read-only view of the file; it lasts as long as somebody holds it."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
