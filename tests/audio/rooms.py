"""How a loudspeaker's sound arrives at a microphone: simulated rooms, and clips with the silence of their own room."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
Sound = NDArray[np.float64]


def samples(pcm: bytes) -> Sound:
    return np.frombuffer(pcm, "<i2").astype(np.float64)


def s16(sound: NDArray[np.floating]) -> bytes:
    pcm: bytes = np.rint(sound).clip(-32768, 32767).astype("<i2").tobytes()
    return pcm


def in_room(sound: Sound, seed: int = 1, reverberation_s: float = 0.35) -> Sound:
    """Direct sound and an exponential tail of reflections (Polack's model), as loud as it was."""
    count = int(reverberation_s * RATE)
    # -60 dB at its end
    tail = np.random.default_rng(seed).normal(0, 1, count) * np.exp(-6.9 * np.arange(count) / count)
    tail[0] += 6
    heard = np.convolve(sound, tail)
    gain: float = np.abs(sound).max() / np.abs(heard).max()
    return heard * gain


def with_room_around(sound: Sound, seconds: float = 1.0) -> Sound:
    """The clip's own first 0.3 s, forth and back, before and behind it."""
    start = sound[: int(0.3 * RATE)]
    room = np.tile(np.concatenate([start, start[::-1]]), 3)[: int(seconds * RATE)]
    return np.concatenate([room, sound, room])
