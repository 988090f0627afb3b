"""The stages of a query: looked up before anything else, all at the same time. Imports the orchestrator.

A stage's lookup asks a disk, which may be slow. A query waits for it; but a local command needs no LLM, so it is kept
waiting for the LLM's disk only for a moment. The question that needs the LLM waits on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from assistant.errors import ModelError
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.messages import Stage
from assistant.pipeline_run import Run
from assistant.stages.supervisor import Supervisor

_PATIENCE_S = 0.25

Lookup = Callable[[Stage], Awaitable[Supervisor]]
"""Raises `ModelError` when the stage's model cannot be used."""


class Parts:
    def __init__(self, memory: MemoryOrchestrator, lookup: Lookup) -> None:
        self._memory, self._lookup = memory, lookup

    @asynccontextmanager
    async def of(self, run: Run) -> AsyncIterator[list[Stage]]:
        """What the query will need, in order. A model that is missing, or a voice that can never fit, is told before
        anybody waits for an answer that cannot be spoken; only an LLM is not missed before something needs it.

        Figures start anew: a query that finds a stage loaded has not paid for its load.
        """
        query = run.query
        wanted = [Stage.ASR] if query.pcm is not None or query.live is not None else []
        wanted += [Stage.INTENT, Stage.LLM] if not query.verbatim else []
        wanted += [Stage.TTS] if query.sink is not None else []
        looks = {stage: asyncio.ensure_future(self._lookup(stage)) for stage in wanted}
        try:
            for stage, look in looks.items():
                if stage is Stage.LLM:
                    await self._llm_soon(run, look)
                else:
                    self._take(run, stage, await look)
            if Stage.TTS in run.parts:  # the last one: nobody shall hear of it after the whole answer was written
                self._memory.check_ever(run.parts[Stage.TTS])
            yield [stage for stage in wanted if stage in run.parts or (stage is Stage.LLM and run.no_llm is None)]
        finally:
            for look in looks.values():
                look.cancel()
            await asyncio.gather(*looks.values(), return_exceptions=True)

    async def _llm_soon(self, run: Run, look: asyncio.Future[Supervisor]) -> None:
        run.llm = look
        await asyncio.wait([look], timeout=_PATIENCE_S)
        if look.done():
            try:
                await self.llm(run)
            except ModelError as error:
                run.no_llm = error

    async def llm(self, run: Run) -> None:
        """Waits until it is known. Raises `ModelError` when there is none."""
        if run.no_llm is not None:
            raise run.no_llm
        if run.llm is not None and Stage.LLM not in run.parts:
            self._take(run, Stage.LLM, await asyncio.shield(run.llm))

    def _take(self, run: Run, stage: Stage, supervisor: Supervisor) -> None:
        run.parts[stage] = supervisor
        supervisor.reset_figures()
        self._memory.holdings.watch_anew(supervisor.name)
