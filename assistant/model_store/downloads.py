"""The cache of verified downloads, shared by every checkout of this user. Imports `manifest` and `workspace`.

`<cache_dir>/downloads/<sha256>/<name>`: a file is there only after its size and digest were right, and it is read
again before each use, because model folders hold hard links to it and a careless write there would change it here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from assistant.errors import FetchFailed
from assistant.model_store.manifest import sha256_of
from assistant.model_store.workspace import link_or_copy, locked


class Downloads:
    def __init__(self, cache_dir: Path) -> None:
        self.root = cache_dir / "downloads"

    def path(self, sha256: str, name: str) -> Path:
        return self.root / sha256 / name

    def find(self, sha256: str, name: str, size: int) -> Path | None:
        """The cached file when it is still what it was; a damaged one is removed."""
        path = self.path(sha256, name)
        try:
            if path.stat().st_size == size and sha256_of(path) == sha256:
                return path
        except FileNotFoundError:
            return None
        path.unlink(missing_ok=True)
        return None

    def add(self, source: Path, sha256: str, name: str, size: int) -> Path:
        """Moves a file into the cache. Raises `FetchFailed` when it is not the file that it should be."""
        actual = sha256_of(source)
        if source.stat().st_size != size or actual != sha256:
            raise FetchFailed(
                f"{name} is not the file that the catalog knows: {source.stat().st_size:,} bytes with sha256 {actual}, "
                f"expected {size:,} with {sha256}. Nothing of it was kept. Please report both."
            )
        target = self.path(sha256, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        settle(source)
        source.replace(target)
        return target

    def adopt(self, candidate: Path, sha256: str, name: str, size: int) -> Path | None:
        """Takes a file over that a model folder still has, when it is whole: the cache may have been emptied."""
        try:
            if candidate.stat().st_size != size or sha256_of(candidate) != sha256:
                return None
        except OSError:
            return None
        target = self.path(sha256, name)
        link_or_copy(candidate, target)
        return target

    def lock(self, key: str, on_wait: Callable[[], None]) -> AbstractContextManager[None]:
        return locked(self.root, key, on_wait)

    def remove(self, sha256: str) -> int:
        """Gives the bytes that were there."""
        folder = self.root / sha256
        size = sum(path.stat().st_size for path in folder.glob("*"))
        shutil.rmtree(folder, ignore_errors=True)
        return size


def settle(path: Path) -> None:
    """On the disk before it gets its name, and read-only: a power cut must not leave a file of the right size only."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    path.chmod(0o444)
