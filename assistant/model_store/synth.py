"""Installs a model of random weights: the counterpart of `fetch` for what nobody has to download.

Imports the store, `conversion` and `installing`. The weights are made in a child process, as with every conversion.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from assistant.errors import UsageError
from assistant.messages import Stage
from assistant.model_store import manifest as manifests
from assistant.model_store import versions
from assistant.model_store.choices import Block, checked
from assistant.model_store.conversion import Converters
from assistant.model_store.installing import held, install
from assistant.model_store.llm_shape import LlmShape
from assistant.model_store.manifest import Manifest
from assistant.model_store.progress import Progress, Silent
from assistant.model_store.store import SYNTHETIC, ModelStore, State
from assistant.model_store.synthetic_shapes import BLOCK, SHAPES, shape_of
from assistant.model_store.workspace import need_space, workspace

__all__ = ["BLOCK", "SHAPES", "default_name", "disk_bytes", "synthesise"]


def default_name(shape_name: str) -> str:
    return f"{SYNTHETIC}{shape_name}"


def disk_bytes(shape: LlmShape) -> int:
    """The most that it takes, with blocks of 32: 4.5 bits a weight, and the word table twice for a head in slices."""
    per_layer = sum(rows * columns for rows, columns in shape.matrices(0).values())
    return (shape.layers * per_layer + 2 * shape.vocab * shape.hidden) * 9 // 16 + (32 << 20)


def synthesise(
    store: ModelStore,
    shape_name: str,
    name: str | None = None,
    progress: Progress | None = None,
    *,
    block: Block = BLOCK,
    converters: Converters | None = None,
    free: Callable[[Path], int] | None = None,
) -> str:
    """Makes sure that a model of random weights of this shape is installed, in 4-bit blocks of that size; its name.

    Nothing happens when it is there already and whole; one with other blocks is made anew. Raises `UsageError`
    for an unknown shape, or a name that another model has; `FetchFailed` with code `disk-full`; `ModelError` when the
    conversion fails.
    """
    shape, name, progress = shape_of(shape_name), name or default_name(shape_name), progress or Silent()
    if store.catalog.find(name) is not None:
        raise UsageError(f"{name!r} is a model of the catalog; choose another name with --name")
    store.path(name)
    with held(store, name, progress):
        if _is_here(store, shape_name, name, block):
            return name
        need_space(store.models_dir, disk_bytes(shape), f"random weights of {shape_name}", free)
        with workspace(store.models_dir) as temp:
            out, label = temp / "model", f"random weights of {shape_name}"
            with progress.task(label, 0) as update:
                found = (converters or Converters()).synthetic(shape_name, out, temp / "converter.log", update, block)
            install(store, _manifest(name, shape_name, out, found, block), temp)
    return name


def _is_here(store: ModelStore, shape_name: str, name: str, block: Block) -> bool:
    """Raises `UsageError` when the name belongs to a model that is not this one."""
    if name not in store.installed():
        return False
    status = store.status(name)
    if status.state is State.DAMAGED:
        return False
    manifest = manifests.read(store.path(name))
    if manifest is None or manifest.synthetic != shape_name:
        raise UsageError(f"there is another model {name!r}; remove it first with: assistant models rm {name}")
    return status.state is State.READY and manifest.choices == checked(4, block)


def _manifest(name: str, shape_name: str, folder: Path, shape: dict[str, int | bool], block: Block) -> Manifest:
    return Manifest(
        name=name,
        kind="mnn-llm",
        stage=Stage.LLM,
        engine="mnn",
        files=manifests.records_of(folder),
        shape=shape,
        choices=checked(4, block),
        synthetic=shape_name,
        converter_version=versions.GGUF_CONVERTER,
        mnn_version=versions.mnn_version(),
    )
