"""Speech on its way in and out of a query: what of a recording is speech, and a reply in pieces for the voice.

Imports `audio.vad`, `errors`, `messages` and `sentences`; runs no stage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from assistant import sentences
from assistant.audio import vad
from assistant.errors import NoSpeech
from assistant.messages import Stage

Pieces = asyncio.Queue[str | None]
"""Parts of a reply on their way to the voice; None = that was all."""


def put(pieces: Pieces, texts: Iterable[str | None]) -> None:
    for text in texts:
        pieces.put_nowait(text)


def pieces_of(reply: str) -> Pieces:
    """Of a whole reply: its sentences, so that it is known how many of them were spoken."""
    pieces = Pieces()
    put(pieces, [*sentences.pieces(reply), None])
    return pieces


def speech_of(read: Callable[[], bytes]) -> bytes:
    """The part of the recording in which somebody speaks, s16le mono 16 kHz. Raises `BadAudio`, `NoSpeech`."""
    speech = speech_in(read())
    if not speech:
        raise NoSpeech("nobody speaks in this recording", stage=Stage.ASR)
    return speech


def speech_in(pcm: bytes) -> bytes:
    """Of s16le mono 16 kHz; empty when nobody speaks."""
    return vad.trim_to_speech(pcm, vad.speech_spans(pcm))
