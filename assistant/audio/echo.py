"""Our own voice at the microphone: it may say the wake word, and must not wake us. Imports nothing of ours.

A second detector listens to what the speaker is given. It hears the word more clearly than the microphone does, and
at a lower threshold; while it fires, and for a while after that sound has left the speaker, what the microphone's
detector finds does not count. A user who says the word while we speak of something else wakes us all the same.

Nothing is subtracted from the microphone's signal: echo cancellation belongs to the sound system.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import numpy as np
import soxr
from numpy.typing import NDArray

RATE = 16_000
BLOCK = 1024
"""Bytes of 32 ms."""
MAX_S = 2.0
"""Of sound that nobody has asked for yet."""
AFTER_S = 1.0
"""Of silence that is kept after a sound: a detector finds a word some time after its end."""
_GAP_S = 0.1


class Reference:
    """What was given to the device, and when it is heard. `given` and `blocks` may be called by different threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given: deque[tuple[float, int, bytes]] = deque()
        self._seconds = 0.0
        self._resampler: soxr.ResampleStream | None = None
        self._rate = 0
        self._rest = b""
        self._until = 0.0
        """When the last sample that was taken out of `_given` is heard."""
        self._quiet_s = AFTER_S

    def given(self, heard_at: float, sample_rate: int, pcm: bytes) -> None:
        """s16le mono, whose first sample is heard at `heard_at`. Cheap; silence that follows silence is not kept."""
        seconds = len(pcm) / 2 / sample_rate
        self._quiet_s = self._quiet_s + seconds if pcm.count(0) == len(pcm) else 0.0
        if self._quiet_s >= AFTER_S or not seconds:
            return
        with self._lock:
            self._given.append((heard_at, sample_rate, pcm))
            self._seconds += seconds
            while self._seconds > MAX_S and len(self._given) > 1:
                _, rate, old = self._given.popleft()
                self._seconds -= len(old) / 2 / rate

    def blocks(self) -> list[tuple[float, bytes]]:
        """Blocks of 32 ms, s16le mono at 16 kHz, each with the time at which its end is heard."""
        with self._lock:
            given, self._given, self._seconds = self._given, deque(), 0.0
        out: list[tuple[float, bytes]] = []
        for heard_at, rate, pcm in given:
            if rate != self._rate or abs(heard_at - self._until) > _GAP_S:
                self._resampler = None if rate == RATE else soxr.ResampleStream(rate, RATE, 1, "float32", quality="MQ")
                self._rate, self._rest = rate, b""
            self._until = heard_at + len(pcm) / 2 / rate
            sound = self._rest + self._resampled(pcm)
            whole = len(sound) // BLOCK * BLOCK
            self._rest = sound[whole:]
            out += [
                (self._until - (len(sound) - end) / 2 / RATE, sound[end - BLOCK : end])
                for end in range(BLOCK, whole + 1, BLOCK)
            ]
        return out

    def _resampled(self, pcm: bytes) -> bytes:
        if self._resampler is None:
            return pcm
        samples: NDArray[np.float32] = self._resampler.resample_chunk(np.frombuffer(pcm, "<i2").astype(np.float32))
        return np.rint(samples).clip(-32768, 32767).astype("<i2").tobytes()


class OwnVoice:
    """Whether a wake word at the microphone was ours. Times are seconds of one clock."""

    def __init__(
        self,
        detector: Callable[[bytes], float] | None = None,
        *,
        threshold: float = 0.1,
        lead_s: float = 0.3,
        tail_s: float = 1.0,
    ) -> None:
        """`detector`: the probability of a word after 32 ms more, s16le mono at 16 kHz; a model with state of its own,
        not the microphone's. `lead_s`: how much earlier than the reference the microphone may hear it; `tail_s`: how
        much later.

        The defaults were found with human wake words in 16 simulated rooms: in 90 detections, a microphone's detector
        at its maker's threshold fired 0.16 s before to 0.45 s after the reference passed 0.1. Four recordings without
        a wake word passed 0.1 as well, which costs the user nothing but that second.
        """
        self._detector = detector
        self._threshold = threshold
        self._lead_s, self._tail_s = lead_s, tail_s
        self._fired: deque[tuple[float, float]] = deque(maxlen=16)
        """(first, last) time of each stretch in which the detector fired."""

    def played(self, heard_at: float, block: bytes) -> None:
        """A block of what the speaker was given (`Reference.blocks`)."""
        if self._detector is not None:
            self.detected(heard_at, self._detector(block))

    def detected(self, heard_at: float, probability: float) -> None:
        """Of the reference; blocks in the order of their times."""
        if probability < self._threshold:
            return
        if self._fired and 0 <= heard_at - self._fired[-1][1] <= self._tail_s:
            self._fired[-1] = (self._fired[-1][0], heard_at)
        else:
            self._fired.append((heard_at, heard_at))

    def explains(self, at: float) -> bool:
        """Whether what the microphone's detector found at that time was our own voice."""
        return any(first - self._lead_s <= at <= last + self._tail_s for first, last in self._fired)
