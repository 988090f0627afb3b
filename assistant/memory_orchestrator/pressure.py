"""How hard the machine is pressed, and what is given up for it: thresholds, hysteresis, relief. Pure.

Imports `messages` and the readings' type; reads no file and no clock. `Pressure` makes of many looks at the machine a
level that does not flap; `RELIEF` says what each level costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import get_args

from assistant.memory_orchestrator.sensors import Readings
from assistant.messages import Level
from assistant.messages_status import PressureStatus

LEVELS: tuple[Level, ...] = get_args(Level)
"""From calm to worst; a rank is a place in it."""
_CRITICAL = len(LEVELS) - 1
_MIB = 1024 * 1024

# each: where elevated, high and critical begin
STALLED_PERCENT = (5.0, 20.0, 50.0)
"""A machine with enough memory shows 0. At 5 % answers begin to stutter; at 50 % it mostly waits for its disk."""
MARGIN_SHARE = (1.0, 0.5, 0.25)
"""Less than this share of the margin is available: the margin is what the ledger promised to keep free."""
ABOVE_TRIP_C = (-5.0, 0.0, 5.0)
"""At the trip the kernel slows the CPU down; 5 °C earlier there is time to do less; 5 °C later that did not help."""
CLOCK_SHARE = (0.9, 0.6)
"""Of the top clock. 10 % less is heard as a longer pause; below 60 % speech is hardly made as fast as it is spoken."""
WEAK_SUPPLY, CLOCK_CAPPED, THROTTLED, SOFT_LIMIT = 1 << 0, 1 << 1, 1 << 2, 1 << 3
"""Raspberry Pi's flags for now; the same 16 bits higher say that it has been so since the start."""
_FLAGS = (
    (WEAK_SUPPLY, 1, "the supply's voltage is too low"),
    (CLOCK_CAPPED, 2, "the firmware caps the clock"),
    (THROTTLED, 2, "the firmware throttles the processor"),
    (SOFT_LIMIT, 1, "the firmware's soft temperature limit is reached"),
)

# how far a sensor must be back behind a threshold before that counts as over
_STALLED_BAND = 0.8
_AVAILABLE_BAND = 1.25
_BAND_C = 3.0
_CLOCK_BAND = 0.05

CALM_S = 30.0
"""As long as a level holds after the last sign of it: longer than PSI's window and than a core takes to cool."""


@dataclass(frozen=True, slots=True)
class _Finding:
    rank: int
    reason: str
    twice: str = ""
    """The name of a sensor whose word counts when it says so twice: one swapped page or one hot second is no state."""


def _findings(readings: Readings, margin: int, *, back: bool = False) -> Iterator[_Finding]:
    """One for each sensor that there is. `back`: against the thresholds of the way down, which are stricter."""
    if (stalled := readings.stalled) is not None:
        band = _STALLED_BAND if back else 1.0
        rank = sum(stalled >= limit * band for limit in STALLED_PERCENT)
        yield _Finding(rank, f"memory {stalled:.0f} % stalled", twice="stalls")
    if (left := readings.available) is not None:
        band = _AVAILABLE_BAND if back else 1.0
        rank = sum(left < margin * share * band for share in MARGIN_SHARE)
        yield _Finding(rank, f"{left // _MIB} MiB available of a margin of {margin // _MIB}")
    if readings.temperature_c is not None and readings.trip_c is not None:
        above = readings.temperature_c - readings.trip_c + (_BAND_C if back else 0.0)
        rank = sum(above >= limit for limit in ABOVE_TRIP_C)
        yield _Finding(rank, f"temperature {readings.temperature_c:.0f} °C of {readings.trip_c:.0f}", twice="heat")
    if (clock := readings.frequency) is not None:
        band = _CLOCK_BAND if back else 0.0
        rank = sum(clock <= share + band for share in CLOCK_SHARE)
        yield _Finding(rank, f"clock limited to {clock * 100:.0f} %")
    for flag, rank, reason in _FLAGS:
        if readings.throttled & flag:
            yield _Finding(rank, reason)


