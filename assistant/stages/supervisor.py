"""Keeps one stage: its settings, its worker, what it costs. What the memory orchestrator loads and unloads.

Decides when a start is tried again; the orchestrator decides whether there is memory for it.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assistant.errors import StageDied, StageError, StageStartTimeout
from assistant.memory_orchestrator.calibration import Calibration
from assistant.memory_orchestrator.estimate import estimate, without_kv
from assistant.memory_orchestrator.policy import Need
from assistant.memory_orchestrator.probe import Usage
from assistant.messages import Emit, LlmDone, Stage, StageOutput, StageRequest
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.fork_client import ForkServer
from assistant.stages.process import Worker, WorkerState
from assistant.stages.registry import engine_path

log = logging.getLogger(__name__)

_SLOWEST_DISK = 5e6
"""Bytes per second of reading and writing in turns that a start must be able to live with."""


@dataclass(frozen=True, slots=True)
class StageSpec:
    """What a stage is made of; from the configuration and the model store."""

    stage: Stage
    engine: str
    model: str
    model_dir: Path
    digest: str
    weight_bytes: int
    cache_dir: Path
    threads: int
    start_timeout_s: float
    """Grows with the weights: see `start_deadline_s`."""
    step_timeout_s: float
    kv_bytes: int = 0
    """Of all key-value slots, full."""
    kv_token_bytes: int = 0
    """Of one token."""
    options: Mapping[str, Any] | None = None

    def engine_config(self, *, distrust_cache: bool = False) -> EngineConfig:
        return EngineConfig(
            model=self.model,
            model_dir=self.model_dir,
            digest=self.digest,
            cache_dir=self.cache_dir,
            threads=self.threads,
            options=dict(self.options or {}),
            distrust_cache=distrust_cache,
        )

    @property
    def start_deadline_s(self) -> float:
        """A first start reads all weights and writes them anew, on a disk that may be an SD card."""
        return self.start_timeout_s + self.weight_bytes / _SLOWEST_DISK

    @property
    def calibration_key(self) -> str:
        """Everything that changes what a stage holds."""
        options = ",".join(f"{key}={value}" for key, value in sorted((self.options or {}).items()))
        return f"{self.engine}/{self.model}/{self.digest[:16]}/t{self.threads}/{options}"


class Supervisor:
    """One stage. Satisfies the orchestrator's `Loadable`."""

    def __init__(
        self,
        spec: StageSpec,
        server: ForkServer,
        calibration: Calibration,
        emit: Emit = lambda name, data: None,
        path: str | None = None,
    ) -> None:
        """`path`: `module:Class` of an engine that is not in the registry."""
        self.spec = spec
        self.load_ms = 0.0
        """From the request to a loaded engine: fork, import, load."""
        self.run_ms = 0.0
        self._tokens = 0
        """Most tokens in one request since the load."""
        self._worked = False
        self._info: EngineInfo | None = None
        self._path = path or engine_path(spec.stage, spec.engine)
        self._server = server
        self._calibration = calibration
        self._emit = emit
        self._worker: Worker | None = None

    # --- Loadable ---------------------------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        return self.spec.stage.value

    @property
    def engine(self) -> str:
        return self.spec.engine

    @property
    def model(self) -> str:
        return self.spec.model

    @property
    def pid(self) -> int:
        worker = self._worker
        return worker.pid if worker is not None and worker.alive else 0

    def need(self) -> Need:
        return estimate(
            self.name,
            self.spec.engine,
            self.spec.weight_bytes,
            self.spec.kv_bytes,
            self._calibration.peak(self.spec.calibration_key),
        )

    def settle(self, peak: Usage) -> None:
        """Learns from loads that worked: one that was broken off, or that made derived files, says nothing of the
        next."""
        if self._worked and self._info is not None and not self._info.made_derived:
            usage = without_kv(peak, self._tokens * self.spec.kv_token_bytes)
            self._calibration.learn(self.spec.calibration_key, usage, self._info.derived)
        self._tokens, self._worked, self._info = 0, False, None

    async def load(self) -> None:
        """Forks, imports, loads. A start that crashed or hung is tried once more, without trusting its cache.

        Raises what the engine raised, `StageStartTimeout`, or `StageDied`.
        """
        started = time.monotonic()
        self._emit("stage-load-start", {"stage": self.name, "engine": self.engine, "model": self.model})
        try:
            await self._start(distrust_cache=False)
        except (StageDied, StageStartTimeout) as error:
            log.warning("%s; starting it once more", error.message)
            await self._start(distrust_cache=True)
        self.load_ms = (time.monotonic() - started) * 1000
        self._emit("stage-load-end", {"stage": self.name, "load_ms": round(self.load_ms, 1)})

    async def unload(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop()

    def reset_figures(self) -> None:
        """At the start of a query."""
        self.load_ms = self.run_ms = 0.0

    # --- work -------------------------------------------------------------------------------------------------------
    async def _start(self, *, distrust_cache: bool) -> None:
        with contextlib.suppress(OSError):  # the engine says what it cannot do without it
            self.spec.cache_dir.mkdir(parents=True, exist_ok=True)
        worker = Worker(self.spec.stage, self._server)
        self._worker = worker
        try:
            await worker.prepare(self._path, self.spec.start_timeout_s)
            config = self.spec.engine_config(distrust_cache=distrust_cache)
            self._info, _ = await worker.load(config, self.spec.start_deadline_s)
        except BaseException:
            self._worker = None
            await worker.stop()
            raise

    async def run(self, request: StageRequest) -> AsyncGenerator[StageOutput]:
        """One request, inside a lease. Raises `StageError` and what the engine raises."""
        if self._worker is None or self._worker.state is not WorkerState.READY:
            raise StageError(f"{self.name} is not loaded", stage=self.name)
        started = time.monotonic()
        stream = self._worker.run(request, self.spec.step_timeout_s)
        try:
            async for body in stream:
                if isinstance(body, LlmDone):
                    self._tokens = max(self._tokens, body.prompt_tokens + body.new_tokens)
                yield body
            self._worked = True
        finally:
            await stream.aclose()
            self.run_ms = (time.monotonic() - started) * 1000
