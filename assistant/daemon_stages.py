"""Which stages there are: a spec of what is installed for each, and one supervisor for each that is used.

Part of the composition root: it chooses which model the LLM stage works with, and notices when an installed model has
become another one. Asks the disk, so it is asked in threads: see `daemon_looks`. Starts nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from assistant import paths
from assistant.config import Config
from assistant.daemon_intents import Stamp, sentences_stamp, stamp_of
from assistant.daemon_remote import Pauses, is_remote, local_config
from assistant.daemon_specs import stage_spec
from assistant.disk import Alive
from assistant.errors import ModelError, RemoteFailed, StageError, UsageError
from assistant.machine import usable_cpus
from assistant.memory_orchestrator.elastic import Available, Configured, effort
from assistant.messages import Level, Stage
from assistant.model_store import manifest
from assistant.model_store.store import ModelStore
from assistant.query import Understood
from assistant.stages.registry import REMOTE
from assistant.stages.spec import StageSpec
from assistant.stages.supervisor import Supervisor

log = logging.getLogger(__name__)

_BITS = ("-w4", "-w8")
"""How the names of a model's variants with other bits end."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a stage shall be just now."""

    spec: StageSpec
    cpus: tuple[int, ...]
    """Those that it may use."""


@dataclass(slots=True)
class _Known:
    stamp: Stamp
    spec: StageSpec | None
    """None: it cannot be used, which was said."""


