"""Conversations through real workers: what the LLM is shown, what stays of an answer, who waits for whom."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from assistant.conversations import Conversations
from assistant.memory_orchestrator.pressure import RELIEF
from assistant.messages import LlmRequest, Outcome
from assistant.query import Answer, Query
from tests.house import House, house, run
from tests.talkers import STEP_S, STORY

HALF = "".join(STORY[:2]).strip()


class Ear:
    """A sink that knows when the second sentence begins."""

    sample_rate = 8000

    def __init__(self) -> None:
        self.pieces = 0
        self.heard = asyncio.Event()

    @property
    def seconds(self) -> float:
        return self.pieces / 20

    def write(self, pcm: bytes, sample_rate: int) -> None:
        del pcm, sample_rate
        self.pieces += 1
        if self.pieces == 3:  # the first of the second sentence
            self.heard.set()


def shown(request: LlmRequest) -> list[tuple[str, str]]:
    return [(turn.role, turn.content) for turn in request.turns]


async def ask(one: House, text: str, conversation: str = "c", **more: Any) -> Answer:
    return await one.pipeline.answer(Query(text=text, conversation=conversation, **more))


async def interrupted(one: House, text: str, ear: Ear | None = None, **more: Any) -> None:
    """Cancels it in the middle of the second sentence, or when a text of two is out."""
    task = asyncio.create_task(ask(one, text, sink=ear, **more))
    async with asyncio.timeout(10):
        if ear is not None:
            await ear.heard.wait()
        else:
            while [name for name, _ in one.events].count("reply-delta") < 2:
                await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def remembered(one: House, conversation: str = "c") -> list[str]:
    """What the next query of the conversation shows the LLM of it."""
    await ask(one, "why is that", conversation)
    return [content for _, content in shown(one.requests()[-1])][1:-1]


def test_the_llm_is_shown_the_system_prompt_the_history_and_the_new_turn(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations()) as one:
            for text in ("first", "second"):
                assert (await ask(one, text)).report.outcome is Outcome.ANSWERED
            assert await one.memory.unload("llm")  # the history is text and outlives it
            await ask(one, "third")
            await ask(one, "elsewhere", "d")
            assert [request.conversation for request in one.requests()] == ["c", "c", "c", "d"]
            assert shown(one.requests()[2]) == [
                ("system", "Be kind."),
                ("user", "first"), ("assistant", "You said first."),
                ("user", "second"), ("assistant", "You said second."),
                ("user", "third"),
            ]  # fmt: skip
            assert shown(one.requests()[3]) == [("system", "Be kind."), ("user", "elsewhere")]

    run(test)


def test_a_query_without_a_conversation_has_no_history_and_leaves_none(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=(kept := Conversations())) as one:
            for _ in range(2):
                await ask(one, "hello", "")
            assert [request.conversation for request in one.requests()] == ["", ""]
            assert [len(request.turns) for request in one.requests()] == [2, 2]
            assert len(kept) == 0

    run(test)


@pytest.mark.parametrize("name", ["a b", "a/b", "é", "x" * 65, "a\n", "\0"])
def test_what_is_no_name_is_refused_before_anything_is_loaded(tmp_path: Path, name: str) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations()) as one:
            answer = await ask(one, "hello", name)
            assert answer.report.error is not None
            assert (answer.report.error.code, answer.report.outcome) == ("bad-conversation", Outcome.FAILED)
            assert "A-Z a-z 0-9 . _ : -" in answer.report.error.message
            assert "memory-admit" not in one.names()

    run(test)


def test_a_local_command_is_remembered_too(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations()) as one:
            assert (await ask(one, "what time is it")).report.outcome is Outcome.HANDLED
            assert await remembered(one) == ["what time is it", "It is 5:05 PM."]

    run(test)


def test_turns_that_the_context_had_no_room_for_are_not_sent_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations()) as one:
            for text in ("first", "second", "drop 2"):
                await ask(one, text)
            assert await remembered(one) == ["second", "You said second.", "drop 2", "You said drop 2."]

    run(test)


# --- interruptions --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("pace", ["tell", "rush"])
def test_of_an_interrupted_answer_the_spoken_sentences_stay(tmp_path: Path, pace: str) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations()) as one:
            await interrupted(one, pace, Ear())
            if pace == "rush":  # all of it was written
                assert one.names().count("reply-delta") == len(STORY)
            assert await remembered(one) == [pace, HALF]

    run(test)


def test_of_a_written_answer_that_is_interrupted_what_was_given_out_stays(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations()) as one:
            await interrupted(one, "tell")
            assert await remembered(one) == ["tell", HALF]

    run(test)


def test_an_answer_that_breaks_off_leaves_what_was_heard_of_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations()) as one:
            assert (await ask(one, "fail")).report.outcome is Outcome.FAILED
            assert await remembered(one) == ["fail", HALF]
            assert (await ask(one, "fail", "d", sink=Ear())).report.outcome is Outcome.FAILED
            assert await remembered(one, "d") in (["fail", STORY[0].strip()], ["fail", HALF])

    run(test)


def test_an_answer_of_which_nothing_was_heard_leaves_neither_turn(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations()) as one:
            await ask(one, "first")
            task = asyncio.create_task(ask(one, "wait and tell", sink=Ear()))
            while len(one.requests()) < 2:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # sound that reaches nobody before the end is not heard either
            await interrupted(one, "tell", Ear(), sink_waits=True)
            assert await remembered(one) == ["first", "You said first."]

    run(test)


# --- more than one at a time ----------------------------------------------------------------------------------------
def test_two_queries_of_one_conversation_are_answered_in_order(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations(), slots=2) as one:
            answers = await asyncio.gather(*(ask(one, text) for text in ("wait 1", "2", "3")))
            assert [answer.report.outcome for answer in answers] == [Outcome.ANSWERED] * 3
            assert [request.turns[-1].content for request in one.requests()] == ["wait 1", "2", "3"]
            assert [len(request.turns) for request in one.requests()] == [2, 4, 6]

    run(test)


def test_whoever_waits_too_long_for_a_conversation_is_told_that_it_is_busy(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations(), lease_deadline_s=2.5 * STEP_S) as one:
            await ask(one, "hello", "d")  # loads it
            first, second = await asyncio.gather(ask(one, "tell"), ask(one, "again"))
            assert first.report.outcome is Outcome.ANSWERED
            assert second.report.error is not None
            assert (second.report.error.code, second.report.error.status) == ("busy", 429)
            assert second.report.error.retry_after_ms
            assert "'c'" in second.report.error.message
            assert await remembered(one) == ["tell", "".join(STORY).strip()]

    run(test)


def test_other_conversations_wait_for_a_slot_of_the_llm_until_the_deadline(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations(), lease_deadline_s=2.5 * STEP_S) as one:
            await ask(one, "hello", "x")
            answers = await asyncio.gather(ask(one, "tell", "a"), ask(one, "1", "b"), ask(one, "what time is it", "c"))
            codes = [answer.report.error.code if answer.report.error else "" for answer in answers]
            assert codes == ["", "busy", ""]  # the last one needs no slot
            assert "LLM" in str(answers[1].error)

    run(test)


def test_with_more_slots_nobody_is_sent_away(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations(), lease_deadline_s=2.5 * STEP_S, slots=2) as one:
            await ask(one, "hello", "x")
            answers = await asyncio.gather(ask(one, "tell", "a"), ask(one, "1", "b"))
            assert [answer.report.outcome for answer in answers] == [Outcome.ANSWERED] * 2

    run(test)


# --- urgency --------------------------------------------------------------------------------------------------------
def test_urgency_and_pressure_reach_the_llm(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations()) as one:
            await ask(one, "normal")
            await ask(one, "background", urgency="background")
            one.memory.holdings.relieve(RELIEF["high"])
            await ask(one, "pressed")
            await ask(one, "urgent", urgency="critical")
            found = [(one.variant, one.duty, one.prefill_chunk, one.max_new_tokens) for one in one.requests()]
            assert found == [
                ("full", 1, 128, 5), ("full", 0.5, 32, 5), ("full", 0.7, 32, 2), ("emergency", 1, 128, 5),
            ]  # fmt: skip

    run(test)


def test_work_in_the_background_is_refused_while_the_pressure_is_critical(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations()) as one:
            one.memory.holdings.relieve(RELIEF["critical"])
            refused = (await ask(one, "later", urgency="background")).report
            assert refused.error is not None
            assert (refused.error.code, refused.error.status) == ("busy", 429)
            assert "memory-admit" not in one.names()
            assert (await ask(one, "now", urgency="normal")).report.outcome is Outcome.ANSWERED

    run(test)
