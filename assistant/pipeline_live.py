"""Somebody is still speaking: his words as they come, or guessed at his pauses. Imports the pipeline's parts.

An engine that streams is fed from the beginning, another one begins at a pause with what was said so far. Either way
the answer is drafted at a pause, and dropped when he goes on. Leases nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from contextlib import aclosing
from dataclasses import dataclass, field

from assistant.audio import vad
from assistant.errors import NoSpeech, StageError
from assistant.messages import AsrRequest, Stage, Transcript
from assistant.pipeline_ahead import Reader
from assistant.pipeline_draft import Draft
from assistant.pipeline_run import Run
from assistant.pipeline_utterance import Utterance
from assistant.pipeline_words import Heard, question, recognised_in
from assistant.tasks import in_own_thread, uninterrupted
from assistant.wake_phrase import without_wake_phrase


@dataclass(slots=True)
class Hearing:
    """One utterance, with all that goes on while it is spoken."""

    run: Run
    wake_phrase: str
    utterance: Utterance
    draft: Draft
    reader: Reader
    latest: Heard = field(default_factory=Heard)
    """Of an engine that streams."""
    spoken: bool = False
    """Whether there was speech in what that engine was given."""
    _since: float = 0.0
    """When the guess was made that nobody goes on (monotonic seconds)."""

    def words(self, heard: Heard) -> str:
        """Without those that woke us."""
        return without_wake_phrase(heard.text, self.wake_phrase)

    def suppose(self, heard: Heard) -> None:
        """That this was all."""
        with contextlib.suppress(NoSpeech):
            self.draft.begin(question(heard, self.wake_phrase))

    def guess(self) -> None:
        self._since = time.monotonic()

    def known(self, *, hit: bool) -> None:
        """Whether the guess was right."""
        ms = round((time.monotonic() - self._since) * 1000, 1)
        self.run.speculations.append(hit)
        self.run.tell_now("stt-speculation", hit=hit, answer=bool(self.draft.text), ms=ms)


# --- an engine that takes whole recordings ---------------------------------------------------------------------------
async def speculated(hearing: Hearing) -> Heard:
    """At a pause, what was said so far; again, if that was not all."""
    utterance = hearing.utterance
    attempt: asyncio.Task[Heard] | None = None
    said = 0
    try:
        while True:
            if attempt is not None and utterance.resumed > said:
                await _discard(attempt)
                attempt = None
                hearing.known(hit=False)
                await hearing.draft.drop()
            elif utterance.over:
                break
            elif attempt is None and utterance.paused:
                hearing.guess()
                attempt, said = asyncio.create_task(_attempted(hearing)), utterance.resumed
            else:
                await utterance.turn()
        if attempt is not None and _failed(attempt):
            await _discard(attempt)
            attempt = None
            hearing.known(hit=False)
        if attempt is not None:
            hearing.known(hit=True)
            return await attempt
        return await recognised_in(hearing.run, utterance.pcm) if utterance.speech_s else Heard()
    finally:
        if attempt is not None:
            await _discard(attempt)


def _failed(attempt: asyncio.Task[Heard]) -> bool:
    return attempt.done() and isinstance(attempt.exception(), StageError)


async def _attempted(hearing: Hearing) -> Heard:
    heard = await recognised_in(hearing.run, hearing.utterance.pcm)
    hearing.suppose(heard)
    return heard


async def _discard(attempt: asyncio.Task[Heard]) -> None:
    """Ends it, and looks at what it raised, which is nobody's concern any more."""
    attempt.cancel()
    await uninterrupted(asyncio.gather(attempt, return_exceptions=True))


# --- an engine that streams ------------------------------------------------------------------------------------------
async def streamed(hearing: Hearing) -> Heard:
    """As the sound comes; at a pause the words so far are taken for all of it."""
    run, utterance = hearing.run, hearing.utterance
    hearing.spoken = False
    watch = asyncio.create_task(_drafted_at_pauses(hearing))
    heard = hearing.latest = Heard()
    request = AsrRequest(pcm=b"", live=True)
    try:
        async with aclosing(run.parts[Stage.ASR].run(request, utterance.sound())) as results:
            async for out in results:
                if not isinstance(out, Transcript):
                    continue
                heard = hearing.latest = Heard(out.text.strip(), out.confidence)
                text = hearing.words(heard)
                if text and not out.final:
                    run.tell_now("stt-partial", text=text, segment_end=out.segment_end)
                    hearing.reader.hear(text)
                utterance.look()
    finally:
        watch.cancel()
        await uninterrupted(asyncio.gather(watch, return_exceptions=True))
    if hearing.draft.text:
        hearing.known(hit=hearing.draft.text == hearing.words(heard))
    return heard if heard.text and await _spoken(hearing) else Heard()


async def _spoken(hearing: Hearing) -> bool:
    """Such an engine invents words over noise, and is sure of them."""
    if not hearing.spoken:
        spans = await in_own_thread(functools.partial(vad.speech_spans, hearing.utterance.pcm))
        hearing.spoken = bool(spans)
    return hearing.spoken


async def _drafted_at_pauses(hearing: Hearing) -> None:
    """The one task that begins and drops drafts; until the utterance is over."""
    draft, utterance = hearing.draft, hearing.utterance
    while not utterance.over:
        await utterance.turn()
        if draft.text and not utterance.paused and not utterance.over:
            hearing.known(hit=False)
            await draft.drop()
        elif utterance.paused and hearing.latest.text:
            if draft.text and draft.text != hearing.words(hearing.latest):
                hearing.known(hit=False)
                await draft.drop()
            if not draft.text and await _spoken(hearing) and utterance.paused:
                hearing.guess()
                hearing.suppose(hearing.latest)
