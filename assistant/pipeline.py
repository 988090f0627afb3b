"""One query through the stages: speech → transcript → intent → skill or LLM → speech. Ends every query exactly once.

Each stage is leased for as long as it works and no longer; what comes next is made ready meanwhile, as far as the
ledger admits. The answer is spoken while the LLM still decodes where the voice fits beside it; else one after the
other. Whatever happens, the caller gets a `QueryReport`; only a cancel is raised, after its report was handed to
`on_event`. What was said stays in the query's conversation, if it has one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import aclosing, asynccontextmanager
from datetime import datetime

from assistant.conversation_line import Line
from assistant.conversations import Conversations
from assistant.errors import AssistantError, BadText, Cancelled, EngineFailed, MemoryRefused
from assistant.memory_orchestrator.elastic import check_admitted
from assistant.memory_orchestrator.journey import Journey
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.messages import (
    Emit,
    Level,
    LlmDelta,
    LlmDone,
    LlmRequest,
    Outcome,
    Stage,
)
from assistant.pipeline_ahead import Ahead
from assistant.pipeline_commands import Commands
from assistant.pipeline_draft import Draft
from assistant.pipeline_fallback import Away, Fallback, Instead, nothing_instead
from assistant.pipeline_hear import Listener
from assistant.pipeline_leases import Leases
from assistant.pipeline_llm import CUT, LlmSettings, begun_request, heard, llm_figures, request_of
from assistant.pipeline_parts import Lookup, Parts
from assistant.pipeline_run import Run, ms_since
from assistant.pipeline_say import Sayer, Saying, spoken_language
from assistant.pipeline_speech import Pieces, put
from assistant.query import (
    Answer,
    AudioSink,
    HeardSink,
    IntentHandlers,
    Query,
    checked_conversation,
    checked_text,
)
from assistant.sentences import SentenceSplitter
from assistant.skills import Context
from assistant.stages.registry import REMOTE
from assistant.tasks import both


class Pipeline:
    def __init__(
        self,
        *,
        memory: MemoryOrchestrator,
        stages: Lookup,
        llm: LlmSettings,
        conversations: Conversations | None = None,
        handlers: IntentHandlers | None = None,
        context: Callable[..., Context] = Context,
        instead: Instead = nothing_instead,
        away: Away = lambda local: None,
        emit: Emit = lambda name, data: None,
        now: Callable[[], datetime] = datetime.now,
        guarded: Collection[str] = (),
        lease_deadline_s: float = 30,
    ) -> None:
        """`stages` looks up the supervisor of a stage. `handlers`: other programs that carry out intents. `context`:
        makes what skills are given of what a query has. `guarded`: devices that are switched after a yes alone.
        `instead`, `away`: see `pipeline_fallback`."""
        self._memory = memory
        self._parts = Parts(memory, stages)
        self._llm = llm
        self._conversations = Conversations() if conversations is None else conversations
        self._at_llm, self._in_conversation = Line(llm.slots), Line()
        self._emit = emit
        self._fallback = Fallback(instead, away)
        self._leases = Leases(memory, self._fallback, lease_deadline_s)
        self._ahead = Ahead(memory, lambda run, text: begun_request(run, text, llm, self._level))
        self._listener = Listener(leased=self._leases, ahead=self._ahead, fallback=self._fallback)
        self._sayer = Sayer(leased=self._leases, fallback=self._fallback)
        self._commands = Commands(leased=self._leases, handlers=handlers, context=context, now=now, guarded=guarded)
        self._lease_deadline_s = lease_deadline_s

    async def answer(self, query: Query) -> Answer:
        """Answers one query. Errors are in the report; a cancelled task gets its report as event `run-end`."""
        figures = self._memory.holdings.figures
        outcome = Outcome.FAILED
        with figures.watch() as peaks:
            run = Run(query, peaks, {}, self._emit)
            run.tell_now("run-start")
            try:
                check_admitted(query.urgency, self._level)
                async with self._conversation(run):
                    async with self._parts.of(run) as stages:
                        with self._memory.journey(stages) as journey:
                            handled = await self._answer(run, journey)
                    run.timings["total"] = run.since_start()
                    if isinstance(query.sink, HeardSink):  # what is interrupted now is not remembered
                        await query.sink.finished()
                outcome = Outcome.HANDLED if handled else Outcome.ANSWERED
            except AssistantError as error:
                run.error = error
                run.tell_now("error", **error.to_dict())
            except asyncio.CancelledError:
                outcome, run.error = Outcome.CANCELLED, Cancelled("the query was cancelled")
                raise
            finally:
                report = run.report(outcome, figures.budget, figures.mode)
                run.tell_now("run-end", outcome=outcome.value, report=report)
        return Answer(report, run.error, run.asks)

    @asynccontextmanager
    async def _conversation(self, run: Run) -> AsyncIterator[None]:
        """The query's turn in its conversation: alone, with what was said before, and with what was said remembered."""
        name = run.query.conversation
        if not name:
            yield
            return
        checked_conversation(name)
        async with self._in_conversation.turn(name, self._lease_deadline_s, what=f"conversation {name!r}"):
            run.history, whole = self._conversations.history(name), False
            try:
                yield
                whole = True
            finally:
                reply = heard(run, whole=whole)
                if run.transcript and reply:
                    self._conversations.remember(name, run.history, run.transcript, reply, dropped=run.forgotten)

    async def _answer(self, run: Run, journey: Journey) -> bool:
        """Whether a local command was handled (True) or the LLM answered (False)."""
        if run.query.verbatim:
            run.reply = checked_text(run.query.text or "")
            if run.query.sink is not None:
                await self._sayer.whole(run, run.query.sink, journey)
                if not run.query.sink.seconds:
                    raise BadText("nothing in this text can be spoken by this voice", code="text-unspeakable")
            return True
        if run.query.live is not None:
            draft = Draft(run, journey, lambda: self._respond(run, journey), allowed=lambda: self._may_draft(run))
            try:
                heard = await self._listener.live(run, run.query.live, journey, draft)
                drafted = await draft.settle(heard)
            finally:
                await draft.drop()
            if drafted is not None:
                return drafted
            run.transcript = heard
        elif run.query.pcm is not None:
            run.transcript = await self._listener.recording(run, run.query.pcm, journey)
        else:
            run.transcript = checked_text(run.query.text or "")
            self._ahead.load(run, Stage.LLM)
        return await self._respond(run, journey)

    def _may_draft(self, run: Run) -> bool:
        """Not where it would send half a question to somebody's server, nor on a machine that is pressed."""
        answering = (Stage.INTENT, Stage.LLM, Stage.TTS)
        here = not any(run.parts[stage].engine in REMOTE for stage in answering if stage in run.parts)
        known = Stage.LLM in run.parts or run.no_llm is not None  # or its disk lets us wait
        return here and known and self._memory.holdings.relief.load_ahead

    async def _respond(self, run: Run, journey: Journey) -> bool:
        """To its transcript."""
        if Stage.TTS in run.parts:
            self._ahead.voice(run)
        failed = await self._commands.done(run, journey)
        sink = run.sink()
        if not run.handled or run.question:
            await self._generate_and_speak(run, sink, journey)
        else:
            journey.reached(Stage.LLM)  # and passed by
            if sink is not None:
                await self._sayer.whole(run, sink, journey)
        if failed is not None:
            raise failed
        return run.handled and not run.question

    # --- thinking and speaking --------------------------------------------------------------------------------------
    async def _generate_and_speak(self, run: Run, sink: AudioSink | None, journey: Journey) -> None:
        await self._parts.llm(run)
        saying = await self._in_turn(run, sink, journey)
        if sink is not None and not saying.over:
            await self._sayer.rest(run, sink, saying, journey)

    async def _in_turn(self, run: Run, sink: AudioSink | None, journey: Journey) -> Saying:
        """A draft stands in nobody's way: it waits neither in the line nor, with a place at the LLM, for memory."""
        while True:
            certain = run.gate.is_open
            if certain or self._at_llm.is_free("llm"):
                try:
                    async with self._at_llm.turn("llm", self._lease_deadline_s, what="the LLM"):
                        return await self._fallback.through(run, lambda: self._written(run, sink, journey))
                except MemoryRefused:
                    if certain:
                        raise
            await run.gate.passed()

    async def _written(self, run: Run, sink: AudioSink | None, journey: Journey) -> Saying:
        """The reply, and how far it was spoken meanwhile. The voice is leased inside the LLM's lease, but never waited
        for there: where both do not fit, it speaks afterwards."""
        emergency = run.parts[Stage.LLM].spec.emergency
        request = request_of(run, self._llm, self._level, emergency=emergency)
        saying = Saying(Pieces(), spoken_language(run) if sink is not None else "")
        async with self._leases(run, journey, Stage.LLM, waits=run.gate.is_open):
            writing = self._generate(run, request, saying.pieces)
            if sink is None:
                await writing
            else:
                self._ahead.load(run, Stage.TTS)
                await both(writing, self._sayer.meanwhile(run, sink, saying, journey))
        return saying

    async def _generate(self, run: Run, request: LlmRequest, pieces: Pieces) -> None:
        """The reply, as a whole in the run and sentence by sentence in `pieces`."""
        started, cut, run.written = time.monotonic(), False, False
        sentences = SentenceSplitter()
        self._begin_with_commands(run, pieces)
        async with aclosing(run.parts[Stage.LLM].run(request)) as results:
            async for out in results:
                if isinstance(out, LlmDelta):
                    run.timings.setdefault("llm_first_token", ms_since(started))
                    run.written |= bool(out.text.strip())
                    run.reply += out.text
                    run.tell("reply-delta", text=out.text)
                    put(pieces, sentences.feed(out.text))
                elif isinstance(out, LlmDone):
                    cut, run.forgotten = out.reason == "length", out.dropped_turns
                    run.tell("llm-end", **llm_figures(out))
        run.timings["llm"] = ms_since(started)
        run.reply = run.reply.strip()
        if not run.written:
            raise EngineFailed("the model gave no answer; ask in other words", code="llm-no-answer", stage=Stage.LLM)
        put(pieces, [*sentences.flush(), None])
        if cut:
            run.reply += CUT

    def _begin_with_commands(self, run: Run, pieces: Pieces) -> None:
        """What was done before the question is told before the answer; once, when an LLM has to begin anew."""
        told = run.reply.strip()
        if not told:
            return
        if told not in [piece for piece, _ in run.said]:
            put(pieces, [told])
        if run.reply == told:
            run.reply += " "
            run.tell("reply-delta", text=run.reply)

    @property
    def _level(self) -> Level:
        return self._memory.holdings.relief.level
