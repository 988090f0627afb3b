"""An utterance whose sound a client sends while it is spoken (`ask` with `more`): the `LiveSpeech` of its query.

Where it begins, pauses and ends is decided as at the microphone: by voice activity and `audio.endpointing`. Imports
those; knows no socket.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from assistant.audio.endpointing import Endpointer, Turn
from assistant.audio.front_messages import EndpointSettings
from assistant.audio.vad import WINDOW_BYTES, WINDOW_S, VoiceActivity
from assistant.errors import BadAudio
from assistant.messages import ASR_RATE
from assistant.query import LiveEvent

MAX_BYTES = 2 * 2**20
"""Of an utterance: 65 seconds. What comes after them is not heard."""
SILENT_S = 10.0
"""Without sound of a client that has not said that it is finished."""
_GRACE = 2
"""Seconds that a second of sound gives it, up to those: who sends at half the pace of speech goes on, who drips does
not."""
_BYTES_PER_S = ASR_RATE * 2
_PIECE = 8192
"""Bytes up to which pieces that wait are put together: many small ones take much more room than their sound."""
_FOREVER_S = 1e6


class _Piece(msgspec.Struct, frozen=True):
    pcm: bytes
    arrived: float
    last: bool


class SentSpeech:
    """`put` what arrives, at any time; `events` is consumed once, when the query has its turn."""

    wake_phrase = ""

    def __init__(
        self,
        settings: EndpointSettings,
        *,
        endpointing: bool = True,
        silent_s: float = SILENT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`endpointing`: silence ends it, too; otherwise `last` alone does. `clock`: monotonic seconds."""
        most_s = MAX_BYTES / _BYTES_PER_S
        if not endpointing:
            settings = msgspec.structs.replace(settings, end_silence_s=_FOREVER_S, no_speech_s=0, max_s=_FOREVER_S)
        if settings.no_speech_s:
            most_s = min(most_s, settings.no_speech_s + settings.max_s)
        self._endpointer = Endpointer(settings)
        self._silent_s, self._clock = silent_s, clock
        self._most_s = most_s + silent_s
        """From its turn on; an utterance that is spoken meanwhile has ended before."""
        self._pieces: deque[_Piece] = deque()
        self._arrived = asyncio.Event()
        self._until = self._cap = math.inf
        """When the sound that has come is not enough any more, and the latest that this may become. Without an end as
        long as it waits in the line, where it takes nobody's time."""
        self._taken = 0
        self._closed = False
        self._pcm = bytearray()

    @property
    def pcm(self) -> bytes:
        return bytes(self._pcm)

    def put(self, pcm: bytes, last: bool) -> None:
        """Whole samples, s16le mono 16 kHz. After the end, or too late: nothing happens."""
        now = self._clock()
        if self._closed or (not last and (not pcm or now > self._until)):
            return
        pcm = pcm[: MAX_BYTES - self._taken]
        self._taken += len(pcm)
        self._closed = last or self._taken >= MAX_BYTES
        if self._until < math.inf:
            self._until = min(self._until + _GRACE * len(pcm) / _BYTES_PER_S, now + self._silent_s, self._cap)
        if self._pieces and len(self._pieces[-1].pcm) + len(pcm) <= _PIECE:
            pcm = self._pieces.pop().pcm + pcm
        self._pieces.append(_Piece(pcm, now, self._closed))
        self._arrived.set()

    def go_on(self) -> bool:
        """Whoever sends it decides when there is a next one."""
        return False

    async def events(self) -> AsyncIterator[LiveEvent]:
        """Raises `BadAudio` code "sound-stopped" when its client sends nothing more, or too little, and has not said
        that it has finished."""
        self._cap = self._clock() + self._most_s
        self._until = self._clock() + self._silent_s
        # one thread for all of it: that is where the detector was told not to use several
        with _Ear() as ear:
            rest = b""
            while True:
                piece = await self._next()
                sound = rest + piece.pcm
                if piece.last:
                    sound += bytes(-len(sound) % WINDOW_BYTES)
                rest = sound[len(sound) // WINDOW_BYTES * WINDOW_BYTES :]
                sound = sound[: len(sound) - len(rest)]
                for event in self._heard(sound, await ear.probabilities(sound), piece):
                    self._pcm += event.pcm
                    yield event
                    if event.what == "end":
                        self._closed = True
                        self._pieces.clear()
                        return

    async def _next(self) -> _Piece:
        while not self._pieces:
            self._arrived.clear()
            try:
                async with asyncio.timeout(max(0.0, self._until - self._clock())):
                    await self._arrived.wait()
            except TimeoutError:
                self._closed = True
                raise BadAudio(
                    f"no sound came for {self._silent_s:g} s, or too little, and no `last`; send `ask-sound` as it is"
                    " spoken until the speaker has finished",
                    code="sound-stopped",
                ) from None
        return self._pieces.popleft()

    def _heard(self, sound: bytes, probabilities: list[float], piece: _Piece) -> Iterator[LiveEvent]:
        """The sound of a piece in whole windows, and what happens in it, each at its place."""
        told = 0
        for index, probability in enumerate(probabilities):
            turns = self._endpointer.feed(WINDOW_S, probability)
            if turns:
                at = (index + 1) * WINDOW_BYTES
                yield LiveEvent("sound", pcm=sound[told:at])
                told = at
                # the sound of a piece ended when it arrived, at the latest
                yield from _events(turns, piece.arrived - (len(sound) - at) / _BYTES_PER_S)
        if told < len(sound):
            yield LiveEvent("sound", pcm=sound[told:])
        if piece.last:
            turns = self._endpointer.feed(_FOREVER_S, 0.0)
            yield from _events(turns, piece.arrived + _FOREVER_S)
            if not turns or turns[-1].what != "end":
                yield LiveEvent("end", ended=piece.arrived)


def _events(turns: list[Turn], until: float) -> Iterator[LiveEvent]:
    """`until`: when the sound that they were found in had ended."""
    for turn in turns:
        ended = until - turn.silence_s if turn.what == "end" else 0.0
        yield LiveEvent(turn.what, speech_s=turn.speech_s, ended=ended)


class _Ear:
    """Voice activity in a thread of its own: the loop has others to answer."""

    def __enter__(self) -> _Ear:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ear")
        self._detector: VoiceActivity | None = None
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def probabilities(self, sound: bytes) -> list[float]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._feed, sound)

    def _feed(self, sound: bytes) -> list[float]:
        self._detector = self._detector or VoiceActivity()
        return self._detector.feed(sound)
