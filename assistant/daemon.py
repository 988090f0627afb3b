"""The composition root: builds the parts from the settings, starts them, stops them in reverse order.

Imports no engine library: those live in workers.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Self

from assistant import paths, skills
from assistant.config import Config
from assistant.errors import ConfigError
from assistant.machine import physical_cores
from assistant.memory_orchestrator.calibration import Calibration
from assistant.memory_orchestrator.estimate import kv_bytes
from assistant.memory_orchestrator.ledger import LedgerWriter, remove_stale, segment_name
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.messages import STAGE_ORDER, Emit, Sampling, Stage
from assistant.model_store.store import ModelStore
from assistant.pipeline import LlmSettings, Pipeline
from assistant.query import Answer, Query
from assistant.stages.fork_client import ForkServer
from assistant.stages.registry import engine_path
from assistant.stages.supervisor import StageSpec, Supervisor
from assistant.tasks import uninterrupted


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
        """`owner` names the ledger: "daemon", or this process when empty."""
        self._config = config
        self._owner = owner or str(os.getpid())
        self._store = store or ModelStore.default()
        self._emit = emit
        self._server = ForkServer()
        self._calibration = Calibration(paths.state_dir() / "measured.json")
        self._supervisors: dict[Stage, Supervisor] = {}
        self._memory: MemoryOrchestrator
        self._pipeline: Pipeline

    async def __aenter__(self) -> Self:
        config = self._config
        for stage in STAGE_ORDER:
            engine_path(stage, config.stage(stage).engine)
        # first, because everything waits for it: its interpreter starts while the rest is built
        self._server.start()
        try:
            remove_stale()
            self._memory = MemoryOrchestrator(
                ledger=LedgerWriter(segment_name(self._owner)),
                own_pids=lambda: (os.getpid(), self._server.pid),
                budget_mib=config.memory.budget_mib,
                margin_mib=config.memory.margin_mib,
                emit=self._emit,
            )
            self._memory.start()
        except BaseException:
            await self._server.close()
            raise
        self._pipeline = Pipeline(
            memory=self._memory, stages=self._supervisor, llm=_llm_settings(config), emit=self._emit
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops everything that was started, a cancel in between notwithstanding."""
        await uninterrupted(self._close())

    async def _close(self) -> None:
        try:
            await self._memory.close()
        finally:
            await self._server.close()

    async def answer(self, query: Query) -> Answer:
        return await self._pipeline.answer(query)

    def _supervisor(self, stage: Stage) -> Supervisor:
        """Raises `ModelError` when the stage's model cannot be used."""
        if stage not in self._supervisors:
            spec = stage_spec(stage, self._config, self._store)
            self._supervisors[stage] = Supervisor(spec, self._server, self._calibration, self._emit)
        return self._supervisors[stage]


def stage_spec(stage: Stage, config: Config, store: ModelStore) -> StageSpec:
    """What the settings and the store say of a stage.

    Raises `ModelError`, or `ConfigError` for a model of another stage.
    """
    settings: Any = config.stage(stage)
    engine: str = settings.engine
    common = {
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
    kv_token = 0
    match stage:
        case Stage.LLM:
            options = {"context_tokens": settings.context_tokens, "prefill_chunk": settings.prefill_chunk}
            kv_token = kv_bytes(model.shape or {}, 1, 1)
        case Stage.ASR if engine == "whisper" and settings.language:
            options = {"language": settings.language}
        case Stage.TTS if settings.length_scale != 1:
            options = {"length_scale": settings.length_scale}
    return StageSpec(
        **common, model=model.name, model_dir=model.path, digest=model.digest, weight_bytes=model.bytes,
        threads=settings.threads or physical_cores(), kv_token_bytes=kv_token, options=options,
        # one conversation at a time has a slot, whatever stages.llm.slots says, until there are more of them
        kv_bytes=kv_token * (settings.context_tokens if stage is Stage.LLM else 0),
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
