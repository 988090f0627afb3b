"""Models of the user's own that need no conversion: a Vosk folder, a Whisper folder, a Piper voice. Imports the store,
`installing`, `manifest` and `workspace`.

They are copied, with a manifest like every other model, so that each load is checked. Never touches the network.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from assistant.errors import ModelUnsupported, UsageError
from assistant.messages import Stage
from assistant.model_store import manifest as manifests
from assistant.model_store.catalog import check_name
from assistant.model_store.installing import held, install
from assistant.model_store.manifest import Manifest
from assistant.model_store.progress import Progress, Silent
from assistant.model_store.store import ModelInfo, ModelStore, State
from assistant.model_store.workspace import need_space, workspace

_TAKEN = (
    "a Vosk model's folder (with am/final.mdl), a Whisper model's folder for CTranslate2 (with model.bin and"
    " config.json), or a Piper voice (NAME.onnx, and NAME.onnx.json beside it)"
)


@dataclass(frozen=True, slots=True)
class _Found:
    kind: str
    stage: Stage
    files: dict[str, Path]
    """By their paths in the model's folder."""


def add(
    store: ModelStore,
    source: Path,
    name: str,
    *,
    progress: Progress | None = None,
    free: Callable[[Path], int] | None = None,
) -> ModelInfo:
    """What is at `source` becomes the model `name`, which neither the catalog nor this disk must know; one of that name
    that is damaged is put there anew.

    Raises `UsageError`, `ModelUnsupported` for what is none of the kinds that are taken, and `FetchFailed`.
    """
    check_name(name)
    if store.catalog.find(name) is not None:
        raise UsageError(f"{name!r} is a model of the catalog; choose another name with --name")
    found = _recognised(source, name)
    with held(store, name, progress or Silent()), workspace(store.models_dir) as temp:
        if name in store.installed() and store.status(name).state is State.READY:
            raise UsageError(f"there is a model {name!r} already; remove it first with: assistant models rm {name}")
        need_space(store.models_dir, sum(path.stat().st_size for path in found.files.values()), name, free)
        for path, file in found.files.items():
            target = temp / "model" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        manifest = Manifest(
            name=name,
            kind=found.kind,
            stage=found.stage,
            engine={"vosk": "vosk", "whisper-ct2": "whisper", "piper": "piper"}[found.kind],
            files=manifests.records_of(temp / "model"),
            added_from=str(source.resolve()),
        )
        install(store, manifest, temp)
    return store.open(name)


def _recognised(source: Path, name: str) -> _Found:
    if source.is_dir():
        files = {path.relative_to(source).as_posix(): path for path in sorted(source.rglob("*")) if path.is_file()}
        files.pop(manifests.FILE_NAME, None)
        if ("am/final.mdl" in files or "final.mdl" in files) and any(path.endswith(".fst") for path in files):
            return _Found("vosk", Stage.ASR, files)
        if "model.bin" in files and "config.json" in files:
            return _Found("whisper-ct2", Stage.ASR, files)
        raise ModelUnsupported(f"{source} holds no model that is known by its files; taken are {_TAKEN}")
    if not source.is_file():
        wrong = "it is no regular file" if source.exists() else "there is no such file or folder"
        raise UsageError(f"{source}: {wrong}")
    if source.suffix != ".onnx":
        hint = "; for a GGUF file: assistant models convert" if source.suffix == ".gguf" else ""
        raise ModelUnsupported(f"{source} is none of what is taken: {_TAKEN}{hint}")
    about = source.with_name(source.name + ".json")
    if not about.is_file():
        raise UsageError(f"{about} is missing; a Piper voice is two files, and both are needed")
    return _Found("piper", Stage.TTS, {f"{name}.onnx": source, f"{name}.onnx.json": about})
