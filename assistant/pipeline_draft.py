"""The answer to what was heard so far, begun while nobody knows whether its speaker goes on.

It runs the very steps that an answer takes, behind a closed `Gate`: nothing is told, played or carried out, and nothing
is waited for that others hold. When the speaker had finished, the gate opens and the draft is the answer; when he goes
on, it is dropped, and the query is as it was before. A draft that fails in the meantime is dropped, too. Imports the
pipeline's parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from assistant.memory_orchestrator.journey import Journey
from assistant.pipeline_gate import Gate
from assistant.pipeline_run import Run
from assistant.tasks import uninterrupted

Respond = Callable[[], Coroutine[Any, Any, bool]]
"""Answers the run's transcript; whether a local command was handled."""


class Draft:
    def __init__(self, run: Run, journey: Journey, respond: Respond, *, allowed: Callable[[], bool]) -> None:
        """`allowed`: whether there may be one now; otherwise `begin` does nothing."""
        self._run, self._journey, self._respond, self._allowed = run, journey, respond, allowed
        self._task: asyncio.Task[bool] | None = None
        self._left: list[str] = []
        self.text = ""
        """What it answers; empty = there is none."""

    def begin(self, text: str) -> None:
        """In place of none."""
        if self._task is not None or not text or not self._allowed():
            return
        self._left = self._journey.left
        self._run.gate, self._run.transcript, self.text = Gate(), text, text
        self._task = asyncio.create_task(self._respond())

    async def drop(self) -> None:
        """Leaves no trace of it in the query. A cancel of the caller does not interrupt that."""
        task, self._task, self.text = self._task, None, ""
        if task is None:
            return
        task.cancel()
        try:
            await uninterrupted(asyncio.gather(task, return_exceptions=True))
        finally:  # a cancel of the caller is raised only now
            self._run.unanswered()
            self._journey.again(self._left)

    async def settle(self, text: str) -> bool | None:
        """Of the final transcript: what the draft answers, if that is what it was made of; None where it has to be
        answered anew. Raises what answering raises."""
        task = self._task
        if task is None or text != self.text or _failed(task):
            await self.drop()
            return None
        self._task = None
        try:
            self._run.gate.open()
            return await task
        finally:
            if not task.done():  # the sink did not take what was kept back
                task.cancel()
                await uninterrupted(asyncio.gather(task, return_exceptions=True))


def _failed(task: asyncio.Task[bool]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
