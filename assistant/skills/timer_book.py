"""The timers and their arithmetic: pure, with clocks as seams. Imports `messages_timers`.

Two clocks: one that goes on while the machine sleeps and that nobody sets (CLOCK_BOOTTIME), by which timers run; and
the wall clock, which alone says how long the machine was off. A wall clock that is set anew changes nothing that runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assistant.messages_timers import TimerState, TimerStatus
from assistant.skills.context import TooMany

LEAST_S, MOST_S = 1.0, 24 * 3600.0
MOST_TIMERS = 50
WALL_MOVED_S = 2.0
"""A difference between the clocks that is worth a note: what was noted before counts from a wrong time."""
_VERSION = 1


def boot_id() -> str:
    """Of this start of the machine; "" where nobody knows."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


@dataclass(frozen=True, slots=True)
class Clocks:
    boot: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    """Seconds since the machine was started, its sleep included."""
    wall: Callable[[], float] = time.time
    boot_id: Callable[[], str] = boot_id


@dataclass(frozen=True, slots=True)
class _Timer:
    id: str
    name: str
    total_s: float
    state: TimerState
    at: float
    """When it ends or ended (boot clock); of a paused one, what is left."""


@dataclass(slots=True)
class TimerBook:
    clocks: Clocks = field(default_factory=Clocks)
    _timers: dict[str, _Timer] = field(default_factory=dict)
    _next: int = 1
    _offset: float | None = None
    """Wall clock less boot clock, at the last `dump`."""

    # --- looking ----------------------------------------------------------------------------------------------------
    def all(self) -> tuple[TimerStatus, ...]:
        """What rings first, then the nearest to its end; what is paused last."""
        order = ("ringing", "running", "paused")
        return tuple(sorted(map(self._status, self._timers.values()), key=lambda t: (order.index(t.state), t.left_s)))

    def get(self, id: str) -> TimerStatus:
        """Raises `KeyError`."""
        return self._status(self._timers[id])

    def next_s(self) -> float | None:
        """Until the next one ends; None = none runs."""
        ends = [timer.at for timer in self._timers.values() if timer.state == "running"]
        return max(0.0, min(ends) - self.clocks.boot()) if ends else None

    def _status(self, timer: _Timer) -> TimerStatus:
        left = timer.at if timer.state == "paused" else timer.at - self.clocks.boot()
        if timer.state == "running":
            left = max(0.0, left)
        return TimerStatus(
            id=timer.id, name=timer.name, total_s=round(timer.total_s, 3), left_s=round(left, 3), state=timer.state
        )

    # --- changing; each raises `KeyError` for a timer that is not there -----------------------------------------------
    def start(self, name: str, seconds: float) -> TimerStatus:
        """Raises `TooMany`."""
        if len(self._timers) >= MOST_TIMERS:
            raise TooMany
        id, self._next = str(self._next), self._next + 1
        return self._put(_Timer(id, name, seconds, "running", self.clocks.boot() + seconds))

    def add(self, id: str, seconds: float) -> TimerStatus:
        """Whoever rings runs again for so long."""
        timer = self._timers[id]
        if timer.state == "ringing":
            return self._put(replace(timer, total_s=seconds, state="running", at=self.clocks.boot() + seconds))
        return self._put(replace(timer, total_s=timer.total_s + seconds, at=timer.at + seconds))

    def pause(self, id: str) -> TimerStatus:
        timer = self._timers[id]
        if timer.state == "running":
            timer = replace(timer, state="paused", at=max(0.0, timer.at - self.clocks.boot()))
        return self._put(timer)

    def resume(self, id: str) -> TimerStatus:
        timer = self._timers[id]
        if timer.state == "paused":
            timer = replace(timer, state="running", at=timer.at + self.clocks.boot())
        return self._put(timer)

    def remove(self, id: str) -> TimerStatus:
        """As it was."""
        return self._status(self._timers.pop(id))

    def due(self) -> tuple[TimerStatus, ...]:
        """Those that end now: they ring from here on."""
        now = self.clocks.boot()
        over = [timer for timer in self._timers.values() if timer.state == "running" and timer.at <= now]
        return tuple(self._put(replace(timer, state="ringing")) for timer in sorted(over, key=lambda t: t.at))

    def _put(self, timer: _Timer) -> TimerStatus:
        self._timers[timer.id] = timer
        return self._status(timer)

    # --- across restarts --------------------------------------------------------------------------------------------
    def dump(self) -> dict[str, Any]:
        now, wall = self.clocks.boot(), self.clocks.wall()
        self._offset = wall - now
        rows = [
            {"id": t.id, "name": t.name, "total_s": t.total_s, "state": t.state,
             "left_s": t.at if t.state == "paused" else t.at - now}
            for t in self._timers.values()
        ]  # fmt: skip
        return {"version": _VERSION, "boot_id": self.clocks.boot_id(), "boot": now, "wall": wall, "next": self._next,
                "timers": rows}  # fmt: skip

    def wall_moved(self) -> bool:
        """Somebody has set the wall clock since the last `dump`, so that its time would mislead after a reboot."""
        if self._offset is None:
            return False
        return abs(self.clocks.wall() - self.clocks.boot() - self._offset) > WALL_MOVED_S

    def restore(self, data: Any) -> None:
        """What `dump` gave, by this process or an earlier one. Raises `ValueError` for anything else."""
        try:
            if data["version"] != _VERSION:
                raise ValueError(f"it is of version {data['version']!r}")
            now, passed = self.clocks.boot(), self._passed(str(data["boot_id"]), float(data["boot"]), data["wall"])
            timers = [_timer(row, now, passed) for row in data["timers"]]
            following = int(data["next"])
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"it holds no timers: {error!r}") from None
        if len(timers) > MOST_TIMERS or len({timer.id for timer in timers}) != len(timers):
            raise ValueError("it holds too many timers, or one twice")
        self._timers = {timer.id: timer for timer in timers}
        self._next = max([following, *(int(timer.id) + 1 for timer in timers)])

    def _passed(self, boot_id: str, boot: float, wall: Any) -> float:
        """Seconds since the note was made. The wall clock counts only where the machine was off; one that goes
        backwards says nothing."""
        now = self.clocks.boot()
        if boot_id and boot_id == self.clocks.boot_id() and boot <= now:
            return now - boot
        return max(0.0, self.clocks.wall() - float(wall))


def _timer(row: Any, now: float, passed: float) -> _Timer:
    """Raises `ValueError`, `TypeError`, `KeyError`."""
    name, state, left, total = row["name"], row["state"], float(row["left_s"]), float(row["total_s"])
    if not isinstance(name, str) or state not in ("running", "paused", "ringing"):
        raise ValueError("a timer has no name or no state")
    if not (-1e9 < left <= MOST_S + 1 and 0 <= total <= 1e9):  # false for NaN, too
        raise ValueError(f"a timer has {left} s left of {total} s")
    return _Timer(str(int(row["id"])), name[:100], total, state, left if state == "paused" else now + left - passed)
