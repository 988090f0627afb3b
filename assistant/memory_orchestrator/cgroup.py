"""Memory cgroups that we live in, version 1 and 2: their limits, and what is left below each. Reads files alone.

A limit binds whoever is below it, siblings too, so that the one with the least left need not be the smallest. Which
files there are is found once; a reading then opens a handful of small ones. What is missing or unreadable counts as no
limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assistant.machine import lines_of, number_of

_UNLIMITED = 1 << 60
"""cgroup v1 says "no limit" with a huge number."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes."""

    smallest: int
    left: int
    """The least that is left below any of them, once the kernel has dropped the page cache."""


@dataclass(frozen=True, slots=True)
class _Group:
    limit: Path
    usage: Path
    stat: Path
    prefix: str
    """Before the keys of what its descendants hold included."""


class Cgroups:
    """Ours and its ancestors."""

    def __init__(self, root: Path = Path("/")) -> None:
        folders = [*_own(root)]
        self.pressure = [
            file for folder, version in folders if version == 2 and (file := folder / "memory.pressure").exists()
        ]
        """Files of memory stalls (PSI), ours first."""
        groups = [_group(folder, version) for folder, version in folders]
        self._groups = [group for group in groups if group.limit.exists()]

    def read(self) -> Limits | None:
        """None when nothing is limited. Limits may change, and come, at any time."""
        found = [(limit, limit - _held(group)) for group in self._groups if (limit := _limit(group)) is not None]
        if not found:
            return None
        return Limits(smallest=min(limit for limit, _ in found), left=max(0, min(left for _, left in found)))


def _own(root: Path) -> Iterator[tuple[Path, int]]:
    """Folders, nearest first, each with its version."""
    for line in lines_of(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mounts, version = ["sys/fs/cgroup", "sys/fs/cgroup/unified"], 2
        elif "memory" in controllers.split(","):
            mounts, version = ["sys/fs/cgroup/memory"], 1
        else:
            continue
        # in a container the path may be the host's, of which the mount shows the end alone: the way up meets it
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            for mount in mounts:
                yield root.joinpath(mount, *parts[:depth]), version


def _group(folder: Path, version: int) -> _Group:
    stat = folder / "memory.stat"
    if version == 2:
        return _Group(folder / "memory.max", folder / "memory.current", stat, "")
    return _Group(folder / "memory.limit_in_bytes", folder / "memory.usage_in_bytes", stat, prefix="total_")


def _limit(group: _Group) -> int | None:
    limit = number_of(group.limit)
    return limit if limit is not None and limit < _UNLIMITED else None


def _held(group: _Group) -> int:
    """What is charged, page cache apart: all of the cache, the active part too, as MemAvailable counts it. Weights
    become active by being loaded twice, and stay there, reclaimable, when their stage has long gone. Files in memory
    (tmpfs) are no cache."""
    usage = number_of(group.usage) or 0
    cache = 0
    for line in lines_of(group.stat):
        name, _, text = line.partition(" ")
        if name in (f"{group.prefix}inactive_file", f"{group.prefix}active_file") and text.isdigit():
            cache += int(text)
    return max(0, usage - cache)
