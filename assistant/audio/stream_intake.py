"""From what a microphone gives to 16 kHz mono: a bounded ring, the mixing of channels, the resampler.

Imports `messages, stream_choice`. `Ring.put` is called by PortAudio's thread and only keeps what it is given; `Intake`
is for whoever takes the sound. Knows no device.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import soxr
from numpy.typing import NDArray

from assistant.audio.stream_choice import Format
from assistant.messages import ASR_RATE

RING_S = 4.0
"""Of sound that nobody has taken yet; the oldest of more is lost."""
DEAF_RATIO = 0.1
"""A channel 20 dB below the loudest one is taken for not connected: with it the average would only be quieter."""
_MEMORY_S = 1.0
"""Time constant of what is known of a channel's level."""

Floats = NDArray[np.float32]


class Ring:
    """Blocks of sound, each with the opening of the device that it comes from."""

    def __init__(self, blocks: int) -> None:
        self._blocks: deque[tuple[int, Format, bytes]] = deque(maxlen=blocks)
        self.lost = 0
        """Blocks that nobody took in time."""

    def put(self, opening: int, format: Format, pcm: bytes) -> None:
        self.lost += len(self._blocks) == self._blocks.maxlen
        self._blocks.append((opening, format, pcm))

    def take(self) -> list[tuple[int, Format, bytes]]:
        """All that is there, oldest first, what belongs together as one."""
        taken: list[tuple[int, Format, list[bytes]]] = []
        while self._blocks:
            opening, format, pcm = self._blocks.popleft()
            if not taken or taken[-1][0] != opening:
                taken.append((opening, format, []))
            taken[-1][2].append(pcm)
        return [(opening, format, b"".join(pieces)) for opening, format, pieces in taken]


class Downmix:
    """The average of the channels that have sound; which those are follows the last second."""

    def __init__(self, channels: int, rate: int) -> None:
        self._rate = rate
        self._power = np.zeros(channels)
        self._weights = np.full(channels, 1 / channels, np.float32)

    def __call__(self, sound: Floats) -> Floats:
        """(frames, channels) -> (frames,); of any scale."""
        if not len(sound):
            return sound[:, 0]
        # what has just begun counts at once: a channel must not be faded in while somebody speaks
        keep = float(np.exp(-len(sound) / self._rate / _MEMORY_S))
        self._power = np.maximum(self._power * keep, np.mean(np.square(sound), axis=0))
        heard = self._power >= self._power.max() * DEAF_RATIO**2
        goal = (heard / heard.sum()).astype(np.float32)
        if np.array_equal(goal, self._weights):
            return np.asarray(sound @ goal, np.float32)
        ramp = np.linspace(0, 1, len(sound), dtype=np.float32)[:, None]  # a jump of the level would click
        mixed = np.sum(sound * (self._weights + (goal - self._weights) * ramp), axis=1, dtype=np.float32)
        self._weights = goal
        return np.asarray(mixed, np.float32)


class Intake:
    """Of one opening of a device: s16le in its format -> s16le mono at 16 kHz; what is left comes with the next."""

    def __init__(self, format: Format) -> None:
        self._format = format
        self._mix = Downmix(format.channels, format.rate)
        self._resample = None
        if format.rate != ASR_RATE:
            # measured: a lesser quality saves no cycles, and keeps sound back for longer (MQ 35 ms, HQ 14 ms at 48 kHz)
            self._resample = soxr.ResampleStream(format.rate, ASR_RATE, 1, dtype="float32", quality="HQ")

    def __call__(self, pcm: bytes) -> bytes:
        if self._resample is None and self._format.channels == 1:
            return pcm
        sound = np.frombuffer(pcm, "<i2").astype(np.float32).reshape(-1, self._format.channels)
        mono = self._mix(sound) if self._format.channels > 1 else sound[:, 0]
        if self._resample is not None:
            mono = self._resample.resample_chunk(mono)
        return bytes(np.rint(mono).clip(-32768, 32767).astype("<i2").tobytes())
