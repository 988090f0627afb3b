"""The composition root: builds the parts from the settings, starts them, stops them in reverse order.

Imports no engine library: those live in workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from types import TracebackType
from typing import Any, Self

import msgspec

from assistant import __version__, paths, skills
from assistant.config import Config
from assistant.errors import ConfigError, ModelError
from assistant.machine import usable_cpus
from assistant.memory_orchestrator.calibration import Calibration
from assistant.memory_orchestrator.estimate import KvHome, kv_bytes, slot_tokens
from assistant.memory_orchestrator.housekeeper import Housekeeper
from assistant.memory_orchestrator.ledger import LedgerWriter, remove_stale, segment_name
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.memory_orchestrator.pressure import Relief
from assistant.memory_orchestrator.sensors import Sensors
from assistant.memory_orchestrator.view import memory_sums, stage_rows
from assistant.messages import STAGE_ORDER, Emit, Sampling, Stage, Status
from assistant.model_store.store import ModelStore
from assistant.pipeline import LlmSettings, Pipeline
from assistant.query import Answer, Query
from assistant.stages import kv_files
from assistant.stages.fork_client import ForkServer
from assistant.stages.placement import placement, threads_for
from assistant.stages.registry import engine_path
from assistant.stages.supervisor import StageSpec, Supervisor
from assistant.tasks import uninterrupted

log = logging.getLogger(__name__)

_LEAVE_S = 1.0
"""That workers get to leave by themselves."""


class Assistant:
    """`async with Assistant(config) as assistant: await assistant.answer(query)`."""

    def __init__(
        self,
        config: Config,
        *,
        owner: str = "",
        store: ModelStore | None = None,
        emit: Emit = lambda name, data: None,
    ) -> None:
        """`owner` names the ledger: "daemon", or this process when empty, which then keeps nothing loaded for a next
        query."""
        self._config = config
        self._owner = owner or str(os.getpid())
        self._keep_alive_s = config.memory.keep_alive_s if owner else 0
        self._store = store or ModelStore.default()
        self._emit = emit
        self._server = ForkServer()
        self._calibration = Calibration(paths.state_dir() / "measured.json")
        self._supervisors: dict[tuple[Stage, str], Supervisor] = {}
        self._small = _with_small_model(config)
        """The settings under pressure; None = as always."""
        self._started = time.monotonic()
        self._running = self._answered = 0
        self.memory: MemoryOrchestrator
        """There while it runs."""
        self._housekeeper: Housekeeper
        self._pipeline: Pipeline

    async def __aenter__(self) -> Self:
        config = self._config
        for stage in STAGE_ORDER:
            engine_path(stage, config.stage(stage).engine)
        if self._small is not None:
            try:  # known now, not when the machine is pressed already
                stage_spec(Stage.LLM, self._small, self._store)
            except ModelError as error:
                log.warning("stages.llm.small_model: %s; it is not used", error.message)
                self._small = None
        # first, because everything waits for it: its interpreter starts while the rest is built
        self._server.start()
        try:
            remove_stale()
            self.memory = MemoryOrchestrator(
                ledger=LedgerWriter(segment_name(self._owner)),
                own_pids=lambda: (os.getpid(), self._server.pid),
                forking=lambda: self._server.forking,
                budget_mib=config.memory.budget_mib,
                margin_mib=config.memory.margin_mib,
                keep_alive_s=self._keep_alive_s,
                emit=self._emit,
            )
            self._housekeeper = Housekeeper(self.memory.holdings, sense=Sensors().read, emit=self._emit)
            self._housekeeper.start()
        except BaseException:
            await self._server.close()
            raise
        self._pipeline = Pipeline(
            memory=self.memory, stages=self._supervisor, llm=_llm_settings(config), emit=self._emit
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops everything that was started, a cancel in between notwithstanding."""
        await uninterrupted(self._close())

    async def _close(self) -> None:
        try:
            await self._housekeeper.close()
            hurry = asyncio.get_running_loop().call_later(_LEAVE_S, self.end_workers)
            await self.memory.close()
            hurry.cancel()
        finally:
            await self._server.close()

    def end_workers(self) -> None:
        """All of them at once, whatever they do: for an end that must not wait for one that stands still."""
        self._server.kill()

    @property
    def fork_server_pid(self) -> int:
        return self._server.pid

    async def answer(self, query: Query) -> Answer:
        self._tell_needs()
        self._running += 1
        try:
            return await self._pipeline.answer(query)
        finally:
            self._running -= 1
            self._answered += 1

    async def load(self, stage: Stage, keep_alive_s: float | None = None) -> None:
        """Loads a stage and leaves it idle. `keep_alive_s`: of this load; negative = for ever.

        Raises `ModelError`, `MemoryRefused`, or what the engine raised.
        """
        await self.memory.load(self._supervisor(stage), keep_alive_s=keep_alive_s)

    async def unload(self, stage: Stage) -> bool:
        """False when it was not loaded. Raises `BusyNow` when it is in use."""
        return await self.memory.unload(stage.value)

    def status(self) -> Status:
        self._tell_needs()
        view = self.memory.holdings.view()
        return Status(
            version=__version__,
            pid=os.getpid(),
            uptime_s=round(time.monotonic() - self._started, 1),
            state="processing" if self._running else "idle",
            queries=self._answered,
            memory=memory_sums(view),
            pressure=self._housekeeper.pressure.status,
            stages=stage_rows(view, time.monotonic_ns()),
        )

    def _tell_needs(self) -> None:
        """What the whole chain would need decides the mode; a stage whose model is missing needs nothing yet."""
        needs = []
        for stage in STAGE_ORDER:
            with contextlib.suppress(ModelError):
                needs.append(self._supervisor(stage).need())
        self.memory.holdings.figures.expect(needs)

    def _supervisor(self, stage: Stage) -> Supervisor:
        """Raises `ModelError` when the stage's model cannot be used."""
        if stage is Stage.LLM and self._small is not None and self._relief().small_model:
            return self._of(stage, self._small)
        return self._of(stage, self._config)

    def _of(self, stage: Stage, config: Config) -> Supervisor:
        key = stage, getattr(config.stage(stage), "model", "")
        if key not in self._supervisors:
            spec = stage_spec(stage, config, self._store)
            self._supervisors[key] = Supervisor(spec, self._server, self._calibration, self._emit, relief=self._relief)
        return self._supervisors[key]

    def _relief(self) -> Relief:
        return self.memory.holdings.relief


