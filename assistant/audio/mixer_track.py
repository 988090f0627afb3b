"""Sound that waits to be played, and comes out at the rate of whatever device there is. Imports nothing of ours.

One track is one run (we speak) or one cue. Not thread-safe: the mixer holds its lock.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import soxr
from numpy.typing import NDArray

MAX_QUEUED_S = 60.0
"""Seconds that wait in one track at most: who sends more does not listen to how much was played."""
MIN_RATE, MAX_RATE = 4_000, 384_000
_STEP_S = 0.02
"""Resampled at once: little enough that taking it does not keep a device waiting."""
_SCALE = np.float32(1 / 32768)
_NOTHING: NDArray[np.float32] = np.zeros(0, np.float32)


class Track:
    """What goes in by `add` comes out of `take`, in order: float32 (full scale = 1) at the rate that is asked for."""

    def __init__(self) -> None:
        self.ended = False
        """Nothing will be added any more."""
        self.seconds = 0.0
        """Taken so far."""
        self._pieces: deque[tuple[memoryview, int]] = deque()
        self._queued_s = 0.0
        self._ready = _NOTHING
        self._rates = (0, 0)
        """Hz in and out that `_resampler` is for."""
        self._resampler: soxr.ResampleStream | None = None
        """Only while it holds sound back."""

    def add(self, pcm: bytes, sample_rate: int) -> bool:
        """s16le mono; half a sample at its end is dropped. False: too much waits already, nothing was added.

        Raises `ValueError` for a rate that no sound has.
        """
        if not MIN_RATE <= sample_rate <= MAX_RATE:
            raise ValueError(f"{sample_rate} Hz is no sample rate; {MIN_RATE} to {MAX_RATE} Hz can be played")
        seconds = len(pcm) // 2 / sample_rate
        if self._queued_s + seconds > MAX_QUEUED_S:
            return False
        if len(pcm) >= 2:
            self._pieces.append((memoryview(pcm)[: len(pcm) // 2 * 2], sample_rate))
            self._queued_s += seconds
        return True

    @property
    def drained(self) -> bool:
        """Nothing is left to take."""
        return not (self._pieces or len(self._ready) or self._resampler)

    def clear(self) -> None:
        """Nothing of it is left."""
        self._pieces.clear()
        self._queued_s, self._ready, self._resampler = 0.0, _NOTHING, None

    def take(self, frames: int, sample_rate: int) -> NDArray[np.float32]:
        """[<= frames]; fewer when that is all there is for now."""
        if self._rates[1] != sample_rate:
            # another device: what was made for the last one is some milliseconds
            self._ready, self._resampler, self._rates = _NOTHING, None, (0, sample_rate)
        parts: list[NDArray[np.float32]] = []
        missing = frames
        while missing and (len(self._ready) or self._refill()):
            part = self._ready[:missing]
            self._ready = self._ready[len(part) :]
            parts.append(part)
            missing -= len(part)
        taken = np.concatenate(parts) if parts else _NOTHING
        self.seconds += len(taken) / sample_rate
        return taken

    def _refill(self) -> bool:
        """Makes more ready, which may be nothing yet; False when there is no more."""
        if not self._pieces:
            # the resampler's last milliseconds must not wait for sound that may be long in coming
            return self._flush()
        pcm, rate = self._pieces[0]
        if self._rates[0] != rate and self._resampler is not None:
            return self._flush()
        out = self._rates[1]
        self._rates = (rate, out)
        step = max(1, int(rate * _STEP_S)) * 2
        samples = np.frombuffer(pcm[:step], "<i2").astype(np.float32) * _SCALE
        self._queued_s -= len(samples) / rate
        if len(pcm) > step:
            self._pieces[0] = (pcm[step:], rate)
        else:
            self._pieces.popleft()
        if rate == out:
            self._ready = samples
            return True
        if self._resampler is None:
            self._resampler = soxr.ResampleStream(rate, out, 1, dtype="float32")
        self._ready = self._resampler.resample_chunk(samples)
        return True

    def _flush(self) -> bool:
        if self._resampler is None:
            return False
        self._ready = self._resampler.resample_chunk(_NOTHING, last=True)
        self._resampler = None
        return True
