"""Sounds for tests: the human recordings by their manifest, and synthetic ones that nobody has spoken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from assistant.bench.wer import Clip, corpus, pcm_of

RATE = 16_000
NON_SPEECH = ("noise", "music", "silence")


def clip_pcm(folder: Path, name: str) -> bytes:
    """s16le mono at 16 kHz of one recording, by its file's name."""
    (clip,) = [clip for clip in corpus(folder) if clip.file == name]
    return pcm_of(folder, clip)


def wordless(folder: Path) -> list[Clip]:
    """The recordings in which nobody speaks."""
    return [clip for clip in corpus(folder) if set(clip.categories) & set(NON_SPEECH) and not clip.reference]


def to_pcm(samples: NDArray[np.floating]) -> bytes:
    """Floats in -1..1 to s16le."""
    pcm: bytes = (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
    return pcm


def coloured_noise(seconds: float, power: float, level: float = 0.1, seed: int = 0) -> NDArray[np.float64]:
    """Noise whose spectrum falls with frequency ** (power / 2): 0 white, 1 pink, 2 brown; rms `level`."""
    count = int(seconds * RATE)
    spectrum = np.fft.rfft(np.random.default_rng(seed).normal(0, 1, count))
    spectrum /= np.maximum(np.arange(len(spectrum)), 1) ** (power / 2)
    noise: NDArray[np.float64] = np.fft.irfft(spectrum, count)
    return noise * float(level / noise.std())


def tone(hz: float, seconds: float, level: float = 0.3) -> NDArray[np.float64]:
    return level * np.sin(2 * np.pi * hz * np.arange(int(seconds * RATE)) / RATE)


def dtmf() -> NDArray[np.float64]:
    """The twelve keys of a telephone, 0.2 s each."""
    keys = [(row, column) for row in (697, 770, 852, 941) for column in (1209, 1336, 1477)]
    return np.concatenate([np.append(tone(a, 0.2) + tone(b, 0.2), np.zeros(RATE // 10)) for a, b in keys])


def chords() -> NDArray[np.float64]:
    """Six struck chords with overtones, a second each."""
    fade = np.exp(-2 * np.arange(RATE) / RATE)
    notes = [
        (root * step * overtone, 0.1 / overtone) for root in (131,) for step in (1, 1.26, 1.5) for overtone in (1, 2, 3)
    ]
    return np.concatenate(
        [
            sum((tone(hz * shift, 1, level) for hz, level in notes), np.zeros(RATE)) * fade
            for shift in (1, 1.33, 1.5, 1, 1.68, 2)
        ]
    )


SYNTHETIC: dict[str, NDArray[np.float64]] = {
    "digital silence": np.zeros(3 * RATE),
    "one click": np.where(np.arange(2 * RATE) == RATE, 0.9, 0.0),
    "white noise": coloured_noise(5, 0),
    "faint white noise": coloured_noise(5, 0, level=0.001),
    "pink noise": coloured_noise(5, 1),
    "brown noise": coloured_noise(5, 2),
    "sine 440 Hz": tone(440, 4),
    "sine 1 kHz": tone(1000, 4),
    "mains hum": tone(50, 4) + tone(150, 4, 0.1),
    "telephone keys": dtmf(),
    "chords": chords(),
}
