"""What of an answer was heard: at a speaker that takes its time, an interruption shortens what is remembered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from assistant.conversations import Conversations
from assistant.messages import Outcome
from assistant.query import HeardSink, Query
from tests.house import House, house, run
from tests.talkers import STORY
from tests.test_pipeline_conversations import ask, remembered

PIECE_S = 0.1
"""Sound of one sentence: see `Beeper`."""


class Loudspeaker:
    """Plays as much as its test says."""

    def __init__(self) -> None:
        self.sample_rate = 0
        self.seconds = 0.0
        self.heard_s = 0.0
        self.waited_for = asyncio.Event()
        self.silent = asyncio.Event()

    def write(self, pcm: bytes, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self.seconds += len(pcm) / 2 / sample_rate

    async def finished(self) -> None:
        self.waited_for.set()
        await self.silent.wait()


async def playing(one: House, sink: Loudspeaker) -> asyncio.Task[Any]:
    """A query whose answer was handed over as a whole, and is now being listened to."""
    task = asyncio.create_task(ask(one, "rush", sink=sink))
    async with asyncio.timeout(10):
        await sink.waited_for.wait()
    assert sink.seconds == pytest.approx(len(STORY) * PIECE_S)
    return task


@pytest.mark.parametrize(("heard_s", "sentences"), [(0.0, 0), (0.02, 1), (0.1, 1), (0.15, 2), (0.31, 4)])
def test_of_an_answer_that_is_interrupted_while_it_plays_what_was_heard_stays(
    tmp_path: Path, heard_s: float, sentences: int
) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations()) as one:
            sink = Loudspeaker()
            task = await playing(one, sink)
            sink.heard_s = heard_s
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await remembered(one) == (["rush", "".join(STORY[:sentences]).strip()] if sentences else [])

    run(test)


def test_a_query_ends_when_its_answer_was_heard_and_holds_nothing_but_its_turn_meanwhile(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations()) as one:
            sink = Loudspeaker()
            assert isinstance(sink, HeardSink)
            task = await playing(one, sink)
            assert not any(entry.users for entry in one.memory.holdings.entries.values())
            other = await ask(one, "hello", "d")  # the LLM is free
            assert other.report.outcome is Outcome.ANSWERED
            next_one = asyncio.create_task(ask(one, "and then"))
            await asyncio.sleep(0.3)
            assert not task.done()
            assert not next_one.done()
            sink.silent.set()
            report = (await task).report
            await next_one
            assert (report.outcome, report.error) == (Outcome.ANSWERED, None)
            assert await remembered(one) == ["rush", "".join(STORY).strip(), "and then", "You said and then."]

    run(test)


@pytest.mark.alone("takes less than 1.5 s in all")
def test_the_time_that_an_answer_plays_is_not_the_assistants(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations()) as one:
            sink = Loudspeaker()
            task = await playing(one, sink)
            await asyncio.sleep(0.5)
            sink.silent.set()
            report = (await task).report
            timings = report.timings_ms
            assert timings.llm <= timings.total < timings.llm + timings.tts_first_audio + 1500
            before = one.names().index("tts-end")
            assert one.names()[before:].count("run-end") == 1

    run(test)


def test_a_local_command_is_listened_to_as_well(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, conversations=Conversations()) as one:
            sink = Loudspeaker()
            task = asyncio.create_task(one.pipeline.answer(Query(text="what time is it", sink=sink, conversation="c")))
            async with asyncio.timeout(10):
                await sink.waited_for.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await remembered(one) == []  # nothing of it was heard

    run(test)
