"""One query through the stages: speech → transcript → intent → skill or LLM → speech. Ends every query exactly once.

Strictly one heavy stage at a time: each lease ends before the next is asked for. Only the small intent stage loads
beside the recogniser. Whatever happens, the caller gets a `QueryReport`; only a cancel is raised, after its report
was handed to `on_event`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime

from assistant import skills
from assistant.audio import vad
from assistant.errors import AssistantError, Cancelled, EngineFailed, NoSpeech
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.memory_orchestrator.probe import MIB
from assistant.messages import (
    AsrRequest,
    AudioReport,
    Emit,
    ErrorReport,
    IntentMatch,
    IntentReport,
    IntentRequest,
    LlmDelta,
    LlmDone,
    LlmRequest,
    MemoryReport,
    Outcome,
    QueryReport,
    Sampling,
    Stage,
    StageOutput,
    StageReport,
    StageRequest,
    Timings,
    Transcript,
    TtsAudio,
    TtsRequest,
    Turn,
)
from assistant.query import Answer, AudioSink, Query, checked_text
from assistant.speech_text import speakable
from assistant.stages.supervisor import Supervisor
from assistant.tasks import in_own_thread

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmSettings:
    system_prompt: str
    sampling: Sampling
    max_new_tokens: int


@dataclass(slots=True)
class _Run:
    """What is known of a query so far."""

    query: Query
    transcript: str = ""
    intent: IntentReport = field(default_factory=IntentReport)
    reply: str = ""
    error: AssistantError | None = None
    timings: dict[str, float] = field(default_factory=dict)
    stages: list[StageReport] = field(default_factory=list)

    def since_start(self) -> float:
        return (time.monotonic() - self.query.started) * 1000


class Pipeline:
    def __init__(
        self,
        *,
        memory: MemoryOrchestrator,
        stages: Callable[[Stage], Supervisor],
        llm: LlmSettings,
        emit: Emit = lambda name, data: None,
        now: Callable[[], datetime] = datetime.now,
        lease_deadline_s: float = 30,
    ) -> None:
        """`stages` gives the supervisor of a stage, or raises `ModelError` when its model cannot be used."""
        self._memory = memory
        self._stages = stages
        self._llm = llm
        self._emit = emit
        self._now = now
        self._lease_deadline_s = lease_deadline_s

    async def answer(self, query: Query) -> Answer:
        """Answers one query. Errors are in the report; a cancelled task gets its report as event `run-end`."""
        run = _Run(query)
        outcome = Outcome.FAILED
        self._emit("run-start", {"query_id": query.id})
        try:
            self._check_models(query)
            handled = await self._answer(run)
            outcome = Outcome.HANDLED if handled else Outcome.ANSWERED
        except AssistantError as error:
            run.error = error
            self._emit("error", {"query_id": query.id, **error.to_dict()})
        except asyncio.CancelledError:
            outcome, run.error = Outcome.CANCELLED, Cancelled("the query was cancelled")
            raise
        finally:
            report = self._report(run, outcome)
            self._emit("run-end", {"query_id": query.id, "outcome": outcome.value, "report": report})
        return Answer(report, run.error)

    def _check_models(self, query: Query) -> None:
        """A model that is missing is told before anybody waits for an answer that cannot be spoken.

        Figures start anew: a query that finds a stage loaded has not paid for its load.
        """
        wanted = [Stage.INTENT, Stage.LLM]
        wanted += [Stage.ASR] if query.pcm is not None else []
        wanted += [Stage.TTS] if query.sink is not None else []
        for stage in wanted:
            self._stages(stage).reset_figures()

    async def _answer(self, run: _Run) -> bool:
        """Whether a local command was handled (True) or the LLM answered (False)."""
        if run.query.pcm is not None:
            run.transcript = await self._transcribe(run, run.query.pcm)
        else:
            run.transcript = checked_text(run.query.text or "")
        match = await self._recognise(run)
        reply = skills.answer(match.name, match.slots, self._now()) if match.name else None
        if reply is not None:
            run.reply = reply
        else:
            await self._generate(run)
        if run.query.sink is not None:
            await self._speak(run, run.query.sink)
        return reply is not None

    # --- stages -----------------------------------------------------------------------------------------------------
    async def _transcribe(self, run: _Run, read: Callable[[], bytes]) -> str:
        started = time.monotonic()
        self._emit("stt-start", {"query_id": run.query.id})
        # both load while the recording is read and searched for speech
        warming = [asyncio.create_task(self._warm(stage)) for stage in (Stage.ASR, Stage.INTENT)]
        try:
            speech = await in_own_thread(functools.partial(_speech_of, read))
            text = await self._hear(run, speech)
        except BaseException:
            for task in warming:
                task.cancel()
            raise
        finally:
            await asyncio.gather(*warming, return_exceptions=True)
        run.timings["asr"] = _ms_since(started)
        if not text:
            raise NoSpeech("nothing was understood", stage=Stage.ASR)
        self._emit("stt-end", {"query_id": run.query.id, "text": text})
        return text

    async def _hear(self, run: _Run, speech: bytes) -> str:
        text = ""
        async with self._leased(run, Stage.ASR) as stage:
            async for out in stage(AsrRequest(pcm=speech)):
                if isinstance(out, Transcript) and out.final:
                    text = out.text.strip()
        return text

    async def _recognise(self, run: _Run) -> IntentMatch:
        started = time.monotonic()
        self._emit("intent-start", {"query_id": run.query.id})
        match = IntentMatch(name=None)
        async with self._leased(run, Stage.INTENT) as stage:
            async for out in stage(IntentRequest(text=run.transcript)):
                if isinstance(out, IntentMatch):
                    match = out
        run.intent = IntentReport(name=match.name, score=match.score, slots=match.slots, source=match.source)
        run.timings["intent"] = _ms_since(started)
        self._emit("intent-end", {"query_id": run.query.id, "name": match.name})
        return match

    async def _generate(self, run: _Run) -> None:
        started, cut = time.monotonic(), False
        turns = [Turn(role="user", content=run.transcript)]
        if self._llm.system_prompt:
            turns.insert(0, Turn(role="system", content=self._llm.system_prompt))
        request = LlmRequest(turns=tuple(turns), sampling=self._llm.sampling, max_new_tokens=self._llm.max_new_tokens)
        async with self._leased(run, Stage.LLM) as stage:
            async for out in stage(request):
                if isinstance(out, LlmDelta):
                    run.timings.setdefault("llm_first_token", _ms_since(started))
                    run.reply += out.text
                    self._emit("reply-delta", {"query_id": run.query.id, "text": out.text})
                elif isinstance(out, LlmDone):
                    cut = out.reason == "length"
        run.timings["llm"] = _ms_since(started)
        run.reply = run.reply.strip()
        if not run.reply:
            raise EngineFailed("the model gave no answer; ask in other words", code="llm-no-answer", stage=Stage.LLM)
        if cut:  # by stages.llm.max_new_tokens, and nobody shall take it for the whole
            run.reply += " …"

    async def _speak(self, run: _Run, sink: AudioSink) -> None:
        text = speakable(run.reply)
        if not text:
            return
        started = time.monotonic()
        self._emit("tts-start", {"query_id": run.query.id, "text": text})
        async with self._leased(run, Stage.TTS) as stage:
            async for out in stage(TtsRequest(text=text)):
                if isinstance(out, TtsAudio):
                    if "tts_first_audio" not in run.timings:
                        run.timings["tts_first_audio"] = _ms_since(started)
                        run.timings["speech_end_to_first_audio"] = run.since_start()
                    sink.write(out.pcm, out.sample_rate)
        self._emit("tts-end", {"query_id": run.query.id})

    @contextlib.asynccontextmanager
    async def _leased(
        self, run: _Run, which: Stage
    ) -> AsyncIterator[Callable[[StageRequest], AsyncIterator[StageOutput]]]:
        """A loaded stage; what it cost goes into the report, whether it succeeded or not."""
        supervisor = self._stages(which)
        async with self._memory.lease(supervisor, deadline_s=self._lease_deadline_s):
            try:
                yield supervisor.run
            finally:
                peak = self._memory.peak_of(supervisor.name)
                run.stages.append(
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

    async def _warm(self, which: Stage) -> None:
        """Loads a stage ahead if the ledger admits it; the lease that needs it reports what goes wrong."""
        try:
            async with self._memory.lease(self._stages(which), deadline_s=0):
                return
        except AssistantError as error:
            log.info("%s was not loaded ahead: %s", which, error.message)

    # --- report -----------------------------------------------------------------------------------------------------
    def _report(self, run: _Run, outcome: Outcome) -> QueryReport:
        sink = run.query.sink
        audio = None
        if sink is not None and sink.seconds:
            audio = AudioReport(path=run.query.sink_path, sample_rate=sink.sample_rate, seconds=round(sink.seconds, 3))
        timings = {name: round(value, 1) for name, value in run.timings.items()}
        return QueryReport(
            query_id=run.query.id,
            transcript=run.transcript,
            intent=run.intent,
            reply=run.reply,
            outcome=outcome,
            error=ErrorReport(**run.error.to_dict()) if run.error is not None else None,
            audio=audio,
            timings_ms=Timings(**timings, total=round(run.since_start(), 1)),
            stages=tuple(run.stages),
            memory=MemoryReport(
                budget_mib=round(self._memory.budget.total / MIB, 1),
                margin_mib=round(self._memory.budget.margin / MIB, 1),
                peak_mib=round(self._memory.peaks.total / MIB, 1),
                peak_anon_mib=round(self._memory.peaks.anon / MIB, 1),
                mode="sequential",
            ),
        )


def _speech_of(read: Callable[[], bytes]) -> bytes:
    """The part of the recording in which somebody speaks, s16le mono 16 kHz. Raises `BadAudio`, `NoSpeech`."""
    pcm = read()
    spans = vad.speech_spans(pcm)
    if not spans:
        raise NoSpeech("nobody speaks in this recording", stage=Stage.ASR)
    return vad.trim_to_speech(pcm, spans)


def _ms_since(started: float) -> float:
    return (time.monotonic() - started) * 1000
