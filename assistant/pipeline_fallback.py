"""What becomes of a query whose remote stage fails: a local one takes its place, and the query goes on.

It is decided here and not below, because a local engine needs memory that only a lease gives: the remote one's lease
must end before the local one's begins, or two halves of the ledger would wait for each other. So whoever works inside
a lease does it in a function that can be called again. Imports `errors` and `pipeline_run`; leases nothing itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from assistant.errors import StageError
from assistant.messages import FallbackFor, Stage
from assistant.pipeline_run import Run
from assistant.stages.supervisor import Supervisor

T = TypeVar("T")
Instead = Callable[[Supervisor, StageError], Awaitable[Supervisor | None]]
"""Is told which stage failed and how; gives the local one for its place, None where there is none."""

Away = Callable[[Supervisor], StageError | None]
"""Of a local stage: why the server whose place it has is left alone; None when there is none, or it is not."""


async def nothing_instead(failed: Supervisor, error: StageError) -> Supervisor | None:
    return None


class Fallback:
    def __init__(self, instead: Instead, away: Away = lambda local: None) -> None:
        self._instead, self._away = instead, away

    def used(self, run: Run, stages: Sequence[Stage]) -> None:
        """The query uses them now: it is told, once each, that one has the place of a server that failed before."""
        for stage in stages:
            if stage not in run.replaced and (why := self._away(run.parts[stage])) is not None:
                self._tell(run, stage, why, "pause")

    async def through(self, run: Run, work: Callable[[], Awaitable[T]]) -> T:
        """`work`, once more for each remote stage that fails in it. Raises what it raises where nothing can take the
        place of what failed."""
        while True:
            try:
                return await work()
            except StageError as error:
                await self.take(run, error)

    async def take(self, run: Run, error: StageError) -> None:
        """Puts the local stage in the place of the one that failed, or raises `error`. What an LLM has told is not
        taken back: its query fails."""
        stage = next((stage for stage in run.parts if stage.value == error.stage), None)
        local = await self._instead(run.parts[stage], error) if stage is not None else None
        if stage is None or local is None:
            raise error
        if stage is Stage.LLM and run.written:
            self._tell(run, stage, error, "next")
            raise error
        local.reset_figures()
        run.parts[stage] = local
        self._tell(run, stage, error, "query")

    def _tell(self, run: Run, stage: Stage, why: StageError, what: FallbackFor) -> None:
        run.replaced.add(stage)
        told = {"stage": stage.value, "for": what, "reason": why.code, "message": why.message}
        run.tell("stage-fallback", **told)
