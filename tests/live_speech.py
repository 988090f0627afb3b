"""Somebody who speaks: a `LiveSpeech` that plays what its test has written, faster than real time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from assistant.query import LiveEvent

PIECE = 3072
"""Bytes of a piece of sound: 96 ms, as they come from the microphone."""

Step = LiveEvent | float | Exception | Callable[[], bool]


def sound(pcm: bytes) -> list[Step]:
    return [LiveEvent("sound", pcm=pcm[at : at + PIECE]) for at in range(0, len(pcm), PIECE)]


def spoken(pcm: bytes) -> list[Step]:
    """A recording from its first piece to its end, without a pause."""
    return [*sound(pcm), LiveEvent("speech"), END]


PAUSE, RESUMED, SPEECH = LiveEvent("pause"), LiveEvent("resumed"), LiveEvent("speech")
END = LiveEvent("end", speech_s=1.0)
NOBODY = LiveEvent("end", speech_s=0.0)


class Speaker:
    """Steps: an event; a pause in seconds; something that must come true before it goes on; what `events` raises."""

    def __init__(self, *steps: Step, wake_phrase: str = "", patience: int = 0) -> None:
        """`patience`: how often it goes on after an end."""
        self.wake_phrase = wake_phrase
        self.asked_to_go_on = 0
        self.closed = False
        self._steps, self._patience = steps, patience
        self._pcm = bytearray()

    @property
    def pcm(self) -> bytes:
        return bytes(self._pcm)

    def go_on(self) -> bool:
        self.asked_to_go_on += 1
        return self.asked_to_go_on <= self._patience

    async def events(self) -> AsyncIterator[LiveEvent]:
        try:
            for step in self._steps:
                match step:
                    case LiveEvent(what="end"):
                        allowed = self.asked_to_go_on
                        yield LiveEvent("end", speech_s=step.speech_s, ended=step.ended or time.monotonic())
                        if self.asked_to_go_on == allowed:
                            return
                    case LiveEvent():
                        self._pcm += step.pcm
                        yield step
                    case Exception():
                        raise step
                    case float() | int():
                        await asyncio.sleep(step)
                    case come_true:
                        while not come_true():
                            await asyncio.sleep(0.005)
        finally:
            self.closed = True
