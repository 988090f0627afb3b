"""What a query will need, made ready while somebody speaks: stages are loaded, and the LLM reads the beginning of its
prompt. Imports the orchestrator and the pipeline's parts. Whatever fails here fails no query.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

from assistant.errors import AssistantError
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.messages import LlmRequest, Stage
from assistant.pipeline_run import Run
from assistant.stages.registry import REMOTE
from assistant.tasks import uninterrupted

log = logging.getLogger(__name__)

_WORDS = 3
"""So many new words of the question are worth reading ahead; a token costs about as much as in the prompt itself."""

AheadRequest = Callable[[Run, str], LlmRequest]
"""Of the beginning of the prompt, as far as the question is known."""


class Reader:
    """Has the LLM read what is certain of the prompt: what stands before the question, then its stable words."""

    def __init__(self, read: Callable[[str], asyncio.Task[None]] | None) -> None:
        """`read` begins one piece of reading; None: nothing is read."""
        self._read = read
        self._last: list[str] = []
        self._done = 0
        self._task: asyncio.Task[None] | None = None

    def hear(self, text: str) -> None:
        """The words so far, of which the last ones may still change: those that were the same twice are taken."""
        words = text.split()
        same = 0
        for word, before in zip(words, self._last, strict=False):
            if word != before:
                break
            same += 1
        self._last = words
        if same >= self._done + _WORDS:
            self._begin(" ".join(words[:same]), same)

    def begin(self) -> None:
        """With nothing of the question."""
        self._begin("", 0)

    def _begin(self, text: str, words: int) -> None:
        """Unless it still reads: what comes next contains it."""
        if self._read is not None and (self._task is None or self._task.done()):
            self._done, self._task = words, self._read(text)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await uninterrupted(asyncio.gather(self._task, return_exceptions=True))


class Ahead:
    def __init__(self, memory: MemoryOrchestrator, request: AheadRequest) -> None:
        self._memory, self._request = memory, request

    def load(self, run: Run, *stages: Stage) -> None:
        """As far as the ledger admits, and in the background."""
        for stage in stages:
            if stage in run.parts:
                self._memory.prefetch(run.parts[stage])

    def voice(self, run: Run) -> None:
        """Once it is known what was said: before, it would lie beside the recogniser at work, which is when a query
        holds the most. Where it must go again for the LLM, it does not come now."""
        if Stage.LLM not in run.parts or self._memory.fit_together(run.parts[Stage.LLM], run.parts[Stage.TTS]):
            self.load(run, Stage.TTS)

    @asynccontextmanager
    async def reading(self, run: Run) -> AsyncIterator[Reader]:
        """The LLM is loaded and reads; inside, the words of the question are told to the reader."""
        self.load(run, Stage.LLM)
        here = Stage.LLM in run.parts and run.parts[Stage.LLM].engine not in REMOTE
        reads = here and self._memory.holdings.relief.load_ahead
        reader = Reader((lambda text: asyncio.create_task(self._read(run, text))) if reads else None)
        reader.begin()
        try:
            yield reader
        finally:
            await reader.close()

    async def _read(self, run: Run, text: str) -> None:
        """Where the LLM is loaded or about to be; others who wait for it come first."""
        llm = run.parts[Stage.LLM]
        try:
            async with (
                self._memory.lease(llm, waits=False),
                aclosing(llm.run(self._request(run, text))) as results,
            ):
                async for _ in results:
                    pass
        except AssistantError as error:
            log.info("the LLM did not read ahead: %s", error.message)
