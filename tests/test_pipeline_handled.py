"""Who replies to a recognised intent: another program before a skill of ours, and nobody's is a question."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from assistant.errors import HandlerFailed
from assistant.messages import IntentMatch
from assistant.pipeline_handled import Done, Missing, carry_out, protected
from assistant.query import Understood
from assistant.skills import Context
from tests.skills.world import Loud

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


def reply(intent: str | None, handlers: Handlers | None, **slots: Any) -> Done:
    context = Context(now=NOW, query_id="q", said="said")
    return asyncio.run(carry_out(IntentMatch(name=intent, slots=slots), context, handlers))


def test_what_is_no_command_is_a_question() -> None:
    assert reply(None, Handlers()) == Done(None)


def test_a_command_that_nobody_carries_out_is_told_and_no_question() -> None:
    told = Done("No program is connected that controls the kettle.")
    assert reply("HassTurnOn", None, name="kettle") == told
    assert reply("HassTurnOn", Handlers(), name="kettle") == told
    assert reply("OfMyOwnFile", Handlers()) == Done("No program is connected that can do that.")


@pytest.mark.parametrize("hindrance", ["later", "except", "sum"])
def test_what_would_be_done_wrongly_is_done_by_nobody(hindrance: str) -> None:
    handlers = Handlers(HassSetVolume="Done.")
    told = reply("HassSetVolume", handlers, volume_level=5, **{hindrance: 1})
    assert told.reply is not None
    assert told.reply.startswith(("I can only", "I cannot", "I do not calculate"))
    assert handlers.asked == []


def test_another_program_is_asked_and_what_it_leaves_is_ours() -> None:
    handlers = Handlers(HassTurnOn="Done.")
    assert reply("HassTurnOn", handlers) == Done("Done.")
    assert handlers.asked == [("q", "said")]
    assert reply("HassGetCurrentTime", handlers) == Done("It is 5:05 PM.")


def test_another_program_gets_its_part_of_a_sentence() -> None:
    handlers = Handlers(HassTurnOn="Done.")
    context = Context(now=NOW, query_id="q", said="turn it on and tell me a joke")
    asyncio.run(carry_out(IntentMatch(name="HassTurnOn", text="turn it on"), context, handlers))
    assert handlers.asked == [("q", "turn it on")]


def test_whoever_registers_an_intent_of_ours_takes_it_over() -> None:
    assert reply("HassGetCurrentTime", Handlers(HassGetCurrentTime="Late.")) == Done("Late.")


def test_nothing_to_say_is_a_reply_too() -> None:
    assert reply("HassTurnOn", Handlers(HassTurnOn="")) == Done("")


def test_a_failure_is_told_and_raised_afterwards() -> None:
    error = HandlerFailed("The handler did not answer: it has left.")
    assert reply("HassGetCurrentTime", Handlers(HassGetCurrentTime=error)) == Done(error.message, error)


def test_what_is_missing_is_asked_for_unless_another_program_does_it() -> None:
    with pytest.raises(Missing) as caught:
        asyncio.run(carry_out(IntentMatch(name="HassSetVolume"), Context(now=NOW, speaker=Loud()), None))
    assert (caught.value.slot, caught.value.question) == ("volume_level", "How loud, from 0 to 100?")
    assert reply("HassSetVolume", Handlers(HassSetVolume="Which?")) == Done("Which?")


def test_one_intent_wants_a_yes_before() -> None:
    assert protected("AssistantShoppingListClear") == "Shall I really clear the whole shopping list?"
    assert protected("HassCancelAllTimers") is None
