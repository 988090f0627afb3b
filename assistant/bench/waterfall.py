"""Draws what happened in a spoken query, stage under stage, and the memory timeline under it, as one SVG.

Loads come from the events and the times at which they were emitted, work from what the supervisors of the stages noted,
drafts that were dropped included. The zero of the axis is the end of speech. Imports `plots` for what all plots share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import msgspec

from assistant.bench import plots
from assistant.bench.e2e_child import Event, Work
from assistant.bench.e2e_runs import Seen
from assistant.bench.memory_phases import by_stage

PANELS = 4
_LAYERS = ("base", "asr", "intent", "llm", "tts")
"""From the bottom to the top."""
_COLOURS = {**plots.STAGE_COLOURS, "speech": "#444444", "silence": "#bbbbbb", "playing": "#d0006f"}
_NAMES = {"asr": "ASR", "intent": "intent", "llm": "LLM", "tts": "TTS", "base": "daemon, fork server"}
_MIB = 2**20
_PLAYING_MS = 500.0
"""What is drawn of the answer, which may be long."""
_LEFT, _RIGHT, _WIDTH, _ROW, _TITLE, _MEMORY, _AXIS, _GAP = 150, 20, 960, 17, 40, 110, 22, 26


class Span(msgspec.Struct, frozen=True):
    """Milliseconds after the end of speech."""

    row: str
    kind: str
    """A stage, or speech | silence | playing."""
    begin_ms: float
    end_ms: float
    is_load: bool = False


def write_plot(path: Path, seen: Sequence[Seen]) -> None:
    """Raises `UsageError` when `path` cannot be written."""
    plots.write(path, plot(chosen(seen)))


def chosen(seen: Sequence[Seen]) -> list[Seen]:
    """The ones with nothing loaded, and the first one of those with everything loaded."""
    cold = [one for one in seen if one.state == "cold"]
    warm = [one for one in seen if one.state == "warm"]
    return [*cold[: PANELS - 1], *warm[:1]]


# --- spans ----------------------------------------------------------------------------------------------------------
def spans_of(seen: Seen) -> list[Span]:
    """In the order of the rows."""
    answered, one = seen.answered, seen.utterance
    zero_s = answered.began_s + one.speech_end_s

    def ms(at_s: float) -> float:
        return round((at_s - zero_s) * 1000, 1)

    found = [
        Span("speech", "speech", ms(answered.began_s), 0.0),
        Span("silence", "silence", 0.0, round((one.decided_s - one.speech_end_s) * 1000, 1)),
    ]
    for stage in ("asr", "intent", "llm", "tts"):
        loads = _loads(answered.events, stage)
        found += [Span(f"{_NAMES[stage]} load", stage, ms(begin), ms(end), is_load=True) for begin, end in loads]
        work = sorted((one for one in answered.work if one.stage == stage), key=lambda one: one.begun_s)
        found += [Span(row, stage, ms(begin), ms(end)) for one in work for row, begin, end in _parts(one)]
    if answered.first_audio_s:
        begin = ms(answered.first_audio_s)
        found.append(Span("playing", "playing", begin, begin + min(answered.audio_s * 1000, _PLAYING_MS)))
    # rows of a stage stand together; what happens behind the beginning of the answer is of no interest
    rows = list(dict.fromkeys(span.row for span in found))
    last = found[-1].end_ms if answered.first_audio_s else max(span.end_ms for span in found)
    drawn = [msgspec.structs.replace(span, end_ms=min(span.end_ms, last)) for span in found if span.begin_ms < last]
    return sorted(drawn, key=lambda span: rows.index(span.row))


def _loads(events: Sequence[Event], stage: str) -> Iterator[tuple[float, float]]:
    """One that was never finished is left out."""
    begun = 0.0
    for event in events:
        if event.data.get("stage") == stage:
            if event.name == "stage-load-start":
                begun = event.at_s
            elif event.name == "stage-load-end" and begun:
                yield begun, event.at_s
                begun = 0.0


def _parts(work: Work) -> Iterator[tuple[str, float, float]]:
    """(row, begin, end) in monotonic seconds."""
    name, first = _NAMES[work.stage], work.first_s or work.ended_s
    if work.ahead:
        yield f"{name} reads ahead", work.begun_s, work.ended_s
    elif work.stage == "llm":
        yield f"{name} first token", work.begun_s, first
        yield f"{name} goes on", first, work.ended_s
    elif work.stage == "tts":
        yield f"{name} first audio", work.begun_s, first
        yield f"{name} goes on", first, work.ended_s
    else:
        yield name, work.begun_s, work.ended_s


# --- drawing --------------------------------------------------------------------------------------------------------
def plot(seen: Sequence[Seen]) -> bytes:
    """An SVG document with a panel for each query."""
    root = ElementTree.Element("svg", xmlns="http://www.w3.org/2000/svg")
    root.append(_element("rect", width="100%", height="100%", fill="white"))
    top = 0.0
    for one in seen:
        panel = _Panel(one, top)
        root.extend(panel.elements())
        top = panel.bottom + _GAP
    root.set("viewBox", f"0 0 {_WIDTH} {top:.0f}")
    root.set("width", str(_WIDTH))
    root.set("height", f"{top:.0f}")
    root.set("font-family", "sans-serif")
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text


class _Panel:
    def __init__(self, seen: Seen, top: float) -> None:
        self._seen = seen
        self._spans = spans_of(seen)
        self._rows = list(dict.fromkeys(span.row for span in self._spans))
        self._first = min(span.begin_ms for span in self._spans)
        self._last = max(span.end_ms for span in self._spans)
        self._top = top
        self._below_rows = top + _TITLE + len(self._rows) * _ROW
        self._floor = self._below_rows + 12 + _MEMORY
        self.bottom = self._floor + _AXIS

    def elements(self) -> Iterator[ElementTree.Element]:
        yield from self._heading()
        yield from self._axis()
        yield from self._memory()
        for span in self._spans:
            yield from self._bar(span)
        for name, at in self._marks():
            x = self._x(at)
            yield _line(x, self._top + _TITLE - 4, x, self._floor, "#444444", dash="3,3")
            yield _text(x, self._top + _TITLE - 7, name, anchor="middle", size=9)

    def _x(self, ms: float) -> float:
        share = (ms - self._first) / max(self._last - self._first, 1.0)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def _heading(self) -> Iterator[ElementTree.Element]:
        report = self._seen.answered.report
        yield _text(
            _LEFT, self._top + 18, f"{self._seen.state}: {report.transcript!r} -> {report.reply!r}"[:110], size=12
        )

    def _marks(self) -> Iterator[tuple[str, float]]:
        yield "end of speech", 0.0
        decided = next(span.end_ms for span in self._spans if span.kind == "silence")
        yield "decided", decided
        first = next((span.begin_ms for span in self._spans if span.kind == "playing"), None)
        if first is not None:
            yield f"first audio +{first - decided:.0f} ms", first

    def _axis(self) -> Iterator[ElementTree.Element]:
        step = next(one for one in (100, 250, 500, 1000, 5000) if (self._last - self._first) / one <= 14 or one == 5000)
        tick = -(-self._first // step) * step
        while tick <= self._last:
            x = self._x(tick)
            yield _line(x, self._top + _TITLE, x, self._floor, "#dddddd")
            yield _text(x, self._floor + 13, f"{tick:.0f}", anchor="middle", size=10)
            tick += step
        yield _text(_LEFT - 30, self._floor + 13, "ms after end of speech", anchor="end", size=10)

    def _bar(self, span: Span) -> Iterator[ElementTree.Element]:
        y = self._top + _TITLE + self._rows.index(span.row) * _ROW
        width = max(self._x(span.end_ms) - self._x(span.begin_ms), 1.0)
        yield _text(_LEFT - 6, y + 12, span.row, anchor="end", size=11)
        bar = _element(
            "rect", x=self._x(span.begin_ms), y=y + 2, width=width, height=_ROW - 4, fill=_COLOURS[span.kind]
        )
        if span.is_load:
            bar.set("fill-opacity", "0.45")
        yield bar
        if span.kind not in ("speech", "playing") and span.end_ms < self._last:  # else it goes on behind the edge
            told = f"{span.end_ms - span.begin_ms:.0f} ms"
            right = self._x(span.end_ms) + 4
            fits = right + 45 < _WIDTH
            yield _text(right if fits else right - width - 8, y + 12, told, anchor="start" if fits else "end", size=10)

    def _memory(self) -> Iterator[ElementTree.Element]:
        """PSS of each stage's worker upon that of the others."""
        seen, zero_s = self._seen, self._seen.answered.began_s + self._seen.utterance.speech_end_s
        points: list[tuple[float, dict[str, int]]] = []
        for reading in seen.readings:
            at = (reading.begin_ns + reading.end_ns) / 2e6 - zero_s * 1000
            if self._first <= at <= self._last:
                points.append((self._x(at), by_stage(reading, seen.answered.pids)))
        if len(points) < 2:
            return
        top = max(sum(held.values()) for _, held in points)
        below = [0] * len(points)
        for layer in _LAYERS:
            above = [low + held.get(layer, 0) for low, (_, held) in zip(below, points, strict=True)]
            if above != below:
                edge = [(x, self._y(size, top)) for (x, _), size in zip(points, above, strict=True)]
                edge += [(x, self._y(size, top)) for (x, _), size in reversed(list(zip(points, below, strict=True)))]
                path = " ".join(f"{x:.1f},{y:.1f}" for x, y in edge)
                area = _element("polygon", points=path, fill=_COLOURS[layer])
                area.append(_element("title", text=_NAMES[layer]))
                yield area
            below = above
        yield _text(_LEFT - 6, self._y(top, top) + 4, f"peak {top / _MIB:.0f} MiB", anchor="end", size=10)
        yield _text(_LEFT - 6, self._floor - 2, "memory (PSS), all processes", anchor="end", size=10)

    def _y(self, size: int, top: int) -> float:
        return self._floor - size / max(top, 1) * _MEMORY


def _element(tag: str, text: str = "", **attributes: str | float) -> ElementTree.Element:
    plain = {name: value if isinstance(value, str) else f"{value:.1f}" for name, value in attributes.items()}
    found = ElementTree.Element(tag, plain)
    found.text = text or None
    return found


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int) -> ElementTree.Element:
    found = _element("text", text, x=x, y=y, fill="#222222")
    found.set("text-anchor", anchor)
    found.set("font-size", str(size))
    return found


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, dash: str = "") -> ElementTree.Element:
    found = _element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour)
    if dash:
        found.set("stroke-dasharray", dash)
    return found
