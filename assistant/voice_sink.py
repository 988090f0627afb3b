"""The speaker as a query sees it: what is written goes to the audio process, which says how much of it was heard.

Imports `audio.front_messages` and `errors`; opens no device.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from assistant.audio.front_messages import MAX_PCM, Play, Played, PlayEnd, Silence, ToFront
from assistant.errors import DeviceError
from assistant.messages_status import DeviceStatus

STALLED_S, LOST_S = 5.0, 2.0
"""Without a word of progress while there is something to play, or so long after the speaker was said to be lost: it
does not come back, and the query ends."""
AHEAD_S = 20.0
"""Of sound that is sent and was not heard yet; the rest waits here, however much it is."""


class SpeakerSink:
    """A `query.HeardSink` for one query."""

    def __init__(self, run: str, send: Callable[[ToFront], None]) -> None:
        self.run = run
        self.sample_rate = 0
        self.heard_s = 0.0
        self._send = send
        self._bytes = 0
        self._waiting: deque[bytes] = deque()
        self._sent_s = 0.0
        self._lost: str | None = None
        self._whole = False
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
        self._waiting += [pcm[at : at + MAX_PCM] for at in range(0, len(pcm), MAX_PCM)]
        self._forward()

    def _forward(self) -> None:
        """Sends what may be sent; at last, that this was all."""
        while self._waiting and self._sent_s - self.heard_s < AHEAD_S:
            pcm = self._waiting.popleft()
            self._sent_s += len(pcm) / 2 / self.sample_rate
            self._send(Play(run=self.run, pcm=pcm, sample_rate=self.sample_rate))
        if self._whole and not self._waiting:
            self._whole = False
            self._send(PlayEnd(run=self.run))

    def played(self, packet: Played) -> None:
        self.heard_s = max(self.heard_s, packet.seconds)
        self._ended = self._ended or packet.ended
        self._lost = None
        if not self._silenced:
            self._forward()
        self._moved.set()

    def missing(self, why: str) -> None:
        """The speaker is lost; it may come back and go on."""
        self._lost = why
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
        self._whole = True
        self._forward()
        while not (self._ended or self._silenced):
            if self._error is not None:
                raise self._error
            self._moved.clear()
            try:
                async with asyncio.timeout(STALLED_S if self._lost is None else LOST_S):
                    await self._moved.wait()
            except TimeoutError:
                raise DeviceError(
                    f"{self._lost or 'the speaker plays nothing any more'}; {self.seconds - self.heard_s:.1f} s of the"
                    " answer were not heard ('assistant devices list' shows what there is)",
                    code="audio-device-lost",
                ) from None


class Sinks:
    """Of the queries that run or put their things away, by their id."""

    def __init__(self, send: Callable[[ToFront], None]) -> None:
        self._send = send
        self._sinks: dict[str, SpeakerSink] = {}

    def open(self, run: str, speaker: DeviceStatus) -> SpeakerSink:
        sink = self._sinks[run] = SpeakerSink(run, self._send)
        if speaker.state == "lost":
            sink.lost(DeviceError(f"there is no speaker: {speaker.message}", code="audio-device-lost"))
        return sink

    def __contains__(self, run: object) -> bool:
        return run in self._sinks

    def __getitem__(self, run: str) -> SpeakerSink:
        return self._sinks[run]

    def played(self, packet: Played) -> None:
        if packet.run in self._sinks:
            self._sinks[packet.run].played(packet)

    def missing(self, why: str) -> None:
        """The speaker is lost."""
        for sink in self._sinks.values():
            sink.missing(why)

    def close(self, run: str) -> None:
        """What did not end would hold up the next one."""
        self._sinks.pop(run).silence()
