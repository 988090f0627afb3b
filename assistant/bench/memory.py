"""The memory of one spoken query over time, seen by an observer that shares nothing with the orchestrator, and whether
the ledger tells the truth about it.

    assistant bench memory [--wav FILE] [--plot FILE.svg] [--set k=v]... [--json]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from assistant import paths
from assistant.api import wire
from assistant.audio.formats import read_audio
from assistant.bench.daemons import OwnDaemon, terminable
from assistant.bench.memory_phases import (
    ALWAYS_FREE_MB,
    MB,
    TRUTH_TARGET_PERCENT,
    MemoryTimeline,
    Recorded,
    Truth,
    phases,
    spans,
    truth_of_readings,
    truth_of_writes,
)
from assistant.bench.memory_plot import write_plot
from assistant.bench.observer import LedgerLog, TreeLog, workers
from assistant.bench.output import judge
from assistant.errors import UsageError

_SETTLE_S = 1.5


def record(question: Path, sets: Sequence[str], settle_s: float = _SETTLE_S) -> Recorded:
    """A daemon of its own, left alone, asked, left alone. Raises `BadAudio`, or what the query's report says."""
    pcm = read_audio(question).pcm
    events: list[tuple[int, str]] = []
    with OwnDaemon(sets) as daemon, TreeLog(daemon.pid) as tree, LedgerLog(daemon.ledger()) as ledger:
        time.sleep(settle_s)
        asked_ns = time.monotonic_ns()
        report = None
        for reply, _ in daemon.client.replies(daemon.client.ask(wire.Ask(speech=True), pcm)):
            if isinstance(reply, wire.Event):
                events.append((time.monotonic_ns(), reply.name))
            elif isinstance(reply, wire.Report):
                report = reply
        time.sleep(settle_s)
        # copies: the threads go on until the daemon is told to end
        readings, views = list(tree.readings), list(ledger.views)
    assert report is not None
    if report.error is not None:
        raise UsageError(f"the query failed: {report.error.message}", code=report.error.code)
    parts = spans(readings[0].begin_ns, asked_ns, readings[-1].end_ns, events)
    return Recorded(asked_ns, report, parts, readings, views)


def judged(seen: Recorded) -> MemoryTimeline:
    peak = max(one.total for one in seen.readings)
    last = seen.views[-1]
    during = [one for one in seen.readings if one.end_ns > seen.asked_ns] or seen.readings
    real = truth_of_readings(seen.readings, seen.views)
    first, final = seen.readings[0], seen.readings[-1]
    return MemoryTimeline(
        transcript=seen.report.transcript,
        reply=seen.report.reply,
        mode=seen.report.memory.mode,
        total_ms=seen.report.timings_ms.total,
        phases=tuple(phases(seen.readings, seen.spans, workers(seen.views), seen.asked_ns)),
        peak_mb=_mb(peak),
        ledger_peak_mb=_mb(last.peak_total),
        budget_mb=_mb(last.budget),
        usable_mb=_mb(last.budget - last.margin),
        kept_free_mb=_mb(last.budget - peak),
        lowest_available_mb=_mb(min(one.available for one in during)),
        readings=len(seen.readings),
        reading_ms=round((final.end_ns - first.begin_ns) / 1e6 / len(seen.readings), 1),
        truth_of_readings=real,
        truth_of_writes=truth_of_writes(seen.readings, seen.views),
        reached=real.max_percent <= TRUTH_TARGET_PERCENT and peak <= last.budget - last.margin,
    )


def _mb(size: int) -> float:
    return round(size / MB, 1)


def table(found: MemoryTimeline) -> str:
    lines = [f"heard {found.transcript!r}, said {found.reply!r}; {found.mode}, {found.total_ms:.0f} ms", ""]
    lines.append(f"{'phase':<15}{'ms':>14}{'all of ours':>13}{'anonymous':>11}{'the stage':>11}{'published':>11}")
    for one in found.phases:
        published = "" if one.published_mb is None else f"{'+' * (one.name == 'listening')}{one.published_mb:.0f}"
        span = f"{one.begin_ms:.0f}..{one.end_ms:.0f}"
        stage = f"{one.stage_mb:.0f}" if one.stage_mb else ""
        lines.append(f"{one.name:<15}{span:>14}{one.total_mb:>13.0f}{one.anon_mb:>11.0f}{stage:>11}{published:>11}")
    lines.append("peaks of PSS in MB; published: standby of the whole system, the others of the stage")
    lines.append(
        f"\npeak {found.peak_mb:.0f} MB (ledger: {found.ledger_peak_mb:.0f}) of {found.usable_mb:.0f} MB usable;"
        f" {found.kept_free_mb:.0f} MB of the budget kept free (published: at least {ALWAYS_FREE_MB:.0f});"
        f" lowest MemAvailable {found.lowest_available_mb:.0f} MB"
    )
    lines.append("ledger against observer:")
    lines.append(f"  {_told('full readings', found.truth_of_readings)}; target: {TRUTH_TARGET_PERCENT:.0f} %")
    lines.append(f"  {_told('all writes', found.truth_of_writes)}; no target: figures may be older than the write")
    lines.append(
        f"observer: {found.readings} readings, one each {found.reading_ms:.0f} ms; targets: full readings of the ledger"
        f" at most {TRUTH_TARGET_PERCENT:.0f} % off, peak within what is usable"
    )
    return "\n".join(lines)


def _told(name: str, truth: Truth) -> str:
    return (
        f"{name}: {truth.compared}, at most {truth.max_percent:.1f} % ({truth.max_mb:.0f} MB) off,"
        f" median {truth.median_percent:.1f} %, {truth.over} more than {TRUTH_TARGET_PERCENT:.0f} %"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns 0 when the targets are reached, 1 when not, or the exit status of the error."""
    parser = argparse.ArgumentParser(prog="assistant bench memory", description="The memory of one spoken query.")
    parser.add_argument("--wav", type=Path, default=paths.data_file("question.wav"), help="another spoken question")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw it, too")
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="KEY=VALUE", help="a setting")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    args = parser.parse_args(argv)

    def measure() -> MemoryTimeline:
        seen = record(args.wav, args.sets)
        found = judged(seen)
        if args.plot is not None:
            write_plot(args.plot, seen, found)
        return found

    with terminable():
        return judge(measure, table, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
