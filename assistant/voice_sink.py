"""The speaker as a query sees it: what is written goes to the audio process, which says how much of it was heard.

Imports `audio.front_messages` and `errors`; opens no device.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from assistant.audio.front_messages import MAX_PCM, Play, Played, PlayEnd, Silence, ToFront
from assistant.errors import DeviceError

STALLED_S = 5.0
"""Without a word of progress while there is something to play: the speaker is lost, and the query ends."""


class SpeakerSink:
    """A `query.HeardSink` for one query."""

    def __init__(self, run: str, send: Callable[[ToFront], None]) -> None:
        self.run = run
        self.sample_rate = 0
        self.heard_s = 0.0
        self._send = send
        self._bytes = 0
        self._error: DeviceError | None = None
        self._ended = self._silenced = False
        self._moved = asyncio.Event()

    @property
    def seconds(self) -> float:
        return self._bytes / 2 / self.sample_rate if self.sample_rate else 0.0

    def write(self, pcm: bytes, sample_rate: int) -> None:
        """Returns at once. Raises `DeviceError` when there is no speaker any more."""
        if self._error is not None:
            raise self._error
        if self._silenced:
            return
        self.sample_rate = sample_rate
        self._bytes += len(pcm)
        for at in range(0, len(pcm), MAX_PCM):
            self._send(Play(run=self.run, pcm=pcm[at : at + MAX_PCM], sample_rate=sample_rate))

    def played(self, packet: Played) -> None:
        self.heard_s = max(self.heard_s, packet.seconds)
        self._ended = self._ended or packet.ended
        self._moved.set()

    def lost(self, error: DeviceError) -> None:
        """The speaker has gone: what was not heard yet never will be."""
        self._error = error
        self._moved.set()

    def silence(self) -> None:
        """At once; nothing of this query sounds from here on. Does nothing when all of it was heard."""
        if not self._silenced and not self._ended:
            self._silenced = True
            if self._bytes:  # or it would silence a cue, and nothing else
                self._send(Silence(run=self.run))
            self._moved.set()

    async def finished(self) -> None:
        """Returns when all of it was heard or was silenced. Raises `DeviceError`."""
        if not self._bytes or self._silenced:
            return
        self._send(PlayEnd(run=self.run))
        while not (self._ended or self._silenced):
            if self._error is not None:
                raise self._error
            self._moved.clear()
            try:
                async with asyncio.timeout(STALLED_S):
                    await self._moved.wait()
            except TimeoutError:
                raise DeviceError(
                    f"the speaker plays nothing any more; {self.seconds - self.heard_s:.1f} s of the answer were not"
                    " heard; 'assistant devices list' shows what there is",
                    code="audio-device-lost",
                ) from None
