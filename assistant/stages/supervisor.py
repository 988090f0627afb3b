"""Keeps one stage: its settings, its worker, what it costs. What the memory orchestrator loads and unloads.

Decides nothing about memory and nothing about trying again: the orchestrator does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

from assistant import page_cache
from assistant.disk import Disk
from assistant.errors import StageDied, StageError
from assistant.memory_orchestrator.calibration import Calibration
from assistant.memory_orchestrator.estimate import estimate, prepared, without_kv
from assistant.memory_orchestrator.policy import Need
from assistant.memory_orchestrator.pressure import RELIEF, Relief
from assistant.memory_orchestrator.probe import Usage
from assistant.messages import Emit, LlmDone, Progress, StageOutput, StageRequest, Transcript
from assistant.stages import kv_files
from assistant.stages.base import EngineInfo
from assistant.stages.feeding import Recording, recorded
from assistant.stages.fork_client import ForkServer
from assistant.stages.lifecycle import OVER_MEMORY, Rung, WorkerState
from assistant.stages.process import Worker
from assistant.stages.registry import engine_path
from assistant.stages.spec import StageSpec
from assistant.tasks import uninterrupted

log = logging.getLogger(__name__)

_SWEEP_S = 1.0
"""That an unloading waits for a disk which holds keys and values."""


class Supervisor:
    """One stage. Satisfies the orchestrator's `Loadable`."""

    def __init__(
        self,
        spec: StageSpec,
        server: ForkServer,
        calibration: Calibration,
        emit: Emit = lambda name, data: None,
        path: str | None = None,
        relief: Callable[[], Relief] = lambda: RELIEF["normal"],
        noted: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        """`path`: `module:Class` of an engine that is not in the registry. `relief`: what the pressure asks for.
        `noted`: by stage, what its engine noted at its last load; shared by all who take each other's place."""
        self.spec = spec
        self.load_ms = 0.0
        """From the request to a loaded engine: fork, import, load."""
        self.run_ms = 0.0
        """Of all requests since `reset_figures`."""
        self._kv_share = 0.0
        """Most of the room for keys and values that was taken since the load."""
        self._worked = False
        self._info: EngineInfo | None = None
        self._threads = spec.threads
        """Of the engine that is loaded."""
        self._path = path or engine_path(spec.stage, spec.engine)
        self._server = server
        self._calibration = calibration
        self._emit = emit
        self._relief = relief
        self._noted = {} if noted is None else noted
        self._worker: Worker | None = None
        self._ends: set[asyncio.Task[Rung]] = set()
        """Of workers that nobody uses any more, as long as they last."""
        self._at_work = asyncio.Lock()
        self._disk = Disk(_SWEEP_S)
        self._reading: threading.Thread | None = None

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

    @property
    def streaming(self) -> bool:
        """Of a recogniser that has been loaded: whether `run` takes `more`."""
        return self._info is not None and self._info.streaming

    @property
    def fresh(self) -> bool:
        return self._threads == self._threads_now()

    @property
    def weight_files_bytes(self) -> int:
        return self.spec.weight_bytes

    def _threads_now(self) -> int:
        return self._relief().thread_count(self.spec.threads)

    def need(self, *, anew: bool = False) -> Need:
        measured = None if anew else self._calibration.peak(*self._alike())
        spec = self.spec
        return estimate(self.name, spec.engine, spec.weight_bytes, spec.kv_bytes, measured, spec.kv_home)

    def _alike(self) -> list[str]:
        """Keys of what was measured: with the threads of now, else with others, which change little."""
        threads = [self._threads_now(), self.spec.threads, *range(self.spec.threads - 1, 0, -1)]
        return [self.spec.calibration_key(number) for number in threads]

    def prepared_need(self) -> Need:
        return prepared(self.name, self.spec.engine)

    def settle(self, peak: Usage) -> bool:
        """Learns from loads that worked: one that was broken off, or that made derived files, says nothing of the
        next."""
        if not self._worked or self._info is None:
            return False
        if not self._info.exceptional:
            usage = without_kv(peak, int(self.spec.kv_bytes * self._kv_share), self.spec.kv_home)
            self._calibration.learn(self.spec.calibration_key(self._threads), usage, self._info.derived)
        return True

    def read_ahead(self) -> None:
        """Those laid out for this machine, where there are any; in a thread, one at a time."""
        folder = self._calibration.derived(*self._alike()) or self.spec.model_dir
        if folder.parts and (self._reading is None or not self._reading.is_alive()):  # else it has no files
            self._reading = threading.Thread(target=page_cache.read_ahead, args=(folder,), daemon=True)
            self._reading.start()

    async def prepare(self) -> None:
        """Raises `StageStartTimeout`, `StageDied` or what importing the engine raised."""
        started = time.monotonic()
        worker = Worker(self.spec.stage, self._server)
        self._worker = worker
        try:
            await worker.prepare(self._path, self.spec.start_timeout_s, self.spec.placement)
            if self._worker is not worker:
                raise StageError(f"{self.name} was unloaded while it started", stage=self.name)
        except BaseException:
            await self._end(worker)
            raise
        self.load_ms += (time.monotonic() - started) * 1000

    async def _end(self, worker: Worker) -> None:
        """Of one that failed to start, or is not wanted any more; an `unload` meanwhile waits for the same end."""
        if self._worker is worker:
            self._worker = None
        end = asyncio.create_task(worker.stop())
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)
        await uninterrupted(end)

    async def load(self, *, again: bool = False) -> None:
        """Forks and imports unless `prepare` has; loads. Raises what the engine raised, `StageStartTimeout`, or
        `StageDied`."""
        self._emit("stage-load-start", {"stage": self.name, "engine": self.engine, "model": self.model})
        if self.pid == 0:
            self.load_ms = 0.0
            await self.unload()
            await self.prepare()
        started = time.monotonic()
        worker = self._worker
        assert worker is not None
        self._kv_share, self._worked, self._threads = 0.0, False, self._threads_now()
        try:
            config = self.spec.engine_config(self._threads, distrust_cache=again)
            self._info, _ = await worker.load(config, self.spec.start_deadline_s)
        except BaseException:
            await self._end(worker)
            raise
        self.load_ms += (time.monotonic() - started) * 1000
        for note in self._info.notes:
            if note not in self._noted.get(self.name, ()):  # once, and not at each load
                log.warning("%s: %s", self.name, note)
        self._noted[self.name] = self._info.notes
        self._emit("stage-load-end", {"stage": self.name, "load_ms": round(self.load_ms, 1)})

    async def unload(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop()
        await asyncio.gather(*self._ends, return_exceptions=True)
        if folder := (self.spec.options or {}).get("kv_dir"):
            with contextlib.suppress(OSError):  # the next worker sweeps, too
                await self._disk.ask("sweep", lambda alive: kv_files.sweep(Path(folder)))

    def kill(self, why: str) -> None:
        if self._worker is not None:
            self._worker.kill(why)

    def reset_figures(self) -> None:
        """At the start of a query."""
        self.load_ms = self.run_ms = 0.0

    # --- work -------------------------------------------------------------------------------------------------------
    async def run(self, request: StageRequest, more: AsyncIterator[bytes] | None = None) -> AsyncGenerator[StageOutput]:
        """One request, inside a lease; a second one waits for the first. `more`: the sound of a live `AsrRequest` as it
        comes (s16le mono 16 kHz); read here alone, never closed. Raises `StageError`, and what engine or `more` raise.
        """
        async with self._at_work, recorded(more) as sound, aclosing(self._run(request, sound)) as results:
            async for body in results:
                yield body

    async def _run(self, request: StageRequest, sound: Recording | None) -> AsyncGenerator[StageOutput]:
        """A worker that dies before it has told anything is started again, once, and hears all of the sound: it may
        have been dead already, and nobody had noticed. What may still change is not told yet."""
        told = False
        if self._worker is not None and self._worker.state is WorkerState.FAILED:
            await self.load()  # the cancel of the last request was its end
        try:
            async with aclosing(self._once(request, sound)) as results:
                async for body in results:
                    told = told or not _provisional(body)
                    yield body
            return
        except StageDied as error:
            if told or error.code == OVER_MEMORY:
                raise
            log.warning("%s; it is started again", error.message)
            self._emit("stage-restart", {"stage": self.name, "code": error.code})
        await self.load()
        async with aclosing(self._once(request, sound)) as results:
            async for body in results:
                yield body

    async def _once(self, request: StageRequest, sound: Recording | None) -> AsyncGenerator[StageOutput]:
        if self._worker is None or self._worker.state is not WorkerState.READY:
            raise StageError(f"{self.name} is not loaded", stage=self.name)
        started = time.monotonic()
        more = sound.chunks() if sound is not None else None
        stream = self._worker.run(request, self.spec.step_timeout_s, more)
        try:
            async for body in stream:
                if isinstance(body, LlmDone):
                    self._kv_share = max(self._kv_share, body.kv_share)
                yield body
            self._worked = True
        finally:
            await stream.aclose()
            self.run_ms += (time.monotonic() - started) * 1000


def _provisional(body: StageOutput) -> bool:
    return isinstance(body, Progress) or (isinstance(body, Transcript) and not body.final)
