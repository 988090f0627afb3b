"""Guards MNN's cache of mapped weights, which MNN itself trusts blindly (a wrong one crashes or talks nonsense).

One folder per (model, MNN version, CPU, memory mode, dynamic option). A folder counts only with our marker, written
after a first good forward pass, and only while every file has the size and the blocks that the marker says. Two
processes that build the same cache each build their own; the first to finish wins. Imports no MNN.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assistant.errors import EngineFailed

MARKER = "complete.json"
_BLOCKS_KEPT = 0.9
"""A file system may store a file in somewhat fewer blocks later; a truncated or punched one has far fewer."""
_ROOM = 1.6
"""Free disk needed per byte of weights: the runtime's layout widens scales to fp32 (measured: 1.1 to 1.4)."""
_KEEP_S = 30 * 24 * 3600
"""Seconds that the cache of a model, or of an MNN version, is kept after its last use."""
_SPARE = 64 * 1024 * 1024
"""Bytes of disk that a cache must leave free: a full disk harms more than a slow start."""


class MnnCache:
    """The cache folder of one model and one set of settings."""

    def __init__(self, root: Path, digest: str, settings: Mapping[str, Any], version: str) -> None:
        """`settings`: exactly those that change the layout of the cache."""
        key = json.dumps([digest, version, _cpu(), dict(settings)], sort_keys=True)
        self._root = root
        self.path = root / hashlib.sha256(key.encode()).hexdigest()[:32]
        self._building: Path | None = None

    def usable(self) -> bool:
        """Whether the cache may be mapped as it is."""
        try:
            sizes = json.loads((self.path / MARKER).read_text("utf-8"))["files"]
            good = bool(sizes) and all(_is_like(self.path / name, entry) for name, entry in sizes.items())
            if good:
                os.utime(self.path / MARKER)  # when it was last used
            return good
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def begin(self, weight_bytes: int) -> Path:
        """An empty folder to build in. Raises `EngineFailed` code "cache-disk-full" before anything is written."""
        self.drop()
        self._sweep()
        building = self._root / f".building-{self.path.name[:8]}-{os.getpid()}"
        try:
            building.mkdir(parents=True)
            free = shutil.disk_usage(self._root).free
        except OSError as error:
            raise EngineFailed(
                f"the weight cache {self._root} cannot be written: {error.strerror}; set XDG_CACHE_HOME to a disk"
                " that can",
                code="cache-not-writable",
            ) from None
        needed = int(weight_bytes * _ROOM) + _SPARE
        if free < needed:
            shutil.rmtree(building, ignore_errors=True)
            raise EngineFailed(
                f"the weight cache needs {needed >> 20} MiB on the disk of {self._root}, which has {free >> 20} MiB"
                " free; free some, or set XDG_CACHE_HOME to another disk",
                code="cache-disk-full",
            )
        self._building = building
        return building

    def complete(self) -> None:
        """After the first good forward: what stands in the folder is right. MNN goes on using the files it mapped."""
        building = self._building
        if building is None:
            return
        files = {path.name: _stat(path) for path in building.iterdir()}
        (building / MARKER).write_text(json.dumps({"files": files}), "utf-8")
        try:
            building.rename(self.path)
        except OSError:  # another process was first; ours lives on unnamed until this process ends
            shutil.rmtree(building, ignore_errors=True)
        self._building = None

    def drop(self) -> None:
        """Forgets the cache; what is mapped stays mapped."""
        shutil.rmtree(self.path, ignore_errors=True)

    def abandon(self) -> None:
        """Removes what was begun and not completed."""
        if self._building is not None:
            shutil.rmtree(self._building, ignore_errors=True)
            self._building = None

    def _sweep(self) -> None:
        """Removes what processes that have died left half built, and caches that nobody has used for a month."""
        for path in self._root.glob(".building-*"):
            pid = path.name.rpartition("-")[2]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(path, ignore_errors=True)
        for marker in self._root.glob(f"*/{MARKER}"):
            if time.time() - marker.stat().st_mtime > _KEEP_S:
                shutil.rmtree(marker.parent, ignore_errors=True)


def _stat(path: Path) -> dict[str, int]:
    found = path.stat()
    return {"size": found.st_size, "blocks": found.st_blocks}


def _is_like(path: Path, entry: Mapping[str, int]) -> bool:
    found = _stat(path)
    return found["size"] == entry["size"] and found["blocks"] >= entry["blocks"] * _BLOCKS_KEPT


def _cpu() -> str:
    """What the weight layout depends on: the instruction sets of this CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return os.uname().machine
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return os.uname().machine + " " + " ".join(sorted(value.split()))
    return os.uname().machine