def stage_spec(stage: Stage, config: Config, store: ModelStore) -> StageSpec:
    """What the settings and the store say of a stage.

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
    }
    engine_path(stage, engine)  # an engine that does not exist is told before a model that does not fit it
    if stage is Stage.INTENT:
        understood = {"language": settings.language, "intents": list(skills.handled_intents())}
        return StageSpec(
            **common, model=settings.language, model_dir=paths.data_file(""), digest="", weight_bytes=0, threads=1,
            options=understood,
        )  # fmt: skip
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
            kv_token = kv_bytes(model.shape or {}, 1, 1)
            kv_all = kv_bytes(model.shape or {}, slot_tokens(settings.context_tokens), settings.slots)
            kv_home, kv_dir = kv_files.home_of(settings.kv_cache, kv_all, paths.cache_dir() / engine)
            options = {
                "context_tokens": settings.context_tokens,
                "slots": settings.slots,
                "prefill_chunk": settings.prefill_chunk,
                "attention_mode": settings.attention_mode,
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


def _llm_settings(config: Config) -> LlmSettings:
    llm = config.stages.llm
    return LlmSettings(
        system_prompt=llm.system_prompt,
        max_new_tokens=llm.max_new_tokens,
        sampling=Sampling(
            temperature=llm.temperature,
            top_k=llm.top_k,
            top_p=llm.top_p,
            min_p=llm.min_p,
            repetition_penalty=llm.repetition_penalty,
            seed=None if llm.seed < 0 else llm.seed,
        ),
    )


def _with_small_model(config: Config) -> Config | None:
    name = config.stages.llm.small_model
    if not name:
        return None
    llm = msgspec.structs.replace(config.stages.llm, model=name)
    return msgspec.structs.replace(config, stages=msgspec.structs.replace(config.stages, llm=llm))
