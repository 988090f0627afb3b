"""What the observer's readings and the ledger's figures mean: phases, peaks, how true the ledger is. Pure.

Published figures are those of a comparable assistant for boards with 2 GB. MB are 10^6 bytes.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from assistant.api import wire
from assistant.bench.observer import Reading, accounted
from assistant.memory_orchestrator.ledger import LedgerView

MB = 1_000_000
STANDBY, LISTENING, INFERENCE, SPEAKING, AFTER = "standby", "listening", "LLM inference", "speaking", "after"
PUBLISHED_MB = {STANDBY: 320.0, LISTENING: 150.0, INFERENCE: 420.0, SPEAKING: 180.0}
"""Standby is the system's; listening comes on top of it; the others are the stage's."""
ALWAYS_FREE_MB = 300.0
TRUTH_TARGET_PERCENT = 5.0
_STAGES = {LISTENING: ("asr", "intent"), INFERENCE: ("llm",), SPEAKING: ("tts",)}


@dataclass(frozen=True, slots=True)
class Span:
    """A phase, between two moments of CLOCK_MONOTONIC in ns."""

    phase: str
    begin_ns: int
    end_ns: int


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """Peaks inside a phase. MB, and milliseconds after the question came."""

    name: str
    begin_ms: float
    end_ms: float
    total_mb: float
    """PSS of all our processes."""
    anon_mb: float
    stage_mb: float
    """PSS of the workers that the phase is named for."""
    published_mb: float | None


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """How far the ledger's sums stand from what the observer read around a moment, in percent of that."""

    compared: int
    """Sums that lie between two readings of the observer; of the others nothing is known."""
    max_percent: float
    median_percent: float
    max_mb: float
    over: int
    """How many are more than `TRUTH_TARGET_PERCENT` off."""


class MemoryTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """MB (10^6 bytes) and milliseconds."""

    transcript: str
    reply: str
    mode: str
    total_ms: float
    phases: tuple[Phase, ...]
    peak_mb: float
    """Of PSS, all processes, as the observer saw it."""
    ledger_peak_mb: float
    """The same as the ledger has it, spikes between two samples included."""
    budget_mb: float
    usable_mb: float
    """budget - margin."""
    kept_free_mb: float
    """budget - peak."""
    lowest_available_mb: float
    """MemAvailable of the machine during the query."""
    readings: int
    reading_ms: float
    """From one reading to the next, on average."""
    truth_of_readings: Truth
    """Of the ledger's full readings, at the moments of these. The target is for them."""
    truth_of_writes: Truth
    """Of all writes, at the moments of these: between two full readings a write tells new states beside old figures.
    There is no target for them."""
    reached: bool
    """All full readings within `TRUTH_TARGET_PERCENT`, and the peak within what is usable."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was seen, for the table and for the plot."""

    asked_ns: int
    report: wire.Report
    spans: list[Span]
    readings: list[Reading]
    views: list[LedgerView]


def spans(first_ns: int, asked_ns: int, last_ns: int, events: Sequence[tuple[int, str]]) -> list[Span]:
    """The phases of a query from its events (moment, name); LLM and speaking overlap when both fit."""
    when: dict[str, list[int]] = {}
    for moment, name in events:
        when.setdefault(name, []).append(moment)
    found = [Span(STANDBY, first_ns, asked_ns)]
    if "stt-end" in when:
        found.append(Span(LISTENING, asked_ns, when["stt-end"][0]))
    if "reply-delta" in when:
        found.append(Span(INFERENCE, when["intent-end"][0], when["reply-delta"][-1]))
    if "tts-end" in when:
        found.append(Span(SPEAKING, when["tts-start"][0], when["tts-end"][-1]))
    found.append(Span(AFTER, when["run-end"][0], last_ns))
    return found


def phases(readings: Sequence[Reading], parts: Sequence[Span], stages: Mapping[int, str], zero_ns: int) -> list[Phase]:
    """`stages`: of every worker process, by its id."""
    found = []
    for span in parts:
        inside = [one for one in readings if one.end_ns > span.begin_ns and one.begin_ns < span.end_ns]
        names = _STAGES.get(span.phase, ())
        found.append(
            Phase(
                name=span.phase,
                begin_ms=round((span.begin_ns - zero_ns) / 1e6, 1),
                end_ms=round((span.end_ns - zero_ns) / 1e6, 1),
                total_mb=_mb(max((one.total for one in inside), default=0)),
                anon_mb=_mb(max((one.anon for one in inside), default=0)),
                stage_mb=_mb(max((sum(by_stage(one, stages).get(n, 0) for n in names) for one in inside), default=0)),
                published_mb=PUBLISHED_MB.get(span.phase),
            )
        )
    return found


def by_stage(reading: Reading, stages: Mapping[int, str]) -> dict[str, int]:
    """Bytes of PSS by stage; "base" is what belongs to none: the daemon, its fork server."""
    found: dict[str, int] = {}
    for pid, held in reading.processes.items():
        name = stages.get(pid, "base")
        found[name] = found.get(name, 0) + held.total
    return found


def truth_of_readings(readings: Sequence[Reading], views: Sequence[LedgerView]) -> Truth:
    """Of each full reading of the ledger, at the moment when it was made.

    `views`: every write that was seen, in order.
    """
    return _truth(readings, [(view.measured_ns, accounted(view)) for view in full_readings(views)])


def truth_of_writes(readings: Sequence[Reading], views: Sequence[LedgerView]) -> Truth:
    """Of each write of the ledger, at the moment when it was made, however old the figures in it are."""
    return _truth(readings, [(view.updated_ns, accounted(view)) for view in views])


def full_readings(views: Sequence[LedgerView]) -> list[LedgerView]:
    """The first write after each full reading; later ones repeat its figures, except of stages that come and go."""
    found: list[LedgerView] = []
    for view in views:
        if view.measured_ns and (not found or view.measured_ns != found[-1].measured_ns):
            found.append(view)
    return found


def _truth(readings: Sequence[Reading], told: Sequence[tuple[int, int]]) -> Truth:
    """`told`: (moment, bytes). Each is compared with the interval that the readings around its moment span."""
    begins = [one.begin_ns for one in readings]
    ends = [one.end_ns for one in readings]
    misses, percents = [], []
    for moment_ns, size in told:
        before = bisect_right(ends, moment_ns) - 1
        after = bisect_left(begins, moment_ns)
        if before < 0 or after >= len(readings):
            continue
        around = [one.total for one in readings[before : after + 1]]
        nearest = min(max(size, min(around)), max(around))
        misses.append(abs(size - nearest))
        percents.append(misses[-1] / max(nearest, 1) * 100)
    return Truth(
        compared=len(percents),
        max_percent=round(max(percents, default=0.0), 2),
        median_percent=round(statistics.median(percents), 2) if percents else 0.0,
        max_mb=_mb(max(misses, default=0)),
        over=sum(one > TRUTH_TARGET_PERCENT for one in percents),
    )


def _mb(size: int) -> float:
    return round(size / MB, 1)
