"""Pages of mapped files are there before somebody touches them. Real files, a real kernel."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.stages.prefault import prefault

MIB = 1 << 20


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[mmap.mmap]:
    """4 MiB of data behind a hole of 64 MiB, as MNN's files look."""
    with (tmp_path / "0.static").open("wb+") as file:
        file.truncate(68 * MIB)
        file.seek(64 * MIB)
        file.write(os.urandom(4 * MIB))
        file.flush()
        os.fsync(file.fileno())
        with mmap.mmap(file.fileno(), 68 * MIB) as found:
            yield found


def resident(folder: Path) -> int:
    """Bytes of the mapping that this process has page tables for."""
    inside, total = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(maxsplit=1)[0]:
            inside = str(folder) in line
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


def test_data_is_mapped_and_holes_are_not(mapped: mmap.mmap, tmp_path: Path) -> None:
    assert resident(tmp_path) == 0
    thread = prefault(tmp_path)
    assert thread is not None
    thread.join()
    if tuple(map(int, os.uname().release.split(".")[:2])) < (5, 14):
        pytest.skip("this kernel cannot do it")
    assert resident(tmp_path) == 4 * MIB


def test_what_is_large_or_not_mapped_is_left_alone(mapped: mmap.mmap, tmp_path: Path) -> None:
    assert prefault(tmp_path, most=MIB) is None
    assert prefault(tmp_path / "elsewhere") is None
    assert resident(tmp_path) == 0
