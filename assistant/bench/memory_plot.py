"""Draws the memory timeline of a query as one SVG that needs nothing else: no script, no font, no address."""

from __future__ import annotations

from pathlib import Path

from assistant.bench import plots
from assistant.bench.memory_phases import LISTENING, MB, PUBLISHED_MB, STANDBY, MemoryTimeline, Recorded, by_stage
from assistant.bench.observer import workers

_LAYERS = ("base", "asr", "intent", "llm", "tts")
"""From the bottom to the top."""
_COLOURS = (*(plots.STAGE_COLOURS[name] for name in reversed(_LAYERS)), "#d0006f", "#444444", "#7030a0")
"""Of the layers from the top to the bottom, and of the lines."""
_AHEAD_MS, _BEHIND_MS = 400.0, 600.0
"""What is drawn of the standby before, and of the time after."""

Point = tuple[float, float | None]


def write_plot(path: Path, seen: Recorded, found: MemoryTimeline) -> None:
    """Raises `UsageError` when `path` cannot be written."""
    plots.write(path, plot(seen, found))


def plot(seen: Recorded, found: MemoryTimeline) -> bytes:
    """An SVG document: what each stage held over time, the phases, the published figures, and the usable budget."""
    sums = _cumulated(seen)
    top = max(value or 0 for _, value in sums[_LAYERS[-1]])
    published = _published(found)
    ceiling = max(top, *(value or 0 for _, value in published)) * 1.12
    in_range = found.usable_mb <= ceiling * 1.5
    ceiling = max(ceiling, found.usable_mb * 1.05) if in_range else ceiling
    first, last = sums["base"][0][0], sums["base"][-1][0]
    chart = plots.chart(
        _COLOURS, show_dots=False, legend_at_bottom_columns=4, range=(0, ceiling), xrange=(first, last),
        allow_interruptions=True, x_title="milliseconds after the question", y_title="MB of PSS",
        title=_title(found, in_range), x_value_formatter=lambda x: f"{x:.0f}", value_formatter=lambda y: f"{y:.0f}",
    )  # fmt: skip
    # the highest sum first: each lower one is painted over it, and what stays visible is the stage's own share
    for name in reversed(_LAYERS):
        chart.add(name, sums[name], fill=True, stroke_style={"width": 0.5})
    chart.add("published figures", published, stroke_style={"width": 2.5, "dasharray": "6, 4"})
    chart.add("phases", _marks(found, first, last, ceiling), stroke_style={"width": 1, "dasharray": "2, 3"})
    if in_range:
        budget = [(first, found.usable_mb), (last, found.usable_mb)]
        chart.add("usable budget", budget, stroke_style={"width": 2})
    return plots.svg(chart)


def _title(found: MemoryTimeline, in_range: bool) -> str:
    budget = "" if in_range else f"; usable budget {found.usable_mb:.0f} MB, above this range"
    marks = ", ".join(f"{one.name} {one.begin_ms:.0f}..{one.end_ms:.0f}" for one in found.phases[1:-1])
    return f"Memory of one spoken query ({found.mode}): peak {found.peak_mb:.0f} MB{budget}\n{marks} ms"


def _cumulated(seen: Recorded) -> dict[str, list[Point]]:
    """Of each layer, it and all below it: (ms, MB)."""
    stages = workers(seen.views)
    found: dict[str, list[Point]] = {name: [] for name in _LAYERS}
    end_ms = max(span.begin_ns for span in seen.spans)
    for reading in seen.readings:
        at = ((reading.begin_ns + reading.end_ns) / 2 - seen.asked_ns) / 1e6
        if not -_AHEAD_MS <= at <= (end_ms - seen.asked_ns) / 1e6 + _BEHIND_MS:
            continue
        held, so_far = by_stage(reading, stages), 0.0
        for name in _LAYERS:
            so_far += held.get(name, 0) / MB
            found[name].append((round(at, 1), round(so_far, 2)))
    return found


def _published(found: MemoryTimeline) -> list[Point]:
    """A level for each phase that has one; `None` breaks the line."""
    points: list[Point] = []
    for one in found.phases:
        level = PUBLISHED_MB.get(one.name)
        if level is not None:
            level += PUBLISHED_MB[STANDBY] if one.name == LISTENING else 0
            begin = max(one.begin_ms, -_AHEAD_MS)
            points += [(begin, level), (one.end_ms, level), (one.end_ms, None)]
    return points


def _marks(found: MemoryTimeline, first: float, last: float, ceiling: float) -> list[Point]:
    """A vertical line where a phase begins."""
    points: list[Point] = []
    for one in found.phases:
        if first < one.begin_ms < last:
            points += [(one.begin_ms, 0.0), (one.begin_ms, ceiling), (one.begin_ms, None)]
    return points