def _rank(readings: Readings, margin: int, *, back: bool = False) -> int:
    return max((finding.rank for finding in _findings(readings, margin, back=back)), default=0)


def _reasons(readings: Readings, margin: int, *, back: bool = False) -> tuple[str, ...]:
    """Of the sensors above normal, the worst first."""
    above = [finding for finding in _findings(readings, margin, back=back) if finding.rank]
    return tuple(finding.reason for finding in sorted(above, key=lambda finding: -finding.rank))


class Pressure:
    """A level that follows the readings up at once and down slowly.

    Up: to what a reading says; stalls and heat count when two readings in a row say so, `critical` always counts.
    Down: one level at a time, each after `calm_s` in which no reading came near the level's thresholds.
    """

    def __init__(self, calm_s: float = CALM_S) -> None:
        self._calm_s = calm_s
        self._rank = 0
        self._said_before: dict[str, int] = {}
        self._calm_since: float | None = None
        self._reasons: tuple[str, ...] = ()

    @property
    def status(self) -> PressureStatus:
        return PressureStatus(level=LEVELS[self._rank], reasons=self._reasons)

    def feed(self, readings: Readings, margin: int, now_s: float) -> bool:
        """One look at the machine, at `now_s` of a clock that never goes back; True when the level changed."""
        before = self._rank
        self._rank = max(self._rank, self._confirmed(readings, margin))
        near = _rank(readings, margin, back=True)
        if near >= self._rank:
            self._calm_since = None
        elif self._calm_since is None:
            # counted from the first calm reading, not from the last bad one: nobody looked in between
            self._calm_since = now_s
        elif now_s - self._calm_since >= self._calm_s:
            self._rank -= 1
            self._calm_since = now_s if near < self._rank else None
        self._reasons = self._explain(readings, margin, now_s)
        return self._rank != before

    def _confirmed(self, readings: Readings, margin: int) -> int:
        ranks, said = [0], {}
        for finding in _findings(readings, margin):
            rank = finding.rank
            if finding.twice:
                said[finding.twice] = rank
                if rank < _CRITICAL:
                    rank = min(rank, self._said_before.get(finding.twice, 0))
            ranks.append(rank)
        self._said_before = said
        return max(ranks)

    def _explain(self, readings: Readings, margin: int, now_s: float) -> tuple[str, ...]:
        if not self._rank:
            return ()
        reasons = _reasons(readings, margin) or _reasons(readings, margin, back=True)
        calm_for = now_s - self._calm_since if self._calm_since is not None else 0.0
        return reasons or (f"calm for {calm_for:.0f} of {self._calm_s:.0f} s",)


@dataclass(frozen=True, slots=True)
class Relief:
    """What a level asks of all stages. Factors of what is configured, 0..1. What it means for the LLM's work stands in
    `elastic`."""

    level: Level
    keep_alive: float
    threads: float
    load_ahead: bool
    """Whether a stage may be loaded before it is needed."""

    def keep_alive_s(self, configured: float) -> float:
        """Seconds; -1 (never unload) stays so until idle stages must go at once."""
        if configured < 0:
            return configured if self.keep_alive > 0 else 0.0
        return configured * self.keep_alive

    def thread_count(self, configured: int) -> int:
        """At least 1; rounded half up, so that 2 cores are not halved by the first sign of pressure."""
        return max(1, int(configured * self.threads + 0.5))


RELIEF: Mapping[Level, Relief] = MappingProxyType(
    {
        "normal": Relief("normal", 1, 1, load_ahead=True),
        "elevated": Relief("elevated", 0.5, 0.75, load_ahead=True),
        "high": Relief("high", 0.1, 0.5, load_ahead=False),
        "critical": Relief("critical", 0, 0.5, load_ahead=False),
    }
)
