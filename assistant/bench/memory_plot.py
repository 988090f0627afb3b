"""Draws the memory timeline of a query as one SVG that needs nothing else: no script, no font, no address."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from assistant.bench.memory_phases import LISTENING, MB, PUBLISHED_MB, STANDBY, MemoryTimeline, Recorded, by_stage
from assistant.bench.observer import workers
from assistant.errors import UsageError

_LAYERS = ("base", "asr", "intent", "llm", "tts")
"""From the bottom to the top."""
_COLOURS = ("#f0a848", "#c0504d", "#9bbb59", "#4f81bd", "#8a8f98", "#d0006f", "#444444", "#7030a0")
"""Of the layers from the top to the bottom, and of the lines."""
_SVG = "http://www.w3.org/2000/svg"
_AHEAD_MS, _BEHIND_MS = 400.0, 600.0
"""What is drawn of the standby before, and of the time after."""

Point = tuple[float, float | None]


def write_plot(path: Path, seen: Recorded, found: MemoryTimeline) -> None:
    """Raises `UsageError` when `path` cannot be written."""
    try:
        path.write_bytes(plot(seen, found))
    except OSError as error:
        raise UsageError(f"the plot {path} cannot be written: {error.strerror}") from None


def plot(seen: Recorded, found: MemoryTimeline) -> bytes:
    """An SVG document: what each stage held over time, the phases, the published figures, and the usable budget."""
    import pygal
    from pygal.style import Style

    # pygal installs an import hook of an old kind for its plug-ins, which makes every later import warn
    sys.meta_path[:] = [one for one in sys.meta_path if type(one).__name__ != "PluginImportFixer"]

    sums = _cumulated(seen)
    top = max(value or 0 for _, value in sums[_LAYERS[-1]])
    published = _published(found)
    ceiling = max(top, *(value or 0 for _, value in published)) * 1.12
    in_range = found.usable_mb <= ceiling * 1.5
    ceiling = max(ceiling, found.usable_mb * 1.05) if in_range else ceiling
    first, last = sums["base"][0][0], sums["base"][-1][0]
    style = Style(
        background="white", plot_background="white", guide_stroke_color="#dddddd", major_guide_stroke_color="#dddddd",
        opacity="1", stroke_opacity="1", colors=_COLOURS,
        font_family="sans-serif", title_font_size=15, label_font_size=11, legend_font_size=12, major_label_font_size=11,
    )  # fmt: skip
    chart = pygal.XY(
        style=style, width=960, height=480, js=[], show_dots=False, print_values=False, legend_at_bottom=True,
        legend_at_bottom_columns=4, range=(0, ceiling), xrange=(first, last), allow_interruptions=True,
        x_title="milliseconds after the question", y_title="MB of PSS",
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
    return _plain(chart.render_tree())


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


def _plain(tree: Any) -> bytes:
    """Without scripts and comments: what a viewer shows without asking anybody, and what may stand in a README."""
    root = ElementTree.fromstring(_serialised(tree))  # noqa: S314 - it was made here, a moment ago
    _without_scripts(root)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text


def _serialised(tree: Any) -> bytes:
    from pygal.etree import etree

    # pygal uses lxml where it is there; from here on it is the same document for both
    text: bytes = etree.tostring(tree)
    return text


def _without_scripts(node: ElementTree.Element) -> None:
    children: Sequence[ElementTree.Element] = list(node)
    for child in children:
        if child.tag in (f"{{{_SVG}}}script", "script"):
            node.remove(child)
        else:
            _without_scripts(child)
