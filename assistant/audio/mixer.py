"""What the speaker plays: runs (we speak) one after another, cues on top of them. Imports nothing but `audio`.

`fill` is called by PortAudio's thread, everything else by another one; nothing here waits for more than a lock that is
held for less than a millisecond. Knows no device: it is asked for samples at some rate. Decides nothing but the order.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from assistant.audio.echo import Reference
from assistant.audio.mixer_track import Track

Samples = NDArray[np.float32]

FADE_S = 0.005
"""Of what is silenced, so that it does not click."""
RAMP_S = 0.02
"""Of a change of volume."""
MAX_RUNS = 8
"""That wait or play; a run more is not taken."""
MAX_CUES = 4
_REMEMBERED = 32
"""Runs that are over: what still comes of them is dropped."""


def gain_of(percent: float) -> float:
    """0..1 for a volume of 0..100 %; beyond is clipped. Cubic: half of the way sounds half as loud (-18 dB)."""
    return min(percent, 100.0) ** 3 / 1e6 if percent > 0 else 0.0


class _Run:
    def __init__(self) -> None:
        self.track = Track()
        self.starving = False
        self.silenced_at: float | None = None
        """Seconds of it that had been heard by then."""
        self.told = 0.0
        self.told_end = False
        self._floor = self._before = self._at = 0.0

    @property
    def over(self) -> bool:
        return self.silenced_at is not None or (self.track.ended and self.track.drained)

    def take(self, frames: int, rate: int, now: float, latency: float) -> Samples:
        """`now`: when the device takes the first of them; it is heard `latency` seconds later."""
        floor, before = self.heard(now, latency), self.track.seconds
        taken = self.track.take(frames, rate)
        if len(taken):
            self._floor, self._before, self._at = floor, before, now
        return taken

    def heard(self, now: float, latency: float) -> float:
        if self.silenced_at is not None:
            return self.silenced_at
        return min(self.track.seconds, max(self._floor, self._before + now - self._at - latency))


class Mixer:
    def __init__(self, volume_percent: float = 100, clock: Callable[[], float] = time.monotonic) -> None:
        self.latency_s = 0.1
        """From `fill` until it is heard; set by whoever knows the device."""
        self.underruns = 0
        """Times that a run which had begun and not ended had nothing to play."""
        self.dropped = 0
        """Pieces that there was no room for."""
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        """In the order of their first sound; the last of those that are over among them."""
        self._queue: deque[_Run] = deque()
        self._cues: deque[Track] = deque()
        self._tail: Samples = np.zeros(0, np.float32)
        """The fade-out of what was silenced, at `_rate`."""
        self._rate = 0
        self._gain = self._target = gain_of(volume_percent)
        self._ramp_s = 0.0
        self._heard_until = 0.0
        self._reference = Reference()

    # --- what is to be played ---------------------------------------------------------------------------------------
    def play(self, run: str, pcm: bytes, sample_rate: int) -> bool:
        """Queues s16le mono. False when it was not taken: the run is over, or there is no room.

        Raises `ValueError` for a rate that no sound has.
        """
        with self._lock:
            known = self._run(run)
            if known is not None and (known.over or known.track.ended):
                return False
            taken = known is not None and known.track.add(pcm, sample_rate)
            self.dropped += not taken
            return taken

    def play_end(self, run: str) -> None:
        """That was all of it."""
        with self._lock:
            known = self._run(run)
            if known is not None:
                known.track.ended = True

    def cue(self, pcm: bytes, sample_rate: int) -> None:
        """On top of what sounds, after the cues that wait."""
        track = Track()
        track.add(pcm, sample_rate)
        track.ended = True
        with self._lock:
            if len(self._cues) < MAX_CUES:
                self._cues.append(track)

    def silence(self, run: str) -> None:
        """No cue and nothing of this run sounds after the next `FADE_S`, nor is any of it taken later."""
        with self._lock:
            # a run that is not known is over all the same: its sound may be on its way
            known = self._runs.get(run) or self._remember(run, _Run())
            self._silence([known])

    def silence_all(self) -> None:
        """As `silence`, of every run that waits or plays."""
        with self._lock:
            self._silence(list(self._queue))

    def volume(self, percent: float) -> None:
        """0 = silent, 100 = as it came."""
        with self._lock:
            self._target, self._ramp_s = gain_of(percent), RAMP_S

    def _run(self, name: str) -> _Run | None:
        known = self._runs.get(name)
        if known is None and len(self._queue) < MAX_RUNS:
            known = self._remember(name, _Run())
            self._queue.append(known)
        return known

    def _remember(self, name: str, run: _Run) -> _Run:
        self._runs[name] = run
        over = [name for name, run in self._runs.items() if run.over]
        for name in over[: max(0, len(over) - _REMEMBERED)]:
            del self._runs[name]
        return run

    def _silence(self, runs: list[_Run]) -> None:
        now = self._clock()
        tail = np.zeros(int(FADE_S * self._rate), np.float32)
        current = self._playing()
        for track in [*([current.track] if current in runs and current else []), *list(self._cues)[:1]]:
            if track.seconds:
                part = track.take(len(tail), self._rate)
                tail[: len(part)] += part
        tail *= np.linspace(1, 0, len(tail), dtype=np.float32)
        tail[: len(self._tail)] += self._tail[: len(tail)]
        self._tail = tail
        self._cues.clear()
        for run in runs:
            if not run.over:
                run.silenced_at = run.heard(now, self.latency_s)
                run.track.clear()
        self._playing()

    # --- what the device takes --------------------------------------------------------------------------------------
    def fill(self, frames: int, sample_rate: int) -> bytes:
        """The next `frames` samples, s16le mono at the device's rate; silence where there is nothing to play."""
        with self._lock:
            now = self._clock()
            if self._left():
                mono = np.zeros(frames, np.float32)
                self._add_tail(mono, sample_rate)
                self._add_runs(mono, sample_rate, now)
                self._add_cues(mono, sample_rate)
                pcm = self._amplified(mono, sample_rate)
                self._heard_until = now + self.latency_s + frames / sample_rate
            else:
                pcm = bytes(2 * frames)
                self._gain, self._ramp_s = self._target, 0.0
            self._reference.given(now + self.latency_s, sample_rate, pcm)
            return pcm

    def _add_tail(self, mono: Samples, rate: int) -> None:
        if self._rate != rate:
            self._rate, self._tail = rate, np.zeros(0, np.float32)
        part, self._tail = self._tail[: len(mono)], self._tail[len(mono) :]
        mono[: len(part)] += part

    def _add_runs(self, mono: Samples, rate: int, now: float) -> None:
        at = 0
        while at < len(mono) and (run := self._playing()):
            part = run.take(len(mono) - at, rate, now + at / rate, self.latency_s)
            mono[at : at + len(part)] += part
            at += len(part)
            hungry = at < len(mono) and not run.track.ended
            if hungry and run.track.seconds and (len(part) or not run.starving):
                self.underruns += 1
            run.starving = hungry
            if hungry or not (len(part) or run.over):
                return

    def _add_cues(self, mono: Samples, rate: int) -> None:
        at = 0
        while at < len(mono) and self._cues:
            part = self._cues[0].take(len(mono) - at, rate)
            mono[at : at + len(part)] += part
            at += len(part)
            if self._cues[0].drained or not len(part):
                self._cues.popleft()

    def _amplified(self, mono: Samples, rate: int) -> bytes:
        ramp = min(len(mono), round(self._ramp_s * rate))
        if ramp:
            way = (self._target - self._gain) * np.arange(1, ramp + 1, dtype=np.float32) / round(self._ramp_s * rate)
            mono[:ramp] *= self._gain + way
            self._gain, self._ramp_s = float(self._gain + way[-1]), self._ramp_s - ramp / rate
        if ramp < len(mono):
            self._gain, self._ramp_s = self._target, 0.0
            mono[ramp:] *= self._target
        return np.rint(mono * 32768).clip(-32768, 32767).astype("<i2").tobytes()

    def _playing(self) -> _Run | None:
        while self._queue and self._queue[0].over:
            self._queue.popleft()
        return self._queue[0] if self._queue else None

    def _left(self) -> bool:
        return bool(len(self._tail) or self._cues or self._playing())

    # --- what was played --------------------------------------------------------------------------------------------
    @property
    def left(self) -> bool:
        """Something is left to play, or a run has not ended."""
        with self._lock:
            return self._left()

    @property
    def sounding(self) -> bool:
        """Something is left to play or was not heard yet, or a run has not ended."""
        with self._lock:
            return self._left() or self._clock() < self._heard_until

    def seconds_of(self, run: str) -> float:
        """How much of it the device has taken."""
        with self._lock:
            return self._runs[run].track.seconds if run in self._runs else 0.0

    def heard(self, run: str, latency_s: float | None = None) -> float:
        """How much of it has been heard, `latency_s` (None: `self.latency_s`) after the device took it."""
        latency = self.latency_s if latency_s is None else latency_s
        with self._lock:
            return self._runs[run].heard(self._clock(), latency) if run in self._runs else 0.0

    def progress(self) -> list[tuple[str, float, bool]]:
        """(run, seconds heard, whether that was the last of it) of those of which more was heard than at the last call.

        Each run ends once: when all of it was heard, or when it was silenced.
        """
        told: list[tuple[str, float, bool]] = []
        with self._lock:
            now = self._clock()
            for name, run in self._runs.items():
                seconds = run.heard(now, self.latency_s)
                ended = run.over and (run.silenced_at is not None or seconds >= run.track.seconds)
                if not run.told_end and (ended or seconds > run.told):
                    run.told, run.told_end = seconds, ended
                    told.append((name, seconds, ended))
        return told

    def reference(self) -> list[tuple[float, bytes]]:
        """What the device was given since the last call: see `echo.Reference.blocks`."""
        return self._reference.blocks()
