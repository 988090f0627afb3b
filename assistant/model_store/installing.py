"""Puts a finished model into its place, one at a time. Imports the store, `manifest` and `workspace`.

A model is built in a temporary folder beside its place and then renamed, under the lock of its name: a reader sees the
old model, none, or the new one, never half of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assistant.errors import FetchFailed
from assistant.model_store import manifest as manifests
from assistant.model_store.catalog import check_name
from assistant.model_store.manifest import Manifest
from assistant.model_store.progress import Progress
from assistant.model_store.store import ModelStore
from assistant.model_store.workspace import disk_is_full, locked


@contextmanager
def held(store: ModelStore, name: str, progress: Progress) -> Iterator[None]:
    """Holds the model's lock; what the disk says against the work within becomes `FetchFailed`.

    Its code is `disk-full` where that is the reason.
    """
    check_name(name)
    wait = f"{name}: another run is working on it; waiting"
    try:
        with locked(store.models_dir, name, lambda: progress.note(wait)):
            yield
    except OSError as error:
        if disk_is_full(error):
            raise FetchFailed(
                f"Model {name!r} could not be put in place: the disk of {store.models_dir} is full. "
                "Make room and run this again. Nothing was changed.",
                code="disk-full",
            ) from None
        raise FetchFailed(f"Model {name!r} could not be put in place: {error}. Nothing was changed.") from None


def install(store: ModelStore, manifest: Manifest, temp: Path) -> None:
    """Renames `temp`/model into its place; the old model, if any, goes with the temporary folder."""
    staged, target = temp / "model", store.path(manifest.name)
    _flush(staged)
    manifests.write(staged, manifest)
    old = temp / "old"
    try:
        if target.exists() or target.is_symlink():
            target.rename(old)
        staged.rename(target)
    except BaseException:
        if old.exists() and not target.exists():
            old.rename(target)  # a working model is not lost to a Ctrl-C between two renames
        raise


def _flush(folder: Path) -> None:
    """Every file on the disk before the model gets its name."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
