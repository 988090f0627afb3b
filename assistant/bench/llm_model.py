"""Which language model a benchmark runs, and with what settings: by name, by folder, or synthetic of a given shape.

Imports `config`, the store and what the daemon makes of both. The settings are the user's own, but for what is
measured.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec

from assistant import config as settings
from assistant.bench.output import say_aside
from assistant.daemon_specs import stage_spec
from assistant.errors import ModelMissing, UsageError
from assistant.messages import Stage
from assistant.model_store import manifest as manifests
from assistant.model_store.manifest import Alive
from assistant.model_store.store import ModelInfo, ModelStore
from assistant.model_store.vocabulary import Vocabulary
from assistant.stages.spec import StageSpec

BIG_SHAPE = "qwen1.5-1.8b"
"""What the published figures were measured with."""
_SPARE_TOKENS = 8


class _Folder(ModelStore):
    """A store with one model in it, which need not have been installed: what a conversion into a folder leaves."""

    def __init__(self, folder: Path, rest: ModelStore) -> None:
        super().__init__(rest.models_dir, rest._catalog_file)
        self._folder = folder

    def open(self, name: str, alive: Alive = lambda: None) -> ModelInfo:
        """Reads every byte of the folder, once: there is no manifest that could be believed. Raises `ModelDamaged`."""
        facts = Vocabulary.open(self._folder).facts
        found = manifests.Manifest(
            name=name, kind="llm", stage=Stage.LLM, engine="mnn", files=manifests.records_of(self._folder)
        )
        return ModelInfo(
            name=name, stage=Stage.LLM, kind="llm", engine="mnn", path=self._folder, bytes=found.bytes,
            shape=facts.shape, digest=found.digest,
        )  # fmt: skip


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is here."""

    name: str
    store: ModelStore

    def spec(self, *, context_tokens: int, prefill_chunk: int, kv_cache: str = "auto") -> StageSpec:
        """The stage with this model. Room for `context_tokens`, rounded up to pieces of 64. `prefill_chunk`: tokens at
        once. Raises `ModelError`, and `ConfigError` for settings that are none."""
        user = settings.load()
        llm = msgspec.structs.replace(
            user.stages.llm,
            model=self.name,
            context_tokens=whole_pieces(context_tokens),
            prefill_chunk=prefill_chunk,
            kv_cache=kv_cache,
            max_new_tokens=1,
        )
        stages = msgspec.structs.replace(user.stages, llm=llm)
        spec = stage_spec(Stage.LLM, msgspec.structs.replace(user, stages=stages), self.store)
        spec.cache_dir.mkdir(parents=True, exist_ok=True)
        # a benchmark's prompt may be of the context's own length, in one piece
        return dataclasses.replace(spec, options={**(spec.options or {}), "prefill_chunk": prefill_chunk})


def whole_pieces(tokens: int, piece: int = 64) -> int:
    return -(-tokens // piece) * piece


def choose(*, model: str = "", shape: str = "", store: ModelStore | None = None) -> Chosen:
    """By name or folder, or the synthetic one of `shape`, which is made when it is not there yet.

    Raises `UsageError` when both are given, `ModelError` for one that is not there or not whole.
    """
    store = store or ModelStore.default()
    if model and shape:
        raise UsageError("give --model or --shape, not both: a shape is a model of its own")
    if shape:
        return Chosen(name=synthetic(shape, store), store=store)
    if "/" in model or Path(model).is_dir():
        folder = Path(model).resolve()
        if not (folder / "llm.mnn").is_file():
            raise ModelMissing(f"{folder} holds no converted language model; 'assistant models convert' makes one")
        return Chosen(name=folder.name, store=_Folder(folder, store))
    if model == "embedded":
        model = settings.Config().stages.llm.model
    name = model or settings.load().stages.llm.model
    store.open(name)
    return Chosen(name=name, store=store)


def synthetic(shape: str, store: ModelStore) -> str:
    """The name of the installed model of that shape, with random weights. Raises `UsageError` for a shape not known."""
    from assistant.model_store.synth import synthesise
    from assistant.model_store.synthetic_shapes import shape_of

    shape_of(shape)  # or nobody waits for it
    say_aside(f"a model of random weights in the shape of {shape}: made now unless it is there")
    return synthesise(store, shape)
