"""Commands of a query: several at once, what they lack, what needs a yes, and a question beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.conversations import Conversations
from assistant.dialogues import MOST, Dialogues, Pending, consent
from assistant.messages import IntentMatch, Outcome
from assistant.query import Answer, Query
from tests.house import House, house, run
from tests.test_pipeline_conversations import Ear, shown


@asynccontextmanager
async def a_house(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path, conversations=Conversations()) as one:
        yield one


async def ask(one: House, text: str, **more: Any) -> Answer:
    return await one.pipeline.answer(Query(text=text, **more))


# --- several requests -----------------------------------------------------------------------------------------------
def test_two_commands_are_answered_in_their_order(tmp_path: Path) -> None:
    async def test() -> None:
        async with a_house(tmp_path) as one:
            answer = await ask(one, "clear my shopping list, and then what time is it")
            assert answer.report.outcome is Outcome.HANDLED
            reply = answer.report.reply
            assert reply.startswith("It is 5:05 PM.")
            assert reply.endswith("?")  # what needs a yes comes last
            assert answer.asks

    run(test)


def test_a_question_beside_a_command_goes_to_the_llm_alone_and_is_answered_after_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with a_house(tmp_path) as one:
            ear = Ear()
            answer = await ask(one, "what time is it and tell me who made the moon", sink=ear, conversation="c")
            report = answer.report
            assert (answer.error, report.outcome) == (None, Outcome.ANSWERED)
            assert shown(one.requests()[-1])[-1] == ("user", "tell me who made the moon")
            assert report.reply.startswith("It is 5:05 PM. ")
            assert len(report.reply) > len("It is 5:05 PM. ")
            assert report.intent.name == "HassGetCurrentTime"
            said = [data["text"] for name, data in one.events if name == "tts-start"]
            assert said[0].startswith("It is 5 oh 5 PM")
            deltas = [data["text"] for name, data in one.events if name == "reply-delta"]
            assert "".join(deltas).strip() == report.reply
            assert ear.pieces

    run(test)


def test_a_command_that_nobody_carries_out_does_not_keep_the_question_from_its_answer(tmp_path: Path) -> None:
    async def test() -> None:
        async with a_house(tmp_path) as one:
            answer = await ask(one, "play some jazz and tell me who invented it")
            assert shown(one.requests()[-1])[-1] == ("user", "tell me who invented jazz")
            assert answer.report.reply.startswith("No program is connected that plays music. ")

    run(test)


# --- asking back ----------------------------------------------------------------------------------------------------
def test_what_a_command_lacks_is_asked_for_and_taken(tmp_path: Path) -> None:
    async def test() -> None:
        async with a_house(tmp_path) as one:
            first = await ask(one, "set the volume", conversation="c")
            assert first.asks, first.report.reply
            second = await ask(one, "forty percent", conversation="c")
            assert not second.asks
            assert (second.report.intent.name, second.report.intent.slots) == ("HassSetVolume", {"volume_level": 40})
            assert second.report.outcome is Outcome.HANDLED

    run(test)


def test_another_conversation_is_not_asked(tmp_path: Path) -> None:
    async def test() -> None:
        async with a_house(tmp_path) as one:
            assert (await ask(one, "set the volume", conversation="c")).asks
            other = await ask(one, "forty percent", conversation="d")
            assert other.report.intent.name is None

    run(test)


def test_whoever_says_something_else_is_not_held_to_the_question(tmp_path: Path) -> None:
    async def test() -> None:
        async with a_house(tmp_path) as one:
            await ask(one, "set the volume", conversation="c")
            answer = await ask(one, "what time is it", conversation="c")
            assert answer.report.reply == "It is 5:05 PM."
            late = await ask(one, "forty percent", conversation="c")
            assert late.report.intent.name is None

    run(test)


@pytest.mark.parametrize(
    ("said", "intent", "asked_llm"),
    [
        ("Yes, please.", "AssistantShoppingListClear", False),
        ("no", "AssistantShoppingListClear", False),
        ("why is the sky blue", None, True),
    ],
)
def test_what_is_protected_waits_for_a_yes(tmp_path: Path, said: str, intent: str | None, asked_llm: bool) -> None:
    async def test() -> None:
        async with a_house(tmp_path) as one:
            first = await ask(one, "clear my shopping list", conversation="c")
            assert first.asks
            assert first.report.reply.endswith("?")
            second = await ask(one, said, conversation="c")
            assert (second.report.intent.name, bool(one.requests())) == (intent, asked_llm)
            if said == "no":
                assert second.report.reply == "Okay, I will leave it."

    run(test)


def test_a_guarded_device_is_switched_after_a_yes(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(
            tmp_path, conversations=Conversations(), names=("front door",), guarded=("Front Door",)
        ) as one:
            first = await ask(one, "Open the front door.", conversation="c")
            assert first.report.reply == "I heard: Open the front door. Shall I do that?"
            second = await ask(one, "yes", conversation="c")
            assert second.report.reply == "No program is connected that controls the front door."

    run(test)


@pytest.mark.parametrize("text", ["unlock the door", "open everything", "turn on everything"])
def test_a_guarded_device_is_not_switched_along_with_others(tmp_path: Path, text: str) -> None:
    async def test() -> None:
        async with house(
            tmp_path, conversations=Conversations(), names=("front door", "everything", "door"), guarded=("front door",)
        ) as one:
            assert (await ask(one, text)).asks
            other = await ask(one, "turn on the lights", conversation="c")
            assert not other.asks

    run(test)


def test_one_yes_is_for_all_that_was_asked_about(tmp_path: Path) -> None:
    async def test() -> None:
        doors = ("front door", "back door")
        async with house(tmp_path, conversations=Conversations(), names=doors, guarded=doors) as one:
            first = await ask(one, "open the front door and open the back door", conversation="c")
            assert first.asks
            second = await ask(one, "yes please", conversation="c")
            assert second.report.reply == (
                "No program is connected that controls the front door."
                " No program is connected that controls the back door."
            )

    run(test)


def test_what_waits_for_a_yes_is_asked_about_when_the_slot_of_another_has_come(tmp_path: Path) -> None:
    async def test() -> None:
        async with a_house(tmp_path) as one:
            first = await ask(one, "set the volume and then clear my shopping list", conversation="c")
            second = await ask(one, "forty percent", conversation="c")
            assert first.asks
            assert second.asks, second.report.reply
            assert second.report.reply.startswith("Volume 40 percent. ")
            assert second.report.reply.endswith("?")
            third = await ask(one, "yes", conversation="c")
            assert third.report.intent.name == "AssistantShoppingListClear"

    run(test)


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("remind me to call mum in twenty minutes", "I cannot remind you of things yet. I can set a timer."),
        ("yes", "I have not asked anything."),
    ],
)
def test_what_the_llm_would_only_promise_is_told_honestly(tmp_path: Path, text: str, reply: str) -> None:
    async def test() -> None:
        async with a_house(tmp_path) as one:
            answer = await ask(one, text)
            assert (answer.report.reply, answer.report.outcome) == (reply, Outcome.HANDLED)
            assert not [name for name in one.names() if name == "reply-delta"]

    run(test)


# --- what waits -----------------------------------------------------------------------------------------------------
MATCH = IntentMatch(name="HassSetVolume")


def test_a_question_is_forgotten_after_a_while() -> None:
    now = 0.0
    waiting = Dialogues(10, clock=lambda: now)
    waiting.ask("c", Pending(MATCH, "volume_level"))
    now = 10.1
    assert waiting.waiting("c") is None


def test_a_question_is_asked_once_and_the_last_one_counts() -> None:
    waiting = Dialogues()
    waiting.ask("c", Pending(MATCH, "volume_level"))
    waiting.ask("c", Pending(MATCH))
    assert waiting.waiting("c") == Pending(MATCH)
    waiting.forget("c")
    assert waiting.waiting("c") is None


def test_no_more_questions_wait_than_there_is_room_for() -> None:
    waiting = Dialogues()
    for number in range(MOST + 1):
        waiting.ask(str(number), Pending(MATCH))
    assert waiting.waiting("0") is None
    assert waiting.waiting(str(MOST)) is not None


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Yes!", True), ("yeah sure", True), ("ok", True), ("Go ahead, please.", True), ("um yes", True), ("好", True),
        ("i said yes", True), ("right", True), ("yes but hurry", True), ("yes unlock it", True), ("sure thing", True),
        ("No.", False), ("no thanks", False), ("don’t", False), ("better not", False), ("cancel", False),
        ("", None), ("yes is a band", None), ("no man is an island, who wrote that line and when", None),
        ("okay google", None), ("nobody", None), ("what", None),
    ],
)  # fmt: skip
def test_yes_and_no_are_heard(text: str, meant: bool | None) -> None:
    assert consent(text) is meant


@given(st.text(max_size=200))
def test_any_text_is_a_yes_a_no_or_neither(text: str) -> None:
    assert consent(text) in (True, False, None)