class Stages:
    """`find` says what a stage shall be now, and `supervisor` gives who runs that: see `daemon_looks.Looks`."""

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
        self._make, self._level, self.understood = make, level, understood
        self._intents: tuple[Understood, Stamp, StageSpec] | None = None
        self._pauses = Pauses(clock)
        self._known: dict[tuple[Stage, str], _Known] = {}
        self._made: dict[tuple[Stage, str, str, tuple[int, ...]], tuple[StageSpec, Supervisor]] = {}

    def find(self, stage: Stage, understood: Understood, alive: Alive) -> Found:
        """Asks the disk; one stage at a time. `alive`: called while that takes long. Raises `ModelError` when the
        stage's model cannot be used."""
        spec = self._spec(stage, self._config_now(stage, alive), understood, alive)
        local_llm = stage is Stage.LLM and spec.engine not in REMOTE
        return Found(*(self._pressed(spec, alive) if local_llm else (spec, spec.placement.cpus)))

    def at_hand(self, stage: Stage, understood: Understood) -> Found | None:
        """The same for what no disk needs to be asked for; of the intents as they were when somebody looked last."""
        spec: StageSpec | None = None
        if stage is Stage.INTENT and self._intents is not None and self._intents[0] == understood:
            spec = self._intents[2]
        elif is_remote(stage, self._config) and stage not in self._pauses and (known := self._known.get((stage, ""))):
            spec = known.spec
        return None if spec is None else Found(spec, spec.placement.cpus)

    def where(self, what: str) -> Path:
        """The folder that is looked into for a stage, or for what else needs models."""
        return paths.config_files()[-1].parent if what == Stage.INTENT else self._store.models_dir

    def supervisor(self, found: Found) -> Supervisor:
        """Of what was found. Asks no disk."""
        spec, cpus = found.spec, found.cpus
        made = self._made.get(key := (spec.stage, spec.engine, spec.model, cpus))
        if made is None or made[0] is not spec:
            placed = replace(spec, placement=msgspec.structs.replace(spec.placement, cpus=cpus))
            made = self._made[key] = spec, self._make(placed)
        return made[1]

    # --- servers that fail ------------------------------------------------------------------------------------------
    def begin_pause(self, failed: Supervisor, error: StageError) -> bool:
        """A remote stage that has failed is left alone for a while; False for one that is none. What is found next is
        for its place."""
        stage = failed.spec.stage
        if self.is_local(failed):
            return False
        log.warning("%s: %s", stage, error.message)
        self._pauses.begin(stage, error)
        return True

    def is_local(self, supervisor: Supervisor) -> bool:
        return supervisor.engine not in REMOTE

    def away(self, local: Supervisor) -> StageError | None:
        """Why a local stage has the place of a remote one; None for one that has its own, or is remote."""
        stage = local.spec.stage
        return self._pauses.why.get(stage) if is_remote(stage, self._config) and local.engine not in REMOTE else None

    def note(self, stage: Stage, error: Exception) -> None:
        """Of work outside a query: a server that has failed is left alone for a while."""
        if isinstance(error, RemoteFailed):
            self._pauses.begin(stage, error)

    def _config_now(self, stage: Stage, alive: Alive) -> Config:
        """With a local engine while the server of the stage is left alone, if there is one."""
        fallback = is_remote(stage, self._config) and getattr(self._config.stage(stage), "fallback", False)
        if fallback and stage in self._pauses:
            try:
                return local_config(stage, self._config, self._store, alive)
            except (ModelError, UsageError) as error:
                log.info("%s: nothing takes the server's place: %s", stage, error.message)
        return self._config

    def check_small(self, alive: Alive) -> None:
        """Says now what is wrong with `stages.llm.small_model`, not when the machine is pressed already. Raises
        `UsageError` for what is no model of this stage."""
        self._small(alive)

    # --- the LLM under pressure -------------------------------------------------------------------------------------
    def _pressed(self, own: StageSpec, alive: Alive) -> tuple[StageSpec, tuple[int, ...]]:
        """Another model, or fewer CPUs, when the level asks for it."""
        level, llm = self._level(), self._config.stages.llm
        if level == "normal":
            return own, own.placement.cpus
        small, w4 = self._small(alive), self._w4(own, alive)
        configured = Configured(
            prefill_chunk=llm.prefill_chunk,
            max_new_tokens=llm.max_new_tokens,
            threads=own.threads,
            cpus=tuple(cpu for cpu in usable_cpus() if cpu.number in own.placement.cpus),
        )
        # of every urgency the same: see `elastic`
        wanted = effort("normal", level, configured, Available(small=small is not None, w4=w4 is not None))
        return {"small": small, "w4": w4, "configured": own}[wanted.model] or own, wanted.cpus

    def _small(self, alive: Alive) -> StageSpec | None:
        name = self._config.stages.llm.small_model
        return self._other(name, "stages.llm.small_model", alive) if name else None

    def _w4(self, own: StageSpec, alive: Alive) -> StageSpec | None:
        """The same model with 4-bit weights, when it is installed and smaller."""
        base = own.model[:-3] if own.model.endswith(_BITS) else own.model
        if base + "-w4" == own.model or not self._stamp(base + "-w4"):
            return None
        found = None
        with contextlib.suppress(UsageError):  # somebody else's, by the same name
            found = self._other(base + "-w4", "the variant with 4-bit weights", alive)
        if found is None or found.kv_bytes != own.kv_bytes:
            return None
        return found if found.weight_bytes < own.weight_bytes else None

    def _other(self, name: str, what: str, alive: Alive) -> StageSpec | None:
        """None for one that cannot be used."""
        stamp, known = self._stamp(name), self._known.get((Stage.LLM, name))
        if known is not None and known.stamp == stamp:
            return known.spec
        llm = msgspec.structs.replace(self._config.stages.llm, model=name)
        stages = msgspec.structs.replace(self._config.stages, llm=llm)
        try:
            config = local_config(Stage.LLM, msgspec.structs.replace(self._config, stages=stages), self._store, alive)
            return self._spec(Stage.LLM, config, Understood(), alive)
        except ModelError as error:
            log.warning("%s: %s; it is not used", what, error.message)
            self._known[Stage.LLM, name] = _Known(stamp, None)
            return None

    # --- models that are replaced -----------------------------------------------------------------------------------
    def _spec(self, stage: Stage, config: Config, understood: Understood, alive: Alive) -> StageSpec:
        """Made again when a file of the installed model is another one than before; the same one otherwise. An engine
        that notices it by itself ("model-replaced") fails its query alone: the next one gets a new worker here."""
        if stage is Stage.INTENT:
            return self._intent_spec(config, understood)
        name: str = "" if is_remote(stage, config) else getattr(config.stage(stage), "model", "")
        stamp, known = self._stamp(name) if name else (), self._known.get((stage, name))
        if known is not None and known.spec is not None and known.stamp == stamp and (stamp or not name):
            return known.spec
        spec = stage_spec(stage, config, self._store, alive=alive)
        # only its manifest is another one: the store notes new times in it
        if known is not None and known.spec is not None and _weights(known.stamp) == _weights(stamp):
            spec = known.spec
        # read before the spec was made: what is replaced meanwhile is noticed the next time
        self._known[stage, name] = _Known(stamp, spec)
        return spec

    def _intent_spec(self, config: Config, wanted: Understood) -> StageSpec:
        """Another one, and with it a new worker, whenever other intents are to be recognised, or the user's own
        sentences are other files than before."""
        stamp = sentences_stamp()  # first: what is written meanwhile is noticed the next time
        if self._intents is None or self._intents[:2] != (wanted, stamp):
            self._intents = wanted, stamp, stage_spec(Stage.INTENT, config, self._store, wanted)
        return self._intents[2]

    def _stamp(self, name: str) -> Stamp:
        """Takes a tenth of a millisecond."""
        try:
            tree = os.walk(self._store.path(name))
        except UsageError:
            return ()
        return stamp_of(os.path.join(folder, file) for folder, _, files in tree for file in files)


def _weights(stamp: Stamp) -> Stamp:
    return tuple(one for one in stamp if os.path.basename(one[0]) != manifest.FILE_NAME)
