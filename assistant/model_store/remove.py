"""Takes a model off this disk. Imports the store and the download cache."""

from __future__ import annotations

from pathlib import Path

from assistant.errors import ModelError
from assistant.model_store.catalog import ArchiveSource, Entry
from assistant.model_store.downloads import Downloads
from assistant.model_store.store import ModelStore
from assistant.model_store.workspace import locked, workspace


def remove(store: ModelStore, cache_dir: Path, name: str, downloads: bool = False) -> int:
    """Removes the model's folder whole or not at all, and its cached downloads when asked. Gives the bytes freed.

    Raises `ModelUnknown`, or `ModelMissing` when there is nothing to remove.
    """
    folder, entry = store.path(name), store.catalog.find(name)
    if not folder.is_dir() and entry is not None and downloads:
        freed = _remove_downloads(Downloads(cache_dir), entry)
        if freed:
            return freed
    if not folder.is_dir() or (entry is None and name not in store.installed()):
        raise store.absent(name)
    try:
        with locked(store.models_dir, name), workspace(store.models_dir) as temp:
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            folder.rename(temp / "old")
    except OSError as error:
        raise ModelError(f"Model {name!r} could not be removed: {error}") from None
    if downloads and entry is not None:
        _remove_downloads(Downloads(cache_dir), entry)
    return size


def cached_bytes(store: ModelStore, cache_dir: Path, name: str) -> int:
    """Size of the model's verified downloads, which stay when only the model is removed."""
    entry = store.catalog.find(name)
    if entry is None:
        return 0
    folders = [Downloads(cache_dir).root / sha256 for sha256 in _digests(entry)]
    return sum(path.stat().st_size for folder in folders for path in folder.glob("*"))


def _remove_downloads(cache: Downloads, entry: Entry) -> int:
    return sum(cache.remove(sha256) for sha256 in _digests(entry))


def _digests(entry: Entry) -> list[str]:
    """Under which the cache has what the model comes from."""
    if isinstance(entry.source, ArchiveSource):
        return [entry.source.sha256]
    return [file.sha256 for file in entry.files]
