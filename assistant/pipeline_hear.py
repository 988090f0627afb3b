"""From sound to words: a recording, or somebody who is still speaking. Imports `query` and the pipeline's parts.

While somebody speaks, the recogniser loads, then all that the answer will need. Leases, intents and answers are the
pipeline's.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from assistant.errors import NoSpeech
from assistant.memory_orchestrator.journey import Journey
from assistant.messages import Stage
from assistant.pipeline_ahead import Ahead
from assistant.pipeline_draft import Draft
from assistant.pipeline_fallback import Fallback
from assistant.pipeline_live import Hearing, speculated, streamed
from assistant.pipeline_run import Run, ms_since
from assistant.pipeline_speech import speech_of
from assistant.pipeline_utterance import Utterance
from assistant.pipeline_words import Heard, question, recognised
from assistant.query import LiveSpeech
from assistant.tasks import both, in_own_thread


class Leased(Protocol):
    def __call__(
        self, run: Run, journey: Journey, *which: Stage, waits: bool = True
    ) -> AbstractAsyncContextManager[None]: ...


class Listener:
    """Hears the question of a query."""

    def __init__(self, *, leased: Leased, ahead: Ahead, fallback: Fallback) -> None:
        self._leased, self._ahead, self._fallback = leased, ahead, fallback

    async def recording(self, run: Run, read: Callable[[], bytes], journey: Journey) -> str:
        """What is said in a finished recording. Raises `BadAudio`, `NoSpeech` and what its stage raises."""
        started = time.monotonic()
        self._begin(run)  # both load while the recording is read and searched for speech
        speech = await in_own_thread(functools.partial(speech_of, read))

        async def hear() -> Heard:
            async with self._leased(run, journey, Stage.ASR):
                self._ahead.load(run, Stage.LLM)
                return await recognised(run, speech)

        heard = await self._fallback.through(run, hear)
        run.timings["asr"] = ms_since(started)
        return self._end(run, question(heard))

    async def live(self, run: Run, live: LiveSpeech, journey: Journey, draft: Draft) -> str:
        """What somebody says who is speaking now; `draft` is begun with what he has said so far, and dropped when he
        goes on. Raises `DeviceError` when the microphone is lost, `NoSpeech` and what its stage raises. Whatever
        happens, nothing of the listening goes on afterwards."""
        self._begin(run)
        utterance, text = Utterance(run), ""

        async def understood() -> str:
            async with self._leased(run, journey, Stage.ASR), self._ahead.reading(run) as reader:
                return await self._question(Hearing(run, live.wake_phrase, utterance, draft, reader), live)

        async def hear() -> None:
            nonlocal text
            text = await self._fallback.through(run, understood)
            run.timings["asr"] = ms_since(utterance.ended)
            utterance.leave()

        await both(hear(), utterance.follow(live))
        return self._end(run, text)

    def _begin(self, run: Run) -> None:
        run.tell_now("stt-start")
        self._ahead.load(run, Stage.ASR, Stage.INTENT)

    def _end(self, run: Run, text: str) -> str:
        if not text:
            raise NoSpeech("nothing was understood", stage=Stage.ASR)
        run.tell_now("stt-end", text=text)
        return text

    async def _question(self, hearing: Hearing, live: LiveSpeech) -> str:
        """The first that is one; "" when there was enough waiting for it."""
        hear = streamed if hearing.run.parts[Stage.ASR].streaming else speculated
        while True:
            heard = await hear(hearing)
            if not hearing.utterance.speech_s:
                raise NoSpeech("nobody said anything", stage=Stage.ASR)
            text = question(heard, live.wake_phrase)
            if text or not live.go_on():
                return text
            await hearing.draft.drop()
            hearing.utterance.go_on()
