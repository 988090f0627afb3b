"""Who replies to a recognised intent: another program before a skill of ours, and nobody's is a question."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from assistant.errors import HandlerFailed
from assistant.memory_orchestrator.figures import Peaks
from assistant.messages import IntentMatch
from assistant.pipeline_handled import local_reply
from assistant.pipeline_run import Run
from assistant.query import Query, Understood

NOW = datetime(2026, 11, 29, 17, 5)


class Handlers:
    """Handle all that is in `replies`; an error is raised."""

    understood = Understood()

    def __init__(self, **replies: str | HandlerFailed) -> None:
        self.replies = replies
        self.asked: list[tuple[str, str]] = []

    async def handle(self, query_id: str, match: IntentMatch, text: str) -> str | None:
        self.asked.append((query_id, text))
        reply = self.replies.get(match.name or "")
        if isinstance(reply, HandlerFailed):
            raise reply
        return reply


def reply(name: str | None, handlers: Handlers | None, **slots: Any) -> tuple[str | None, HandlerFailed | None]:
    run = Run(Query(text="said", id="q"), Peaks(), {})
    run.transcript = "said"
    return asyncio.run(local_reply(IntentMatch(name=name, slots=slots), run, handlers, NOW))


def test_what_nobody_handles_is_a_question() -> None:
    assert reply(None, Handlers()) == (None, None)
    assert reply("HassTurnOn", None) == (None, None)
    assert reply("HassTurnOn", Handlers()) == (None, None)


def test_another_program_is_asked_and_what_it_leaves_is_ours() -> None:
    handlers = Handlers(HassTurnOn="Done.")
    assert reply("HassTurnOn", handlers) == ("Done.", None)
    assert handlers.asked == [("q", "said")]
    assert reply("HassGetCurrentTime", handlers) == ("It is 5:05 PM.", None)


def test_whoever_registers_an_intent_of_ours_takes_it_over() -> None:
    assert reply("HassGetCurrentTime", Handlers(HassGetCurrentTime="Late.")) == ("Late.", None)


def test_nothing_to_say_is_a_reply_too() -> None:
    assert reply("HassTurnOn", Handlers(HassTurnOn="")) == ("", None)


def test_a_failure_is_told_and_raised_afterwards() -> None:
    error = HandlerFailed("The handler did not answer: it has left.")
    assert reply("HassGetCurrentTime", Handlers(HassGetCurrentTime=error)) == (error.message, error)
