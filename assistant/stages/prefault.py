"""Mapped weights get their page tables while the request is still on its way. Imports nothing of ours.

The first forward pass touches every page of the weights, and the kernel maps 16 pages at a time: thousands of faults
in the time that the user waits for the first word. One call maps them all in a tenth of that time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path

MOST = 256 << 20
"""Bytes of weights: larger ones may not fit into memory as a whole, and then what is read first is dropped first."""
_MADV_POPULATE_READ = 22
"""Since Linux 5.14; older kernels refuse it, which costs nothing."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


def prefault(folder: Path, most: int = MOST) -> threading.Thread | None:
    """Maps what this process has mapped of the files in `folder`, in a thread; never raises. None: nothing to do."""
    parts = list(_mapped(folder.resolve()))
    if not parts or sum(size for _, size in parts) > most:
        return None
    thread = threading.Thread(target=_populate, args=(parts,), daemon=True)
    thread.start()
    return thread


def _populate(parts: list[tuple[int, int]]) -> None:
    libc = ctypes.CDLL(None)
    for address, size in parts:
        libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), _MADV_POPULATE_READ)


def _mapped(folder: Path) -> Iterator[tuple[int, int]]:
    """Address and size of each mapped range that has data behind it: MNN's files are mostly holes, and a hole that is
    mapped becomes memory."""
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and Path(fields[5].strip()).parent == folder:
                begin, end = (int(part, 16) for part in fields[0].split("-"))
                yield from _data(fields[5].strip(), int(fields[2], 16), begin, end - begin)


def _data(file: str, offset: int, address: int, size: int) -> Iterator[tuple[int, int]]:
    with contextlib.suppress(OSError):  # ENXIO: no data behind `at`
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            at = offset
            while at < offset + size:
                begin = os.lseek(fd, at, os.SEEK_DATA)
                at = min(os.lseek(fd, begin, os.SEEK_HOLE), offset + size)
                if begin < at:
                    yield address + begin - offset, -(-(at - begin) // _PAGE) * _PAGE
        finally:
            os.close(fd)
