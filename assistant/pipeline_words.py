"""What a recogniser made of a recording, and what it is worth as a question. Imports `audio`, `wake_phrase` and the
pipeline's parts; leases nothing.

Only speech is recognised, only what the recogniser is sure of is a question, and the words that woke us are no part of
it.
"""

from __future__ import annotations

import functools
from contextlib import aclosing
from dataclasses import dataclass

from assistant.errors import NoSpeech
from assistant.messages import AsrRequest, Stage, Transcript
from assistant.pipeline_run import Run
from assistant.pipeline_speech import speech_in
from assistant.tasks import in_own_thread
from assistant.wake_phrase import without_wake_phrase

LEAST_CONFIDENCE, FROM_WORDS = 0.35, 3
"""Of a text of at least so many words. Whisper had 0.39 and more for what it understood, and less for most of what it
made of other languages. A word alone says nothing: "stop" was right at 0.17."""
SPARE_WORDS = 1
"""A doubtful text of at most so many words more than the wake phrase may be that phrase, misheard."""


@dataclass(frozen=True, slots=True)
class Heard:
    text: str = ""
    confidence: float = 1.0


def question(heard: Heard, wake_phrase: str = "") -> str:
    """What was asked, without the words that woke us; "" = nothing. Raises `NoSpeech` code "stt-low-confidence"."""
    text = without_wake_phrase(heard.text, wake_phrase)
    if len(text.split()) < FROM_WORDS or heard.confidence >= LEAST_CONFIDENCE:
        return text
    if wake_phrase and len(heard.text.split()) <= len(wake_phrase.split()) + SPARE_WORDS:
        return ""
    raise NoSpeech("what was said was not understood; say it again", code="stt-low-confidence", stage=Stage.ASR)


async def recognised_in(run: Run, pcm: bytes) -> Heard:
    """In s16le mono 16 kHz, of which only the speech is heard."""
    speech = await in_own_thread(functools.partial(speech_in, pcm))
    return await recognised(run, speech) if speech else Heard()


async def recognised(run: Run, speech: bytes) -> Heard:
    heard = Heard()
    async with aclosing(run.parts[Stage.ASR].run(AsrRequest(pcm=speech))) as results:
        async for out in results:
            if isinstance(out, Transcript) and out.final:
                heard = Heard(out.text.strip(), out.confidence)
    return heard
