"""What the stages are made of: specs from the settings and the model store, and one supervisor for each that is used.

Part of the composition root: it chooses which model the LLM stage works with, and notices when an installed model has
become another one. Starts nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from assistant import paths
from assistant.config import Config
from assistant.daemon_intents import intent_spec
from assistant.daemon_remote import Pauses, is_remote, local_config, remote_spec
from assistant.errors import ConfigError, ModelError, RemoteFailed, StageError, UsageError
from assistant.machine import usable_cpus
from assistant.memory_orchestrator.elastic import Available, Configured, effort
from assistant.memory_orchestrator.estimate import kv_bytes, slot_tokens
from assistant.messages import KvHome, Level, Stage
from assistant.model_store import manifest
from assistant.model_store.choices import EMERGENCY_GRAPH
from assistant.model_store.store import ModelStore
from assistant.query import Understood
from assistant.stages import kv_files
from assistant.stages.placement import placement, threads_for
from assistant.stages.registry import REMOTE, engine_path
from assistant.stages.spec import StageSpec
from assistant.stages.supervisor import Supervisor

log = logging.getLogger(__name__)

_BITS = ("-w4", "-w8")
"""How the names of a model's variants with other bits end."""

_Stamp = tuple[tuple[str, int, int, int], ...]
"""Of a model's files: path, inode, time of change, size. Empty = there are none."""


@dataclass(slots=True)
class _Known:
    stamp: _Stamp
    spec: StageSpec | None
    """None: it cannot be used, which was said."""


