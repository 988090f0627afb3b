"""One utterance while it is spoken, for whoever recognises it: its sound, its pauses, its end. Imports `query`.

Two tasks share it: `follow` takes in what the microphone's side tells, and the recogniser's waits for sound and for
turns. Recognises nothing and leases nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from assistant.errors import DeviceError
from assistant.pipeline_run import Run
from assistant.query import LiveEvent, LiveSpeech


class Utterance:
    """What was said since the beginning, or since `go_on`."""

    def __init__(self, run: Run) -> None:
        self.ended = 0.0
        """When we heard of its end (monotonic seconds)."""
        self._run = run
        self._turned, self._grown, self._decided = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._left = False
        self._begin()

    def _begin(self) -> None:
        self._pieces: list[bytes] = []
        self.over = False
        self.paused = False
        self.speech_s = 0.0
        """Of all of it; known when it is over."""
        self.resumed = 0
        """How often there was more than silence after a pause."""
        self._told_speech = False
        for event in (self._turned, self._grown, self._decided):
            event.clear()

    # --- the microphone's side --------------------------------------------------------------------------------------
    async def follow(self, live: LiveSpeech) -> None:
        """Until `leave`. Raises `DeviceError` when the microphone is lost before the end.

        Between an end and the decision what becomes of it nothing is taken in: `events` may end there.
        """
        events = live.events()
        try:
            async for event in events:
                self._take(event)
                if self.over:
                    await self._decided.wait()
                    if self._left:
                        return
                    self._begin()
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()
        raise DeviceError("the sound broke off before the speaker had finished", code="audio-device-lost")

    def _take(self, event: LiveEvent) -> None:
        match event.what:
            case "sound":
                self._pieces.append(event.pcm)
            case "speech" if not self._told_speech:
                self._told_speech = True
                self._run.tell_now("stt-vad-start")
            case "pause":
                self.paused = True
            case "resumed":
                self.resumed += self.paused
                self.paused = False
            case "end":
                self.over, self.speech_s, self.ended = True, event.speech_s, time.monotonic()
                self._run.started = event.ended or self.ended
                self._run.tell_now("stt-vad-end")
        self._grown.set()
        if event.what != "sound":
            self._turned.set()

    # --- the recogniser's side --------------------------------------------------------------------------------------
    @property
    def pcm(self) -> bytes:
        """s16le mono 16 kHz."""
        return b"".join(self._pieces)

    async def sound(self) -> AsyncIterator[bytes]:
        """From the beginning to the end, as it comes."""
        at = 0
        while True:
            while at < len(self._pieces):
                at += 1
                yield self._pieces[at - 1]
            if self.over:
                return
            self._grown.clear()
            await self._grown.wait()

    async def turn(self) -> None:
        """Waits for a pause, the end of one, or the end."""
        await self._turned.wait()
        self._turned.clear()

    def look(self) -> None:
        """Whoever waits for a turn shall look again."""
        self._turned.set()

    def go_on(self) -> None:
        """It was no question: what follows is a new one."""
        self._begin()
        self._decided.set()

    def leave(self) -> None:
        """Nothing more is wanted."""
        self._left = True
        self._decided.set()
