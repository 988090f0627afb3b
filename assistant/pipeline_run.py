"""What is known of a query so far, and the report that becomes of it. Imports `messages` and `query`; runs nothing."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from assistant.errors import AssistantError, ModelError
from assistant.memory_orchestrator.budget import Budget
from assistant.memory_orchestrator.figures import Peaks
from assistant.memory_orchestrator.probe import MIB, Usage
from assistant.messages import (
    STAGE_ORDER,
    AudioReport,
    Emit,
    ErrorReport,
    IntentReport,
    MemoryReport,
    Mode,
    Outcome,
    QueryReport,
    Stage,
    StageReport,
    Timings,
    Turn,
)
from assistant.pipeline_gate import Gate, GatedSink
from assistant.query import AudioSink, HeardSink, Query
from assistant.stages.supervisor import Supervisor


@dataclass(slots=True)
class Run:
    query: Query
    peaks: Peaks
    """Of all processes, during this query."""
    parts: dict[Stage, Supervisor]
    """Its stages, in the order in which it needs them: the same ones to its end, whatever the pressure says
    meanwhile."""
    emit: Emit
    llm: asyncio.Future[Supervisor] | None = None
    """Its LLM, as long as that is not known yet."""
    no_llm: ModelError | None = None
    """Why there is none among its stages."""
    gate: Gate = field(default_factory=lambda: Gate(opened=True))
    """Closed while it is not certain that the speaker has finished."""
    transcript: str = ""
    intent: IntentReport = field(default_factory=IntentReport)
    reply: str = ""
    handled: bool = False
    """Whether a command was carried out, or at least told what is the matter with it."""
    question: str = ""
    """What the LLM is asked beside the commands of the same sentence."""
    written: bool = False
    """Whether the LLM has told something."""
    asks: bool = False
    """Whether the reply ends with a question of ours."""
    history: tuple[Turn, ...] = ()
    """What was said in its conversation before."""
    forgotten: int = 0
    """The oldest turns of it, which the LLM's context has no room for any more."""
    said: list[tuple[str, float]] = field(default_factory=list)
    """Pieces of the reply of which sound went to the sink, and at which second of it that begins."""
    speculations: list[bool] = field(default_factory=list)
    """For each time that recognition began before the speaker had finished: whether he had."""
    started: float = field(init=False)
    """When the user had finished speaking (monotonic seconds); while he speaks, the query's start."""
    error: AssistantError | None = None
    timings: dict[str, float] = field(default_factory=dict)
    stages: list[StageReport] = field(default_factory=list)
    replaced: set[Stage] = field(default_factory=set)
    """Those of which was told that a local one has the place of a server."""

    def __post_init__(self) -> None:
        self.started = self.query.started

    # --- certain or not ---------------------------------------------------------------------------------------------
    def tell(self, event: str, /, **data: Any) -> None:
        """Of the answer."""
        self.gate.do(lambda: self.tell_now(event, **data))

    def tell_now(self, event: str, /, **data: Any) -> None:
        """Of the listening: what is heard is certain."""
        self.emit(event, {"query_id": self.query.id, **data})

    def sink(self) -> AudioSink | None:
        """Where its speech goes: to be asked for when the answer begins."""
        sink = self.query.sink
        return sink if sink is None or self.gate.is_open else GatedSink(sink, self.gate)

    def first_sound(self) -> None:
        """Goes to the sink now."""
        self.timings["speech_end_to_first_audio"] = self.since_start()

    def unanswered(self) -> None:
        """There was no answer: what was heard stays, and nothing else."""
        self.gate = Gate(opened=True)
        self.transcript = self.reply = self.question = ""
        self.intent = IntentReport()
        self.handled = self.written = self.asks = False
        self.forgotten, self.said = 0, []
        self.timings = {name: ms for name, ms in self.timings.items() if name == Stage.ASR}
        self.stages = [one for one in self.stages if one.name == Stage.ASR]
        self.replaced &= {Stage.ASR}
        for stage, supervisor in self.parts.items():
            if stage is not Stage.ASR:
                supervisor.run_ms = 0.0

    # --- figures ----------------------------------------------------------------------------------------------------
    def since_start(self) -> float:
        return ms_since(self.started)

    @property
    def spoken(self) -> list[str]:
        """Pieces of the reply that the user has heard something of, as far as the sink knows."""
        sink = self.query.sink
        heard_s = sink.heard_s if isinstance(sink, HeardSink) else float("inf")
        return [piece for piece, begins_s in self.said if begins_s < heard_s]

    def add_stage(self, supervisor: Supervisor, peak: Usage) -> None:
        self.stages.append(
            StageReport(
                name=supervisor.name,
                engine=supervisor.engine,
                model=supervisor.model,
                load_ms=round(supervisor.load_ms, 1),
                run_ms=round(supervisor.run_ms, 1),
                anon_mib=round(peak.anon / MIB, 1),
                file_mib=round(peak.file / MIB, 1),
            )
        )

    def report(self, outcome: Outcome, budget: Budget, mode: Mode) -> QueryReport:
        sink = self.query.sink
        audio = None
        if sink is not None and sink.seconds:
            audio = AudioReport(path=self.query.sink_path, sample_rate=sink.sample_rate, seconds=round(sink.seconds, 3))
        taken = {**self._worked(), "total": self.since_start(), **self.timings}
        timings = {name: round(value, 1) for name, value in taken.items()}
        return QueryReport(
            query_id=self.query.id,
            transcript=self.transcript,
            intent=self.intent,
            reply=self.reply,
            outcome=outcome,
            error=ErrorReport(**self.error.to_dict()) if self.error is not None else None,
            audio=audio,
            timings_ms=Timings(**timings),
            stages=tuple(sorted(self.stages, key=lambda one: STAGE_ORDER.index(Stage(one.name)))),
            memory=MemoryReport(
                budget_mib=round(budget.total / MIB, 1),
                margin_mib=round(budget.margin / MIB, 1),
                peak_mib=round(self.peaks.total / MIB, 1),
                peak_anon_mib=round(self.peaks.anon / MIB, 1),
                mode=mode,
            ),
        )

    def _worked(self) -> dict[str, float]:
        """What its stages have worked: of a query that was cut off in the middle of one, the only figure of that."""
        found: dict[str, float] = {}
        for one in self.stages:
            if one.name in (Stage.ASR, Stage.INTENT, Stage.LLM):
                found[one.name] = found.get(one.name, 0) + one.run_ms
        return found


def ms_since(started: float) -> float:
    return (time.monotonic() - started) * 1000