class Stages:
    """`stages(Stage.LLM)` gives the supervisor that is the right one now."""

    def __init__(
        self,
        config: Config,
        store: ModelStore,
        make: Callable[[StageSpec], Supervisor],
        level: Callable[[], Level],
        understood: Callable[[], Understood] = Understood,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`make`: a supervisor of a spec; `level`: how hard the machine is pressed; `understood`: what other programs
        want to hear of just now."""
        self._config, self._store = config, store
        self._make, self._level, self._understood = make, level, understood
        self._intents: tuple[Understood, StageSpec] | None = None
        self._pauses = Pauses(clock)
        self._known: dict[tuple[Stage, str], _Known] = {}
        self._made: dict[tuple[Stage, str, str, tuple[int, ...]], tuple[StageSpec, Supervisor]] = {}

    def __call__(self, stage: Stage) -> Supervisor:
        """Raises `ModelError` when the stage's model cannot be used."""
        spec = self._spec(stage, self._config_now(stage))
        local_llm = stage is Stage.LLM and spec.engine not in REMOTE
        spec, cpus = self._pressed(spec) if local_llm else (spec, spec.placement.cpus)
        made = self._made.get(key := (stage, spec.engine, spec.model, cpus))
        if made is None or made[0] is not spec:
            placed = replace(spec, placement=msgspec.structs.replace(spec.placement, cpus=cpus))
            made = self._made[key] = spec, self._make(placed)
        return made[1]

    # --- servers that fail ------------------------------------------------------------------------------------------
    def instead(self, failed: Supervisor, error: StageError) -> Supervisor | None:
        """The local stage for the place of a remote one, which is left alone for a while; None where there is none."""
        stage = failed.spec.stage
        if failed.engine not in REMOTE:
            return None
        log.warning("%s: %s", stage, error.message)
        self._pauses.begin(stage, error)
        other = self(stage)
        return None if other.engine in REMOTE else other

    def away(self, local: Supervisor) -> StageError | None:
        """Why a local stage has the place of a remote one; None for one that has its own, or is remote."""
        stage = local.spec.stage
        return self._pauses.why.get(stage) if is_remote(stage, self._config) and local.engine not in REMOTE else None

    def note(self, stage: Stage, error: Exception) -> None:
        """Of work outside a query: a server that has failed is left alone for a while."""
        if isinstance(error, RemoteFailed):
            self._pauses.begin(stage, error)

    def _config_now(self, stage: Stage) -> Config:
        """With a local engine while the server of the stage is left alone, if there is one."""
        fallback = is_remote(stage, self._config) and getattr(self._config.stage(stage), "fallback", False)
        if fallback and stage in self._pauses:
            try:
                return local_config(stage, self._config, self._store)
            except (ModelError, UsageError) as error:
                log.info("%s: nothing takes the server's place: %s", stage, error.message)
        return self._config

    def check_small(self) -> None:
        """Says now what is wrong with `stages.llm.small_model`, not when the machine is pressed already. Raises
        `UsageError` for what is no model of this stage."""
        self._small()

    # --- the LLM under pressure -------------------------------------------------------------------------------------
    def _pressed(self, own: StageSpec) -> tuple[StageSpec, tuple[int, ...]]:
        """Another model, or fewer CPUs, when the level asks for it."""
        level, llm = self._level(), self._config.stages.llm
        if level == "normal":
            return own, own.placement.cpus
        small, w4 = self._small(), self._w4(own)
        configured = Configured(
            prefill_chunk=llm.prefill_chunk,
            max_new_tokens=llm.max_new_tokens,
            threads=own.threads,
            cpus=tuple(cpu for cpu in usable_cpus() if cpu.number in own.placement.cpus),
        )
        # of every urgency the same: see `elastic`
        wanted = effort("normal", level, configured, Available(small=small is not None, w4=w4 is not None))
        return {"small": small, "w4": w4, "configured": own}[wanted.model] or own, wanted.cpus

    def _small(self) -> StageSpec | None:
        name = self._config.stages.llm.small_model
        return self._other(name, "stages.llm.small_model") if name else None

    def _w4(self, own: StageSpec) -> StageSpec | None:
        """The same model with 4-bit weights, when it is installed and smaller."""
        base = own.model[:-3] if own.model.endswith(_BITS) else own.model
        if base + "-w4" == own.model or not self._stamp(base + "-w4"):
            return None
        found = None
        with contextlib.suppress(UsageError):  # somebody else's, by the same name
            found = self._other(base + "-w4", "the variant with 4-bit weights")
        if found is None or found.kv_bytes != own.kv_bytes:
            return None
        return found if found.weight_bytes < own.weight_bytes else None

    def _other(self, name: str, what: str) -> StageSpec | None:
        """None for one that cannot be used."""
        stamp, known = self._stamp(name), self._known.get((Stage.LLM, name))
        if known is not None and known.stamp == stamp:
            return known.spec
        llm = msgspec.structs.replace(self._config.stages.llm, model=name)
        stages = msgspec.structs.replace(self._config.stages, llm=llm)
        try:
            config = local_config(Stage.LLM, msgspec.structs.replace(self._config, stages=stages), self._store)
            return self._spec(Stage.LLM, config)
        except ModelError as error:
            log.warning("%s: %s; it is not used", what, error.message)
            self._known[Stage.LLM, name] = _Known(stamp, None)
            return None

    # --- models that are replaced -----------------------------------------------------------------------------------
    def _spec(self, stage: Stage, config: Config) -> StageSpec:
        """Made again when a file of the installed model is another one than before; the same one otherwise. An engine
        that notices it by itself ("model-replaced") fails its query alone: the next one gets a new worker here."""
        if stage is Stage.INTENT:
            return self._intent_spec(config)
        name: str = "" if is_remote(stage, config) else getattr(config.stage(stage), "model", "")
        stamp, known = self._stamp(name) if name else (), self._known.get((stage, name))
        if known is not None and known.spec is not None and known.stamp == stamp and (stamp or not name):
            return known.spec
        spec = stage_spec(stage, config, self._store)
        # only its manifest is another one: the store notes new times in it
        if known is not None and known.spec is not None and _weights(known.stamp) == _weights(stamp):
            spec = known.spec
        # read before the spec was made: what is replaced meanwhile is noticed the next time
        self._known[stage, name] = _Known(stamp, spec)
        return spec

    def _intent_spec(self, config: Config) -> StageSpec:
        """Another one, and with it a new worker, whenever other intents are to be recognised."""
        wanted = self._understood()
        if self._intents is None or self._intents[0] != wanted:
            self._intents = wanted, stage_spec(Stage.INTENT, config, self._store, wanted)
        return self._intents[1]

    def _stamp(self, name: str) -> _Stamp:
        """Takes a tenth of a millisecond."""
        found = []
        with contextlib.suppress(OSError, UsageError):
            for folder, _, files in os.walk(self._store.path(name)):
                for file in files:
                    path = os.path.join(folder, file)
                    stat = os.stat(path)
                    found.append((path, stat.st_ino, stat.st_mtime_ns, stat.st_size))
        return tuple(sorted(found))


def _weights(stamp: _Stamp) -> _Stamp:
    return tuple(one for one in stamp if os.path.basename(one[0]) != manifest.FILE_NAME)


def has_emergency_graph(supervisor: Supervisor) -> bool:
    return (supervisor.spec.model_dir / EMERGENCY_GRAPH).is_file()


def stage_spec(
    stage: Stage,
    config: Config,
    store: ModelStore,
    beyond: Understood = Understood(),  # noqa: B008 - it is frozen
) -> StageSpec:
    """What the settings and the store say of a stage. `beyond`: intents that are no skills of ours.

    Raises `ModelError`, or `ConfigError` for a model of another stage.
    """
    settings: Any = config.stage(stage)
    engine: str = settings.engine
    cpus = usable_cpus()
    placed = placement(stage, cpus)
    if getattr(settings, "threads", 0) > threads_for(placed, cpus):  # as many as the user wants, wherever there is room
        placed = msgspec.structs.replace(placed, cpus=())
    common: dict[str, Any] = {
        "placement": placed,
        "stage": stage,
        "engine": engine,
        "cache_dir": paths.cache_dir() / engine,
        "start_timeout_s": settings.start_timeout_s,
        "step_timeout_s": settings.step_timeout_s,
        "language": settings.language if stage is Stage.TTS else "",
    }
    engine_path(stage, engine)  # an engine that does not exist is told before a model that does not fit it
    if engine in REMOTE:
        return remote_spec(stage, settings, common)
    if stage is Stage.INTENT:
        return intent_spec(config, beyond, common)
    model = store.open(settings.model)
    if (model.stage, model.engine) != (stage, engine):
        raise ConfigError(
            f"stages.{stage}.engine is {engine!r}, but stages.{stage}.model {model.name!r} is made for stage"
            f" {model.stage}, engine {model.engine!r}; set both ('assistant models list' shows what there is)"
        )
    options: dict[str, Any] = {}
    kv_token, kv_all = 0, 0
    kv_home: KvHome = "memory"
    match stage:
        case Stage.LLM:
            context = min(
                settings.context_tokens, int((model.shape or {}).get("max_position", settings.context_tokens))
            )
            if context < settings.context_tokens:
                log.warning("stages.llm.context_tokens: model %r has a context of %d", model.name, context)
            kv_token = kv_bytes(model.shape or {}, 1, 1)
            kv_all = kv_bytes(model.shape or {}, slot_tokens(context), settings.slots)
            files = 2 * int((model.shape or {}).get("layers", 0)) * settings.slots
            kv_home, kv_dir = kv_files.home_of(settings.kv_cache, kv_all, paths.cache_dir() / engine, files=files)
            options = {
                "context_tokens": context,
                "slots": settings.slots,
                "prefill_chunk": settings.prefill_chunk,
                "attention_mode": settings.attention_mode,
                "kv_home": kv_home,
                "kv_bytes": kv_all,
                "kv_dir": str(kv_dir or ""),
            }
        case Stage.ASR if engine == "whisper" and settings.language:
            options = {"language": settings.language}
        case Stage.TTS if settings.length_scale != 1:
            options = {"length_scale": settings.length_scale}
    return StageSpec(
        **common, model=model.name, model_dir=model.path, digest=model.digest, weight_bytes=model.bytes,
        threads=settings.threads or threads_for(placed, cpus), options=options,
        kv_token_bytes=kv_token, kv_bytes=kv_all, kv_home=kv_home,
    )  # fmt: skip
