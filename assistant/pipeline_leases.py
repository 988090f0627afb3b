"""Loaded stages for a query, for as long as it works with them. Imports the orchestrator and the pipeline's parts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from assistant.errors import MemoryRefused
from assistant.memory_orchestrator.journey import Journey
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.messages import Stage
from assistant.pipeline_fallback import Fallback
from assistant.pipeline_run import Run
from assistant.stages.supervisor import Supervisor


class Leases:
    def __init__(self, memory: MemoryOrchestrator, fallback: Fallback, deadline_s: float) -> None:
        """`deadline_s`: how long one waits for memory that others use."""
        self._memory, self._fallback, self._deadline_s = memory, fallback, deadline_s

    @asynccontextmanager
    async def __call__(self, run: Run, journey: Journey, *which: Stage, waits: bool = True) -> AsyncIterator[None]:
        """What they cost goes into the report, whether they succeeded or not. Raises what `lease` raises. `waits`: for
        memory that others use; who holds a lease already must not."""
        supervisors = [run.parts[stage] for stage in which]
        async with AsyncExitStack() as stack:
            await self._enter(run, stack, supervisors, waits)
            journey.reached(which[-1])
            self._fallback.used(run, which)
            try:
                yield
            finally:
                for supervisor in supervisors:
                    run.add_stage(supervisor, self._memory.holdings.peak_of(supervisor.name))

    async def _enter(self, run: Run, stack: AsyncExitStack, supervisors: list[Supervisor], waits: bool) -> None:
        """A draft takes what is free at once, and waits for nothing before it is an answer."""
        if not (waits and run.gate.is_open):
            try:
                await stack.enter_async_context(self._memory.lease(*supervisors, waits=False))
            except MemoryRefused:
                if not waits:
                    raise
                await run.gate.passed()
            else:
                return
        await stack.enter_async_context(self._memory.lease(*supervisors, deadline_s=self._deadline_s))
