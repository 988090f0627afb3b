"""From sound to words: a recording, or somebody who is still speaking. Imports `audio`, `query` and `wake_phrase`.

While somebody speaks the recogniser loads; one that streams is fed from then on, another one begins at the first pause,
which is right if nobody goes on. Only speech is recognised, only what the recogniser is sure of is a question, and the
words that woke us are no part of it. Leases, intents and answers are the pipeline's.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Protocol

from assistant.audio import vad
from assistant.errors import NoSpeech
from assistant.memory_orchestrator.journey import Journey
from assistant.messages import AsrRequest, Emit, Stage, Transcript
from assistant.pipeline_fallback import Fallback
from assistant.pipeline_run import Run, ms_since
from assistant.pipeline_speech import speech_in, speech_of
from assistant.pipeline_utterance import Utterance
from assistant.query import LiveSpeech
from assistant.tasks import both, in_own_thread, uninterrupted
from assistant.wake_phrase import without_wake_phrase

LEAST_CONFIDENCE, FROM_WORDS = 0.35, 3
"""Of a text of at least so many words. Whisper had 0.39 and more for what it understood, and less for most of what it
made of other languages. A word alone says nothing: "stop" was right at 0.17."""
SPARE_WORDS = 1
"""A doubtful text of at most so many words more than the wake phrase may be that phrase, misheard."""


class Leased(Protocol):
    def __call__(self, run: Run, journey: Journey, *which: Stage) -> AbstractAsyncContextManager[None]: ...


class Ahead(Protocol):
    def __call__(self, run: Run, *stages: Stage) -> None: ...


@dataclass(frozen=True, slots=True)
class Heard:
    text: str = ""
    confidence: float = 1.0


class Listener:
    """Hears the question of a query."""

    def __init__(self, *, leased: Leased, ahead: Ahead, fallback: Fallback, emit: Emit) -> None:
        self._leased, self._ahead, self._fallback, self._emit = leased, ahead, fallback, emit

    async def recording(self, run: Run, read: Callable[[], bytes], journey: Journey) -> str:
        """What is said in a finished recording. Raises `BadAudio`, `NoSpeech` and what its stage raises."""
        started = time.monotonic()
        self._begin(run)  # both load while the recording is read and searched for speech
        speech = await in_own_thread(functools.partial(speech_of, read))

        async def hear() -> Heard:
            async with self._leased(run, journey, Stage.ASR):
                self._ahead(run, Stage.LLM)
                return await _recognised(run, speech)

        heard = await self._fallback.through(run, hear)
        run.timings["asr"] = ms_since(started)
        return self._end(run, question(heard))

    async def live(self, run: Run, live: LiveSpeech, journey: Journey) -> str:
        """What somebody says who is speaking now. Raises `DeviceError` when the microphone is lost, `NoSpeech` and what
        its stage raises. Whatever happens, nothing of it goes on afterwards."""
        self._begin(run)
        utterance, text = Utterance(run, self._emit), ""

        async def understood() -> str:
            async with self._leased(run, journey, Stage.ASR):
                self._ahead(run, Stage.LLM)
                return await self._question(run, live, utterance)

        async def hear() -> None:
            nonlocal text
            text = await self._fallback.through(run, understood)
            run.timings["asr"] = ms_since(utterance.ended)
            utterance.leave()

        await both(hear(), utterance.follow(live))
        return self._end(run, text)

    def _begin(self, run: Run) -> None:
        self._emit("stt-start", {"query_id": run.query.id})
        self._ahead(run, Stage.ASR, Stage.INTENT)

    def _end(self, run: Run, text: str) -> str:
        if not text:
            raise NoSpeech("nothing was understood", stage=Stage.ASR)
        self._emit("stt-end", {"query_id": run.query.id, "text": text})
        return text

    # --- while somebody speaks --------------------------------------------------------------------------------------
    async def _question(self, run: Run, live: LiveSpeech, utterance: Utterance) -> str:
        """The first that is one; "" when there was enough waiting for it."""
        hear = self._streamed if run.parts[Stage.ASR].streaming else self._speculated
        while True:
            heard = await hear(run, utterance, live.wake_phrase)
            if not utterance.speech_s:
                raise NoSpeech("nobody said anything", stage=Stage.ASR)
            text = question(heard, live.wake_phrase)
            if text or not live.go_on():
                return text
            utterance.go_on()

    async def _streamed(self, run: Run, utterance: Utterance, wake_phrase: str) -> Heard:
        """By an engine that hears the sound as it comes."""
        heard = Heard()
        request = AsrRequest(pcm=b"", live=True)
        async with aclosing(run.parts[Stage.ASR].run(request, utterance.sound())) as results:
            async for out in results:
                if not isinstance(out, Transcript):
                    continue
                heard = Heard(out.text.strip(), out.confidence)
                text = without_wake_phrase(out.text, wake_phrase)
                if text and not out.final:
                    self._emit("stt-partial", {"query_id": run.query.id, "text": text, "segment_end": out.segment_end})
        # it invents words over noise, and is sure of them
        spoken = await in_own_thread(functools.partial(vad.speech_spans, utterance.pcm)) if heard.text else []
        return heard if spoken else Heard()

    async def _speculated(self, run: Run, utterance: Utterance, wake_phrase: str) -> Heard:
        """By an engine that takes whole recordings: at a pause, what was said so far; again, if that was not all."""
        del wake_phrase
        attempt: asyncio.Task[Heard] | None = None
        said = 0
        try:
            while True:
                if attempt is not None and utterance.resumed > said:
                    await _discard(attempt)
                    attempt = None
                    self._speculation(run, hit=False)
                elif utterance.over:
                    break
                elif attempt is None and utterance.paused:
                    attempt, said = asyncio.create_task(_recognised_in(run, utterance.pcm)), utterance.resumed
                else:
                    await utterance.turn()
            if attempt is not None:
                self._speculation(run, hit=True)
                return await attempt
            return await _recognised_in(run, utterance.pcm) if utterance.speech_s else Heard()
        finally:
            if attempt is not None:
                await _discard(attempt)

    def _speculation(self, run: Run, *, hit: bool) -> None:
        run.speculations.append(hit)
        self._emit("stt-speculation", {"query_id": run.query.id, "hit": hit})


def question(heard: Heard, wake_phrase: str = "") -> str:
    """What was asked, without the words that woke us; "" = nothing. Raises `NoSpeech` code "stt-low-confidence"."""
    text = without_wake_phrase(heard.text, wake_phrase)
    if len(text.split()) < FROM_WORDS or heard.confidence >= LEAST_CONFIDENCE:
        return text
    if wake_phrase and len(heard.text.split()) <= len(wake_phrase.split()) + SPARE_WORDS:
        return ""
    raise NoSpeech("what was said was not understood; say it again", code="stt-low-confidence", stage=Stage.ASR)


async def _recognised_in(run: Run, pcm: bytes) -> Heard:
    speech = await in_own_thread(functools.partial(speech_in, pcm))
    return await _recognised(run, speech) if speech else Heard()


async def _recognised(run: Run, speech: bytes) -> Heard:
    heard = Heard()
    async with aclosing(run.parts[Stage.ASR].run(AsrRequest(pcm=speech))) as results:
        async for out in results:
            if isinstance(out, Transcript) and out.final:
                heard = Heard(out.text.strip(), out.confidence)
    return heard


async def _discard(attempt: asyncio.Task[Heard]) -> None:
    """Ends it, and looks at what it raised, which is nobody's concern any more."""
    attempt.cancel()
    await uninterrupted(asyncio.gather(attempt, return_exceptions=True))
