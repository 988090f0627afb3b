"""Speaks a reply, piece by piece: at once as a whole, or while it is written. Imports the pipeline's parts and `query`.

A voice on a server that fails is replaced in the middle of a reply; the sentence that it broke off is said again.
"""

from __future__ import annotations

import functools
import time
from array import array
from contextlib import aclosing

from assistant.errors import MemoryRefused, StageError
from assistant.memory_orchestrator.journey import Journey
from assistant.messages import Stage, TtsAudio, TtsRequest
from assistant.pipeline_fallback import Fallback
from assistant.pipeline_hear import Leased
from assistant.pipeline_run import Run, ms_since
from assistant.pipeline_speech import Pieces, pieces_of
from assistant.query import AudioSink
from assistant.sentences import spoken_parts
from assistant.speech_language import of_voice
from assistant.speech_text import SpeechText


class Saying:
    """A reply on its way to the voice, and how far it has come."""

    def __init__(self, pieces: Pieces, language: str = "en") -> None:
        """`language`: of the voice."""
        self.pieces = pieces
        self.piece = self.text = ""
        """Of the reply what is to be said now, and how."""
        self.started = 0.0
        """Monotonic seconds; 0 = nothing was said yet."""
        self.over = False
        self.heard = False
        """Whether there was sound of this piece already: it may be said in several parts."""
        self._speech = SpeechText(language)
        self._parts: list[str] = []

    async def next(self) -> bool:
        """Whether there is something to say; the same again, until it was `said`."""
        while not self.text and not self.over:
            piece = await self.pieces.get()
            if piece is None:
                self.over = True
            else:
                self.piece, self.heard = piece, False
                self._parts = spoken_parts(self._speech.say(piece))  # it may be longer than what is shown
                self.said()
        return bool(self.text)

    def said(self) -> None:
        self.text = self._parts.pop(0) if self._parts else ""


class Sayer:
    def __init__(self, *, leased: Leased, fallback: Fallback) -> None:
        self._leased, self._fallback = leased, fallback

    async def whole(self, run: Run, sink: AudioSink, journey: Journey) -> None:
        """The reply that is there."""
        await self.rest(run, sink, Saying(pieces_of(run.reply), spoken_language(run)), journey)

    async def rest(self, run: Run, sink: AudioSink, saying: Saying, journey: Journey) -> None:
        """What was not said yet of a reply that is there; no voice for what no voice can say."""
        if not await saying.next():
            return

        async def speak() -> None:
            async with self._leased(run, journey, Stage.TTS):
                await self._speak(run, sink, saying)

        await self._fallback.through(run, speak)

    async def meanwhile(self, run: Run, sink: AudioSink, saying: Saying, journey: Journey) -> None:
        """While it is written, inside the LLM's lease. Leaves it where there is no room beside the LLM, or when the
        voice is replaced: what was not said is for `rest`."""
        try:
            async with self._leased(run, journey, Stage.TTS, waits=False):
                await self._speak(run, sink, saying)
        except MemoryRefused:
            return
        except StageError as error:
            await self._fallback.take(run, error)

    async def _speak(self, run: Run, sink: AudioSink, saying: Saying) -> None:
        """Says what comes until None comes; nothing is announced where nothing can be said."""
        while await saying.next():
            if not saying.started:
                saying.started = time.monotonic()
                run.tell("tts-start", text=saying.text)
            sounded = False
            async with aclosing(run.parts[Stage.TTS].run(TtsRequest(text=saying.text))) as results:
                async for out in results:
                    if isinstance(out, TtsAudio):
                        if "tts_first_audio" not in run.timings:
                            run.timings["tts_first_audio"] = ms_since(saying.started)
                            run.gate.do(run.first_sound)
                        begins_s = sink.seconds
                        rate = sink.sample_rate or out.sample_rate
                        sink.write(at_rate(out.pcm, out.sample_rate, rate), rate)
                        if not sounded and not saying.heard:
                            run.gate.do(functools.partial(run.said.append, (saying.piece, begins_s)))
                            saying.heard = True
                        sounded = True
            saying.said()
        if saying.started:
            run.tell("tts-end")


def spoken_language(run: Run) -> str:
    """Of the voice that a query has."""
    spec = run.parts[Stage.TTS].spec
    return of_voice(spec.model, configured=spec.language)  # its file was asked when the voice was looked up


def at_rate(pcm: bytes, rate: int, wanted: int) -> bytes:
    """s16le mono at another rate, in straight lines between samples: enough for the rest of a reply whose first voice
    was lost, and without a library. Takes 5 ms for a second of sound."""
    if rate == wanted:
        return pcm
    samples = array("h", pcm)
    last, step = len(samples) - 1, rate / wanted
    out = array("h")
    for number in range(len(samples) * wanted // rate):
        at = number * step
        left = int(at)
        here = samples[left]
        there = samples[left + 1] if left < last else here
        out.append(int(here + (there - here) * (at - left)))
    return out.tobytes()
