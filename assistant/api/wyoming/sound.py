"""What clients send as sound, of any format, as the recogniser wants it: s16le mono 16 kHz.

Converts piece by piece, so that memory holds the result and one piece. Imports `errors` and `messages`; numpy and soxr
for other formats than ours alone, and Home Assistant sends ours.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from assistant.errors import BadAudio, BusyNow
from assistant.messages import ASR_RATE

MAX_SECONDS = 900
MAX_HELD_BYTES = 32 * 2**20
"""Of the recordings of all clients: they are the daemon's own memory."""
_SLICE = 32 * 1024
"""Bytes that are converted at once: what they become on the way takes up to 64 times as much."""
_RATES = range(4_000, 384_001)


class Format(NamedTuple):
    rate: int
    """Hz."""
    width: int
    """Bytes of a sample: 1 (unsigned), 2, 3 or 4 (signed, little-endian)."""
    channels: int


OURS = Format(ASR_RATE, 2, 1)


def checked(rate: int, width: int, channels: int) -> Format:
    """Raises `BadAudio` code "audio-bad-format"."""
    if rate not in _RATES or width not in (1, 2, 3, 4) or channels not in range(1, 9):
        raise BadAudio(
            f"sound of {rate} Hz, {width} bytes and {channels} channels is not taken; send {_RATES[0]} to {_RATES[-1]}"
            " Hz, 1 to 4 bytes a sample, 1 to 8 channels",
            code="audio-bad-format",
        )
    return Format(rate, width, channels)


def prepare() -> None:
    """What converting needs; takes a fifth of a second the first time, in which nobody else should have to wait."""
    import numpy
    import soxr

    del numpy, soxr


class Room:
    """What all recordings of a bridge have together."""

    def __init__(self, most: int = MAX_HELD_BYTES) -> None:
        self._most, self.held = most, 0

    def take(self, size: int) -> None:
        """Raises `BusyNow`."""
        if self.held + size > self._most:
            raise BusyNow("there is no room for more recordings now; send it again later", retry_after_ms=2000)
        self.held += size

    def give(self, size: int) -> None:
        self.held -= size


class Recording:
    """One recording while it comes in. `close` gives its room back."""

    def __init__(self, room: Room, max_seconds: float = MAX_SECONDS) -> None:
        self._room, self._most = room, int(max_seconds * ASR_RATE) * 2
        self._pcm = bytearray()
        self._converter: _Converter | None = None
        self._format = OURS

    async def add(self, sound: bytes, format: Format) -> None:
        """One call at a time. Other formats than ours are converted in a thread. Raises `BadAudio` code
        "audio-too-long", `BusyNow`."""
        if format != self._format:
            self._flush()
            converter = None if format == OURS else await asyncio.to_thread(_Converter, format)
            self._format, self._converter = format, converter
        if self._converter is None:
            return self._keep(sound)
        for at in range(0, len(sound), _SLICE):
            self._keep(await asyncio.to_thread(self._converter.convert, sound[at : at + _SLICE]))

    def finish(self) -> bytes:
        """All of it."""
        self._flush()
        return bytes(self._pcm[: len(self._pcm) // 2 * 2])

    def close(self) -> None:
        self._room.give(len(self._pcm))
        self._pcm = bytearray()

    def _flush(self) -> None:
        if self._converter is not None:
            self._keep(self._converter.rest())

    def _keep(self, pcm: bytes) -> None:
        if len(self._pcm) + len(pcm) > self._most:
            raise BadAudio(
                f"the recording is too long: the limit is {self._most / 2 / ASR_RATE / 60:g} minutes",
                code="audio-too-long",
            )
        self._room.take(len(pcm))
        self._pcm += pcm


class _Converter:
    """Of one format; what is left of a frame at the end of a piece goes with the next one."""

    def __init__(self, format: Format) -> None:
        self._format = format
        self._left = b""
        self._resampler: Any = None
        if format.rate != ASR_RATE:
            import soxr

            self._resampler = soxr.ResampleStream(format.rate, ASR_RATE, 1, dtype="float32")

    def convert(self, sound: bytes) -> bytes:
        sound = self._left + sound
        whole = len(sound) - len(sound) % (self._format.width * self._format.channels)
        self._left = sound[whole:]
        mono = _samples(sound[:whole], self._format.width).reshape(-1, self._format.channels).mean(axis=1)
        return _s16(mono if self._resampler is None else self._resampler.resample_chunk(mono))

    def rest(self) -> bytes:
        if self._resampler is None:
            return b""
        import numpy as np

        return _s16(self._resampler.resample_chunk(np.zeros(0, np.float32), last=True))


def _samples(sound: bytes, width: int) -> Any:
    """float32 in -1..1."""
    import numpy as np

    if width == 1:
        return (np.frombuffer(sound, np.uint8).astype(np.float32) - 128) / 128
    if width == 3:  # as the upper three of four bytes
        wide = np.zeros((len(sound) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(sound, np.uint8).reshape(-1, 3)
        sound, width = wide.tobytes(), 4
    return np.frombuffer(sound, f"<i{width}").astype(np.float32) / np.float32(2 ** (8 * width - 1))


def _s16(mono: Any) -> bytes:
    import numpy as np

    pcm: bytes = np.rint(mono * 32768.0).clip(-32768, 32767).astype("<i2").tobytes()
    return pcm
