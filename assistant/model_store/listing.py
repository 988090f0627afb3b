"""The rows of `assistant models list`. Imports the store."""

from __future__ import annotations

from typing import Any

from assistant.model_store.manifest import Alive, Manifest
from assistant.model_store.store import ModelStore, State


def rows(store: ModelStore, alive: Alive = lambda: None) -> list[dict[str, Any]]:
    """The catalog's models in its order, then the user's own; `bytes` on this disk, or what a download would be."""
    found = []
    for entry in store.catalog.entries():
        alive()
        status = store.status(entry.name, alive)
        here = status.manifest if status.state is State.READY else None
        found.append(
            {
                "name": entry.name,
                "stage": entry.stage.value if entry.stage else entry.kind,
                "kind": entry.kind,
                "engine": entry.engine,
                "language": entry.language,
                "bytes": here.bytes if here is not None else entry.download_bytes,
                "licence": entry.licence,
                "description": entry.description,
                "default": entry.default,
                "unseen": entry.unseen,
                "state": status.state.value,
                "reason": status.reason,
            }
        )
    found += [_own(store, name, alive) for name in store.installed() if store.catalog.find(name) is None]
    return found


def _own(store: ModelStore, name: str, alive: Alive) -> dict[str, Any]:
    status = store.status(name, alive)
    manifest = status.manifest
    return {
        "name": name,
        "stage": (manifest.stage.value if manifest.stage else manifest.kind) if manifest else "",
        "kind": manifest.kind if manifest else "",
        "engine": manifest.engine if manifest else "",
        "language": "",
        "bytes": manifest.bytes if manifest else 0,
        "licence": "none (random)" if manifest and manifest.synthetic else "your own",
        "description": _origin(manifest) if manifest else "",
        "default": False,
        "unseen": False,
        "state": status.state.value,
        "reason": status.reason,
    }


def _origin(manifest: Manifest) -> str:
    if manifest.synthetic:
        return f"random weights in the shape of {manifest.synthetic}"
    if manifest.converted_from:
        return f"made from {manifest.converted_from.file}"
    return f"copied from {manifest.added_from}" if manifest.added_from else ""
