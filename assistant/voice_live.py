"""An utterance while it is spoken: packets of the audio process become the `LiveSpeech` that the pipeline follows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from assistant.audio.front_messages import GoOn, Sound, Spoke, ToFront
from assistant.errors import DeviceError
from assistant.query import LiveEvent

SILENT_S = 3.0
"""Without sound from the microphone: it is lost, whether anybody has told so or not."""


class Utterance:
    """One session. `clock`: monotonic seconds."""

    def __init__(
        self,
        session: int,
        send: Callable[[ToFront], None],
        *,
        wake_phrase: str = "",
        patience_s: float,
        silent_s: float = SILENT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`patience_s`: how long after the start it may still go on to wait for a question."""
        self.session = session
        self.wake_phrase = wake_phrase
        self.on_event: Callable[[LiveEvent], None] = lambda event: None
        """Told of what happens (not of sound), as soon as it arrives."""
        self._send, self._clock, self._silent_s = send, clock, silent_s
        self._until = clock() + patience_s
        self._pcm = bytearray()
        self._events: asyncio.Queue[LiveEvent | DeviceError] = asyncio.Queue()

    @property
    def pcm(self) -> bytes:
        return bytes(self._pcm)

    def take(self, packet: Sound | Spoke) -> None:
        if isinstance(packet, Sound):
            self._pcm += packet.pcm
            self._events.put_nowait(LiveEvent("sound", pcm=packet.pcm))
            return
        event = LiveEvent(packet.what, speech_s=packet.speech_s, ended=self._clock() - packet.silence_s)
        self._events.put_nowait(event)
        self.on_event(event)

    def lost(self, error: DeviceError) -> None:
        self._events.put_nowait(error)

    async def events(self) -> AsyncIterator[LiveEvent]:
        while True:
            try:
                async with asyncio.timeout(self._silent_s):
                    event = await self._events.get()
            except TimeoutError:
                raise DeviceError(
                    f"nothing came from the microphone for {self._silent_s:g} s; 'assistant devices list' shows what"
                    " there is",
                    code="audio-device-lost",
                ) from None
            if isinstance(event, DeviceError):
                raise event
            yield event

    def go_on(self) -> bool:
        if self._clock() >= self._until:
            return False
        self._send(GoOn(session=self.session))
        self.on_event(LiveEvent("resumed"))
        return True

    def forget(self) -> None:
        """What was said so far is not needed any more."""
        self._pcm.clear()
