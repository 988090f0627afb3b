"""Models that the settings need, wake words, and the files made from models for this machine. Loads none of them.

Imports the store and the names of the engines' caches. Looks at a model as each start of its stage does: sizes of all
files, and the content of those with a new time.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from assistant.audio import wake_files
from assistant.config import Config
from assistant.disk import Alive, answered
from assistant.doctor.findings import Finding
from assistant.doctor.scene import Scene, mib, reinstall
from assistant.errors import AssistantError, ModelUnreachable
from assistant.messages import STAGE_ORDER, Stage
from assistant.model_store import manifest as manifests
from assistant.model_store.derived import MARKER, Derived
from assistant.model_store.manifest import Manifest
from assistant.model_store.store import ModelStore, State
from assistant.stages.base import EngineConfig
from assistant.stages.registry import REMOTE

_UNUSED_S = 24 * 3600
"""Another checkout of ours, with other models, may share the caches; what was used within a day stays."""
_CACHE = re.compile(r"(mnn|int8|cut)-[0-9a-f]{32}")
"""Folders that `model_store.derived` has named for an engine."""


class Wanted(NamedTuple):
    stage: Stage
    engine: str
    model: str
    setting: str


def wanted(config: Config) -> Iterator[Wanted]:
    """The models that the settings need on this disk; a stage whose work a server does needs none."""
    for stage in STAGE_ORDER:
        settings = config.stage(stage)
        if stage is not Stage.INTENT and settings.engine not in REMOTE:
            yield Wanted(stage, settings.engine, getattr(settings, "model", ""), f"stages.{stage}.model")
    llm = config.stages.llm
    if llm.small_model and llm.engine not in REMOTE:
        yield Wanted(Stage.LLM, llm.engine, llm.small_model, "stages.llm.small_model")


def store_of(scene: Scene) -> ModelStore:
    return ModelStore(scene.places.models, scene.places.catalog)


def manifests_of(store: ModelStore) -> Iterator[tuple[str, Manifest]]:
    """By name, of the models of this disk, whole or not; one that cannot be read is `look_at_models`' to tell. Raises
    `ModelUnreachable`."""
    for name in store.installed():
        try:
            manifest = manifests.read(store.path(name))
        except ModelUnreachable:
            raise
        except AssistantError:
            continue
        if manifest is not None:
            yield name, manifest


# --- models ---------------------------------------------------------------------------------------------------------
def look_at_models(scene: Scene) -> Iterator[Finding]:
    """Waits for a disk as long as it gives signs of life: models whose times have changed are read in full."""
    try:
        yield from answered(lambda alive: [*_models(scene, alive)])
    except TimeoutError as error:
        yield _unreachable(f"{error} that holds the models ({scene.places.models})")


def _unreachable(found: str) -> Finding:
    return Finding("model-unreachable", "problem", found, "sudo dmesg | tail -30")


def _models(scene: Scene, alive: Alive) -> Iterator[Finding]:
    store = store_of(scene)
    try:
        _ = store.catalog
        store.installed()
    except ModelUnreachable as error:
        yield _unreachable(error.message)
        return
    except AssistantError as error:
        yield Finding("models-unreadable", "problem", error.message, reinstall())
        return
    needed = list(dict.fromkeys(wanted(scene.config)))
    troubles = [finding for one in needed for finding in _model(store, one, alive)]
    troubles += _wake_words(scene, store)
    yield from troubles
    if not troubles:
        yield Finding("models", "ok", ", ".join(one.model for one in needed) or "none is needed: servers do the work")


def _model(store: ModelStore, one: Wanted, alive: Alive) -> Iterator[Finding]:
    named = f"{one.setting} = {one.model!r}"
    try:
        status = store.status(one.model, alive)
    except ModelUnreachable as error:
        yield _unreachable(f"{named}: {error.message}")
        return
    except AssistantError as error:  # no model of ours
        yield Finding("model-unfit", "problem", f"{named}: {error.message}", "assistant models list")
        return
    if status.state is State.MISSING:
        entry = store.catalog.find(one.model)
        size = f", about {mib(entry.download_bytes)}" if entry else ""
        fix = f"assistant models fetch {one.model}"
        yield Finding("model-missing", "problem", f"{named}: it is not in {store.models_dir}{size}", fix)
        return
    if status.state is State.DAMAGED:
        yield Finding("model-damaged", "problem", f"{named}: {status.reason}", store.fix(one.model, status.manifest))
        return
    if status.state is State.OUTDATED:
        yield Finding("model-outdated", "advice", f"{named}: {status.reason}", f"assistant models fetch {one.model}")
    model = status.manifest
    if model is not None and (model.stage, model.engine) != (one.stage, one.engine):
        yield Finding(
            "model-unfit", "problem",
            f"{named} is made for stage {model.stage}, engine {model.engine!r}, not for {one.engine!r}",
            f"set stages.{one.stage}.engine and .model in config.toml; assistant models list shows what goes together",
        )  # fmt: skip


def _wake_words(scene: Scene, store: ModelStore) -> Iterator[Finding]:
    if not scene.config.audio.enabled:
        return
    wake = scene.config.wake
    known = wake_files.described(_wake_folders(wake.models_dir, store))
    # the usual stop word is heard without a model, too, only later: docs/voice.md offers it, and nothing is amiss
    offered = {*type(wake)().stop_words} - {*wake.words}
    for word in dict.fromkeys((*wake.words, *wake.stop_words)):
        if word not in known and word not in offered:
            name = f"wake-{word.replace('_', '-')}"
            fix = f"assistant models fetch {name}" if store.catalog.find(name) else "assistant models list"
            waking = word in wake.words
            yield Finding(
                "wake-word-missing", "problem" if waking else "advice",
                f"{'wake.words' if waking else 'wake.stop_words'}: there is no model of {word!r}", fix,
            )  # fmt: skip


def _wake_folders(own: str, store: ModelStore) -> Iterator[Path]:
    if own:
        yield Path(own)
    for name, manifest in manifests_of(store):
        if manifest.kind == "wake":
            yield store.path(name)
    package = importlib.util.find_spec("pymicro_wakeword")  # found, not imported
    if package is not None and package.origin:
        yield Path(package.origin).parent / "models"


# --- what is made of them -------------------------------------------------------------------------------------------
def look_at_caches(scene: Scene) -> Iterator[Finding]:
    """Compares no bytes: each start of a stage does that where there is a doubt."""
    store = store_of(scene)
    try:  # of models that cannot be seen, no cache is stale; `look_at_models` tells why
        mine = answered(lambda alive: {at.path: (at, name) for name, at in _expected(store, scene.places.cache)})
    except (ModelUnreachable, TimeoutError):
        yield Finding("looked-too-long", "problem", f"caches: {store.models_dir} could not be seen", "see above")
        return
    troubles, size = [], 0
    for folder in sorted(scene.places.cache.glob("*/*-*")):
        if not (_CACHE.fullmatch(folder.name) and folder.is_dir()):
            continue
        size += (bytes_of := _size(folder))
        if folder in mine:
            cache, name = mine[folder]
            if cache.find(touch=False) is None:
                troubles.append(_damaged(cache, name))
        elif _unused(folder):
            troubles.append(_stale(folder, bytes_of))
    yield from troubles
    if not troubles:
        yield Finding("caches", "ok", f"{mib(size)} in {scene.places.cache}")


def _expected(store: ModelStore, root: Path) -> Iterator[tuple[str, Derived]]:
    """Every folder that an engine would use for a model of this disk."""
    from assistant.stages import mnn_cache, tts_piper_cache, whisper_weights

    for name, manifest in manifests_of(store):
        engine, folder = manifest.engine, store.path(name)
        config = EngineConfig(model=name, model_dir=folder, digest=manifest.digest, cache_dir=root / engine, threads=1)
        if engine == "mnn":
            yield name, mnn_cache.cache_of(config)
        elif engine == "whisper":
            yield name, whisper_weights.cache_of(config)
        elif engine == "piper":
            with contextlib.suppress(metadata.PackageNotFoundError):
                version = metadata.version("onnxruntime")
                yield name, tts_piper_cache.cache_of(config, folder / f"{name}.onnx", version)


def _damaged(cache: Derived, name: str) -> Finding:
    def mend() -> str:
        _remove(cache.path)
        return f"removed {cache.path}"

    return Finding(
        "cache-damaged", "problem", f"{cache.path} (of model {name!r}) is not whole", "assistant doctor --fix", mend
    )


def _stale(folder: Path, size: int) -> Finding:
    def mend() -> str:
        _remove(folder)
        return f"removed {folder} ({mib(size)})"

    found = f"{folder} ({mib(size)}) belongs to no model that is here"
    return Finding("cache-stale", "advice", found, "assistant doctor --fix", mend)


def _remove(folder: Path) -> None:
    """Away in one step, so that nobody finds half of it; what is mapped stays usable. Raises `OSError`."""
    aside = Path(tempfile.mkdtemp(prefix=".tmp-", dir=folder.parent))  # what is left of it is swept
    folder.rename(aside / "old")
    shutil.rmtree(aside)


def _unused(folder: Path) -> bool:
    for file in (folder / MARKER, folder):
        with contextlib.suppress(OSError):
            return time.time() - file.stat().st_mtime > _UNUSED_S
    return False


def _size(folder: Path) -> int:
    return sum(_blocks(folder.rglob("*")))


def _blocks(files: Iterable[Path]) -> Iterator[int]:
    """Bytes on the disk: mapped weights have holes."""
    for file in files:
        with contextlib.suppress(OSError):
            yield file.lstat().st_blocks * 512
