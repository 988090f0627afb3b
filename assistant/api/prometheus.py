"""The daemon's figures for Prometheus: fed by its events, and by its status at the moment of a scrape. Imports
`prometheus_client`; imported only where it is enabled, and polls nothing.

A registry of its own, and few series: every label has a handful of values, and whatever goes beyond is "other".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from assistant.messages import STAGE_ORDER, Level, Outcome, QueryReport
from assistant.messages_status import Status

_MIB = 2**20
_SHORT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_HEARD = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 30)
_LEVELS: tuple[Level, ...] = get_args(Level)
_MOST_VALUES = 32
_STAGES = tuple(stage.value for stage in STAGE_ORDER)


class Line(Protocol):
    """The line of queries."""

    @property
    def waiting(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def refused(self) -> int: ...


class _Few:
    """The values of a label that nobody controls."""

    def __init__(self, most: int = _MOST_VALUES) -> None:
        self._known: set[str] = set()
        self._most = most

    def __call__(self, value: object) -> str:
        text = str(value)[:64]
        if text not in self._known and len(self._known) >= self._most:
            return "other"
        self._known.add(text)
        return text


class Figures:
    """`follow` takes the events; `page` is what is served."""

    def __init__(self, status: Callable[[], Status], line: Line | None = None) -> None:
        self.registry = CollectorRegistry()
        self._few: dict[str, _Few] = {}
        self._stage = self._histogram("stage_run_seconds", "What a stage worked for one query.", _SHORT, "stage")
        self._load = self._histogram("stage_load_seconds", "From the request to a loaded engine.", _SHORT, "stage")
        self._first = self._histogram("first_audio_seconds", "From the end of speech to the first sound.", _HEARD)
        self._query = self._histogram("query_seconds", "A whole query.", _SHORT, "outcome")
        self._service = self._histogram("service_seconds", "A single stage for another program.", _SHORT, "service")
        self._errors = self._counter("query_errors", "Queries that failed.", "code")
        self._refused = self._counter("memory_refusals", "What the ledger refused.", "code")
        self._evicted = self._counter("memory_evictions", "Stages that made room, or leaked.", "stage")
        self._guesses = self._counter("speculations", "Pauses taken for the end, and whether they were.", "hit")
        self._guessed = self._counter(
            "speculation_seconds", "Work that began at such pauses: head starts, or for nothing.", "hit"
        )
        self._wakes = self._counter("wakes", "Wake words heard.", "word")
        self._lost = self._counter("audio_device_losses", "Microphones and speakers lost.", "kind")
        self._restarts = self._counter("stage_restarts", "Workers that died at work and were started again.", "stage")
        for stage in _STAGES:
            self._stage.labels(stage)
            self._load.labels(stage)
            self._restarts.labels(stage)
        for hit in ("true", "false"):
            self._guesses.labels(hit)
            self._guessed.labels(hit)
        for outcome in Outcome:
            self._query.labels(outcome.value)
        self.registry.register(_Now(status, line))

    def follow(self, name: str, data: dict[str, Any]) -> None:
        match name:
            case "run-end":
                if isinstance(report := data.get("report"), QueryReport):
                    self._ended(report)
            case "service-end":
                self._service.labels(self._value("service", data["service"])).observe(data["ms"] / 1000)
            case "stage-load-end":
                self._load.labels(self._value("stage", data["stage"])).observe(data["load_ms"] / 1000)
            case "stage-restart":
                self._restarts.labels(self._value("stage", data["stage"])).inc()
            case "memory-deny":
                self._refused.labels(self._value("code", data["code"])).inc()
            case "memory-evict":
                self._evicted.labels(self._value("stage", data["stage"])).inc()
            case "stt-speculation":
                hit = "true" if data["hit"] else "false"
                self._guesses.labels(hit).inc()
                self._guessed.labels(hit).inc(data["ms"] / 1000)
            case "wake_word-end":
                self._wakes.labels(self._value("word", data["word"])).inc()
            case "audio-device-lost":
                self._lost.labels(self._value("kind", data["kind"])).inc()

    def page(self) -> bytes:
        """In Prometheus' text format, version 0.0.4."""
        return generate_latest(self.registry)

    def _ended(self, report: QueryReport) -> None:
        for name, run_ms in {stage.name: stage.run_ms for stage in report.stages}.items():
            self._stage.labels(self._value("stage", name)).observe(run_ms / 1000)
        timings = report.timings_ms
        if timings.speech_end_to_first_audio:
            self._first.observe(timings.speech_end_to_first_audio / 1000)
        self._query.labels(report.outcome.value).observe(timings.total / 1000)
        if report.error is not None:
            self._errors.labels(self._value("code", report.error.code)).inc()

    def _value(self, label: str, value: object) -> str:
        return self._few.setdefault(label, _Few())(value)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"assistant_{name}", help, labels, buckets=buckets, registry=self.registry)

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(f"assistant_{name}", help, labels, registry=self.registry)


class _Now:
    """What is so at the moment of a scrape."""

    def __init__(self, status: Callable[[], Status], line: Line | None) -> None:
        self._status, self._line = status, line

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        yield from _memory(status)
        level = _LEVELS.index(status.pressure.level)
        text = "How hard the machine is pressed: " + ", ".join(f"{at} {name}" for at, name in enumerate(_LEVELS)) + "."
        yield GaugeMetricFamily("assistant_pressure_level", text, level)
        yield GaugeMetricFamily("assistant_uptime_seconds", "Since the daemon's start.", status.uptime_s)
        if self._line is not None:
            yield GaugeMetricFamily("assistant_queries_waiting", "In the line.", self._line.waiting)
            yield GaugeMetricFamily("assistant_queries_running", "That are answered now.", self._line.running)
            yield CounterMetricFamily("assistant_line_refusals", "Refused at the door.", self._line.refused)
        if (voice := status.voice) is not None:
            yield CounterMetricFamily("assistant_audio_restarts", "Of the audio process.", voice.restarts)
            yield CounterMetricFamily("assistant_audio_overflows", "Blocks of sound lost.", voice.overflows)
            yield CounterMetricFamily("assistant_interruptions", "Answers interrupted.", voice.interruptions)
            yield CounterMetricFamily("assistant_unheard", "Woken, and nothing was understood.", voice.unheard)


def _memory(status: Status) -> Iterator[Metric]:
    sums = status.memory
    memory = GaugeMetricFamily("assistant_memory_bytes", "The ledger: all processes together.", labels=["what"])
    for what in ("budget", "margin", "base", "used", "peak"):
        memory.add_metric([what], getattr(sums, f"{what}_mib") * _MIB)
    yield memory
    stages = GaugeMetricFamily("assistant_stage_memory_bytes", "The ledger: by stage.", labels=["stage", "what"])
    for row in status.stages:
        for what in ("reserved", "anon", "file", "kv"):
            stages.add_metric([row.name, what], getattr(row, f"{what}_mib") * _MIB)
    yield stages
