"""From words to commands: what a query asks for, and what is done about it at once. Imports the pipeline's parts.

Commands come first, in their order; what they lack is asked for, what is protected is done after a yes. A question that
stands beside them goes to the LLM afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import aclosing
from datetime import datetime

from assistant.dialogues import Dialogues, Pending, consent
from assistant.errors import HandlerFailed
from assistant.memory_orchestrator.journey import Journey
from assistant.messages import IntentMatch, IntentReport, IntentRequest, Stage
from assistant.pipeline_handled import Missing, carry_out, protected
from assistant.pipeline_hear import Leased
from assistant.pipeline_run import Run, ms_since
from assistant.query import IntentHandlers
from assistant.skills import Context
from assistant.skills.unable import unable

NOT_ASKED = "I have not asked anything."
REFUSED = "Okay, I will leave it."
_EVERYTHING = ("all", "everything", "door", "doors", "garage", "lock", "locks", "gate", "gates")
_HARMLESS = ("light", "fan", "media_player", "climate", "vacuum")
_SWITCHED = ("HassTurnOn", "HassTurnOff", "HassLightSet", "HassClimateSetTemperature")


class Commands:
    def __init__(
        self,
        *,
        leased: Leased,
        handlers: IntentHandlers | None,
        context: Callable[..., Context],
        now: Callable[[], datetime],
        guarded: Collection[str] = (),
        dialogues: Dialogues | None = None,
    ) -> None:
        """`guarded`: names of devices that are switched after a yes."""
        self._leased, self._handlers = leased, handlers
        self._context, self._now = context, now
        self._guarded = frozenset(name.lower() for name in guarded)
        self._dialogues = Dialogues() if dialogues is None else dialogues

    async def done(self, run: Run, journey: Journey) -> HandlerFailed | None:
        """Carries out the commands of what was said: `run.reply` tells of them, `run.question` is what is left for the
        LLM. The error of a program that failed, to be raised at the end."""
        if not run.query.conversation and self._dialogues.waiting(""):
            await run.gate.passed()  # the question of all who have no name may be answered by another meanwhile
        pending = self._dialogues.waiting(run.query.conversation)
        run.gate.do(lambda: self._dialogues.forget(run.query.conversation))
        if pending is not None and not pending.wanted:
            agreed = consent(run.transcript)
            if agreed is not None:
                run.intent = _reported(pending.match)
                if not agreed:
                    self._tell(run, REFUSED)
                    return None
                return await self._all(run, [pending.match, *pending.more], sure=True)
        if pending is None and consent(run.transcript) is True:
            self._tell(run, NOT_ASKED)
            return None
        matches = await self._recognised(run, journey, pending)
        if pending is not None and matches[0].text.startswith(f"{pending.match.text} "):  # the answer to our question
            matches += pending.more
        run.intent = _reported(matches[0])
        run.question = next((match.text for match in matches if not match.name), "")
        if run.question and (told := unable(run.question)):
            run.question = ""
            self._tell(run, told)
        return await self._all(run, [match for match in matches if match.name])

    async def _recognised(self, run: Run, journey: Journey, pending: Pending | None) -> list[IntentMatch]:
        started = time.monotonic()
        run.tell("intent-start")
        asked_back = pending if pending is not None and pending.wanted else None
        request = IntentRequest(
            text=run.transcript,
            pending=asked_back.match if asked_back else None,
            wanted=asked_back.wanted if asked_back else "",
        )
        async with (
            self._leased(run, journey, Stage.INTENT),
            aclosing(run.parts[Stage.INTENT].run(request)) as results,
        ):
            found = [out async for out in results if isinstance(out, IntentMatch)]
        found = found or [IntentMatch(name=None, text=run.transcript)]
        run.timings["intent"] = ms_since(started)
        run.tell("intent-end", name=found[0].name)
        return found

    async def _all(self, run: Run, matches: list[IntentMatch], *, sure: bool = False) -> HandlerFailed | None:
        """Of several that fail, the first error; the others are told in the reply."""
        if matches:
            await run.gate.passed()  # nothing is done that was perhaps not meant
        failed: HandlerFailed | None = None
        waiting: list[tuple[str, IntentMatch, str]] = []
        for match in matches:
            question = None if sure else self._guard(match)
            if question is not None:
                waiting.append((question, match, ""))
                continue
            try:
                done = await carry_out(match, self._context_of(run), self._handlers)
            except Missing as missing:
                waiting.append((missing.question, match, missing.slot))
                continue
            self._tell(run, done.reply or "")
            failed = failed or done.error
        if waiting:  # one question at a time; one yes is for all that wait for one
            (question, match, slot), *others = waiting
            self._tell(run, question)
            self._dialogues.ask(run.query.conversation, Pending(match, slot, tuple(other for _, other, _ in others)))
            run.asks = True
        return failed

    def _guard(self, match: IntentMatch) -> str | None:
        """What must be answered with yes before it is done."""
        name = match.name or ""
        if name in _SWITCHED and self._may_touch_guarded(match):
            return f"I heard: {match.text.strip(' .')}. Shall I do that?"
        return protected(name)

    def _may_touch_guarded(self, match: IntentMatch) -> bool:
        """By its name, or as one of all doors of a room or of the house."""
        thing = str(match.slots.get("name", "")).lower()
        if thing and thing not in _EVERYTHING:
            return thing in self._guarded
        return bool(self._guarded) and match.slots.get("domain") not in _HARMLESS

    def _tell(self, run: Run, reply: str) -> None:
        run.handled = True
        run.reply = " ".join(part for part in (run.reply, reply.strip()) if part)

    def _context_of(self, run: Run) -> Context:
        replies = [turn.content for turn in run.history if turn.role == "assistant"]
        return self._context(
            now=self._now(),
            last_reply=replies[-1] if replies else "",
            others=self._handlers.understood.intents if self._handlers is not None else (),
            query_id=run.query.id,
            said=run.transcript,
        )


def _reported(match: IntentMatch) -> IntentReport:
    return IntentReport(name=match.name, score=match.score, slots=match.slots, source=match.source)
