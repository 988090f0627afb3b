"""When a device is given up, and when it is tried again. Imports nothing of ours; pure, told the time."""

from __future__ import annotations

FIRST_DELAY_S, LAST_DELAY_S = 0.25, 5.0
HEALTHY_S = 10.0
"""A stream that lived as long was no failed attempt."""
SILENT_S = 2.0
"""Without a frame, a device is broken: they come 10 times a second at least."""
FIRST_FRAME_S = 3.0
"""Some devices take their time to begin."""


class Backoff:
    """How long to wait before the next attempt: twice as long each time, anew once a stream has proved itself."""

    def __init__(self, first_s: float = FIRST_DELAY_S, last_s: float = LAST_DELAY_S) -> None:
        self._first, self._last = first_s, last_s
        self._delay = first_s

    def failed(self, lived_s: float = 0.0) -> float:
        """Seconds to wait. `lived_s`: how long the stream worked before."""
        if lived_s >= HEALTHY_S:
            self._delay = self._first
        delay, self._delay = self._delay, min(self._delay * 2, self._last)
        return delay


class Watchdog:
    """Of one opened stream: whether frames still pass."""

    def __init__(self, now: float) -> None:
        self._frames = 0
        self._grown_at = now
        self._limit_s = FIRST_FRAME_S

    def silent_s(self, frames: int, now: float) -> float:
        """Seconds without a frame. `frames`: that have passed since the stream was opened."""
        if frames != self._frames:
            self._frames, self._grown_at, self._limit_s = frames, now, SILENT_S
        return now - self._grown_at

    def broken(self, frames: int, now: float) -> bool:
        return self.silent_s(frames, now) >= self._limit_s
