"""How fast this machine reads memory: numpy sums over a buffer that no cache holds, in threads. Imports numpy."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from assistant.machine import lines_of
from assistant.memory_orchestrator.probe import MIB, Probe

_LEAST, _CACHES, _SHARE = 128 * MIB, 4, 4
"""Bytes of buffer: so many times the last cache level, at least, and no more than a fourth of what is free."""
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def last_cache(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Bytes of the largest cache of the first CPU; 0 where the kernel does not say."""
    sizes = [0]
    for file in root.glob("index*/size"):
        text = "".join(lines_of(file)).strip()
        if text[:-1].isdigit() and text[-1:] in _UNITS:
            sizes.append(int(text[:-1]) * _UNITS[text[-1]])
    return max(sizes)


def buffer_bytes(cache: int, available: int) -> int:
    return min(max(_LEAST, cache * _CACHES), available // _SHARE) // MIB * MIB


def read_bandwidth(threads: int, times: int = 5) -> tuple[float, int]:
    """Bytes per second at best, and the bytes of the buffer that was read. All of its pages are written first: the
    kernel gives one and the same page of zeros to whoever only reads."""
    size = buffer_bytes(last_cache(), Probe().machine().available)
    parts = np.array_split(np.ones(size // 8), threads)
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(times):
            began = time.perf_counter()
            # numpy lets go of the GIL while it sums
            list(pool.map(np.sum, parts))
            best = max(best, size / (time.perf_counter() - began))
    return best, size
