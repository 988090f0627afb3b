"""Answers that are drafted at a pause: the same as without, nothing of them to be noticed before the end, and no trace
of one that was wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assistant.conversations import Conversations
from assistant.memory_orchestrator.ledger import LedgerReader, RowState
from assistant.memory_orchestrator.pressure import RELIEF
from assistant.messages import Outcome
from assistant.pipeline_commands import NOT_ASKED, REFUSED
from assistant.query import Answer, Query
from tests.house import House, house, run
from tests.live_speech import END, PAUSE, RESUMED, SPEECH, Speaker, Step, sound
from tests.talkers import RATE, STEP_S
from tests.test_pipeline import speech
from tests.test_pipeline_hear import attempted, data_of, idle, loaded, told

WHY, TELL = "why is the sky blue", "tell me why the sky is blue"
WAIT = "wait and think, why is the sky blue in the evening"
LOUDER = "set the volume to 40 percent"


class Heard:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.sample_rate = 0
        self.pcm = b""

    @property
    def seconds(self) -> float:
        return len(self.pcm) / 2 / self.sample_rate if self.sample_rate else 0.0

    def write(self, pcm: bytes, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self.pcm += pcm


def talking(
    tmp_path: Path, *texts: str, streams: bool = False, how: str = "", **more: Any
) -> AbstractAsyncContextManager[House]:
    return house(
        tmp_path,
        asr=told(*texts, streams=streams, words=True, how=how),
        **{"conversations": Conversations(), "step_timeout_s": 5, **more},
    )


async def ask(one: House, live: Speaker, sink: Heard | None = None) -> Answer:
    async with asyncio.timeout(15):
        return await one.pipeline.answer(Query(live=live, sink=sink, conversation="home"))


def written(one: House, times: int = 1) -> Callable[[], bool]:
    """The LLM has been asked so often, and the machine had time to do what it does then."""
    looks = [0]

    def enough() -> bool:
        looks[0] += one.asked.exists() and len(one.requests()) >= times
        return looks[0] > 60

    return enough


def of_the_answer(one: House) -> list[str]:
    """Events from the transcript on."""
    told = [name for name, data in one.events if "query_id" in data]
    return told[told.index("stt-end") :]


PIECES = sound(speech())
HALF, REST = PIECES[:15], PIECES[15:]


def paused(one: House, *meanwhile: Step) -> Speaker:
    """Speaks, and ends after a pause."""
    return Speaker(*PIECES, SPEECH, loaded(one), PAUSE, *meanwhile, END)


def recognised(one: House, times: int = 1) -> list[Step]:
    """So often the recogniser has made words of a whole recording, and there was time to begin an answer."""
    return [attempted(one, times, done=True), 0.3]


# --- a draft that is the answer --------------------------------------------------------------------------------------
@pytest.mark.parametrize("streams", [False, True])
def test_the_answer_is_there_when_the_speaker_has_finished_and_not_before(tmp_path: Path, streams: bool) -> None:
    async def test() -> None:
        async with talking(tmp_path, WAIT, streams=streams) as one:
            sink = Heard()
            before: list[str] = []

            def nothing_yet() -> bool:
                before.extend(name for name, _ in one.events)
                before.append(str(len(sink.pcm)))
                return True

            def all_told() -> bool:
                return not streams or WAIT in data_of(one, "stt-partial", "text")

            report = (await ask(one, paused(one, all_told, written(one), nothing_yet), sink)).report
            assert (report.transcript, report.reply) == (WAIT, f"You said {WAIT}.")
            assert not {"stt-end", "intent-start", "reply-delta", "llm-end", "tts-start"} & set(before)
            assert before[-1] == "0"
            assert of_the_answer(one) == [
                "stt-end", "intent-start", "intent-end", "reply-delta", "llm-end", "tts-start", "tts-end", "run-end",
            ]  # fmt: skip
            assert len(one.requests()) == 1
            (known,) = [data for name, data in one.events if name == "stt-speculation"]
            assert (known["hit"], known["answer"]) == (True, True)
            assert known["ms"] > 100
            assert report.timings_ms.speech_end_to_first_audio < STEP_S * 1000
            assert sink.seconds == pytest.approx(0.1)
            assert report.audio is not None
            assert [stage.name for stage in report.stages] == ["asr", "intent", "llm", "tts"]

    run(test)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("text", [WHY, TELL, "what time is it", f"{LOUDER} and {WHY}"])
@pytest.mark.parametrize("wrong", [False, True])
def test_a_draft_changes_no_answer(tmp_path: Path, streams: bool, text: str, wrong: bool) -> None:
    """Nor does one that was wrong before it."""

    async def answered(folder: str, how: Callable[[House], list[Step]], *texts: str) -> tuple[Any, ...]:
        (tmp_path / folder).mkdir()
        talks = Conversations()
        async with talking(tmp_path / folder, *texts, streams=streams, conversations=talks) as one:
            report = (await ask(one, Speaker(*how(one), END), sink := Heard())).report
            assert report.error is None
            assert idle(one)
            deltas = "".join(data_of(one, "reply-delta", "text"))
            order = [name for name in of_the_answer(one) if name != "reply-delta"]
            turns = talks.history("home")
            return report.transcript, report.intent, report.reply, report.outcome, deltas, sink.pcm, order, turns

    async def test() -> None:
        def guess(one: House, times: int = 1) -> list[Step]:
            return [PAUSE, *([0.4] if streams else recognised(one, times))]

        def half(one: House) -> list[Step]:
            return [*HALF, SPEECH, loaded(one), *guess(one), RESUMED, *REST, *guess(one, 2)]

        plain = await answered("plain", lambda one: [*PIECES, SPEECH], text)
        if wrong:
            assert await answered("wrong", half, *([text] if streams else ["why is the", text])) == plain
        else:
            right = await answered("right", lambda one: [*PIECES, SPEECH, loaded(one), *guess(one)], text)
            assert right == plain

    run(test)


def test_no_command_is_carried_out_before_it_is_certain(tmp_path: Path) -> None:
    async def test() -> None:
        async with talking(tmp_path, "set the volume to 20 percent", LOUDER) as one:
            levels = []

            def look() -> bool:
                levels.append(one.speaker.percent)
                return True

            live = Speaker(
                *HALF, SPEECH, loaded(one), PAUSE, *recognised(one), look,
                RESUMED, *REST, PAUSE, *recognised(one, 2), look, END,
            )  # fmt: skip
            before = one.speaker.percent
            report = (await ask(one, live)).report
            assert report.outcome is Outcome.HANDLED
            assert levels == [before, before]
            assert one.speaker.percent == 40

    run(test)


def test_a_draft_that_fails_is_dropped_and_the_question_answered(tmp_path: Path) -> None:
    async def test() -> None:
        async with talking(tmp_path, "fail once and tell") as one:
            report = (await ask(one, paused(one, written(one), 0.5), Heard())).report
            assert report.error is None
            assert len(one.requests()) == 2
            assert "".join(data_of(one, "reply-delta", "text")).strip() == report.reply

    run(test)


# --- one that is dropped ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("streams", [False, True])
def test_what_was_drafted_for_half_a_question_leaves_no_trace(tmp_path: Path, streams: bool) -> None:
    async def test() -> None:
        async with talking(tmp_path, *(["rush"] if not streams else []), WAIT, streams=streams) as one:
            live = Speaker(*HALF, SPEECH, loaded(one), PAUSE, written(one), RESUMED, *REST, END)
            report = (await ask(one, live, sink := Heard())).report
            assert (report.transcript, report.reply) == (WAIT, f"You said {WAIT}.")
            assert "".join(data_of(one, "reply-delta", "text")) == report.reply
            assert len(one.requests()) == 2
            assert data_of(one, "stt-speculation", "hit")[0] is False
            assert sink.seconds == pytest.approx(0.1)
            assert [stage.name for stage in report.stages] == ["asr", "intent", "llm", "tts"]

    run(test)


def test_a_cancel_at_any_point_leaves_nothing_held_and_nothing_told(tmp_path: Path) -> None:
    async def test() -> None:
        chance, talks = random.Random(8), Conversations()
        async with talking(tmp_path, TELL, conversations=talks) as one:
            for number in range(12):
                one.events.clear()
                live = Speaker(*PIECES, SPEECH, PAUSE, 0.15, RESUMED, PAUSE, 0.3, END)
                query = Query(live=live, sink=Heard(), conversation=f"c{number}")
                task = asyncio.create_task(one.pipeline.answer(query))
                await asyncio.sleep(chance.uniform(0.01, 0.9))
                task.cancel()
                (done,) = await asyncio.gather(task, return_exceptions=True)
                assert isinstance(done, Answer | asyncio.CancelledError)
                assert idle(one)
                assert data_of(one, "run-end", "outcome") in (["cancelled"], ["answered"])
                if "stt-end" not in one.names():
                    assert not {"intent-start", "reply-delta", "tts-start"} & set(one.names())
                    assert talks.history(query.conversation) == ()
            assert (await ask(one, Speaker(*PIECES, SPEECH, END))).report.outcome is Outcome.ANSWERED

    run(test)


# --- where there is none ---------------------------------------------------------------------------------------------
def test_where_memory_is_short_the_answer_waits_for_its_turn(tmp_path: Path) -> None:
    """Recogniser and LLM do not fit together."""

    async def test() -> None:
        async with talking(tmp_path, WHY, room_mib=150) as one:
            report = (await ask(one, paused(one, 0.5))).report
            assert (report.reply, report.error) == (f"You said {WHY}.", None)
            assert len(one.requests()) == 1
            assert data_of(one, "memory-deny", "code") == []
            loads = [data.get("stage") for name, data in one.events if name in ("stage-load-start", "stt-end")]
            assert loads[-2:] == [None, "llm"]

    run(test)


def test_on_a_machine_that_is_pressed_nothing_is_drafted(tmp_path: Path) -> None:
    async def test() -> None:
        async with talking(tmp_path, WHY) as one:
            one.memory.holdings.relieve(RELIEF["high"])
            live = [*PIECES, SPEECH, PAUSE, *recognised(one), lambda: not one.asked.exists() or one.requests() == []]
            assert (await ask(one, Speaker(*live, END))).report.reply == f"You said {WHY}."
            assert data_of(one, "stt-speculation", "answer") == [False]

    run(test)


# --- what an attacker found ------------------------------------------------------------------------------------------
def test_a_yes_that_was_drafted_does_not_beat_a_later_no(tmp_path: Path) -> None:
    """Who has no conversation shares one open question with all others who have none."""

    async def test() -> None:
        async with talking(tmp_path, "yes", names=("front door",), guarded=("front door",)) as one:
            first = await one.pipeline.answer(Query(text="turn off the front door"))
            assert first.asks
            said: list[str] = []

            async def no() -> None:
                said.append((await one.pipeline.answer(Query(text="no"))).report.reply)

            def refused() -> bool:
                if not said and not tasks:
                    tasks.append(asyncio.create_task(no()))
                return bool(said)

            tasks: list[asyncio.Task[None]] = []
            live = Speaker(*PIECES, SPEECH, PAUSE, *recognised(one), refused, END)
            async with asyncio.timeout(15):
                report = (await one.pipeline.answer(Query(live=live))).report
            assert said == [REFUSED]
            assert report.reply == NOT_ASKED

    run(test)


def test_recognition_that_failed_at_the_pause_is_tried_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with talking(tmp_path, WHY, how="raise-once") as one:
            live = Speaker(*PIECES, SPEECH, PAUSE, attempted(one, 1), 0.3, END)
            report = (await ask(one, live)).report
            assert (report.transcript, report.error) == (WHY, None)
            assert data_of(one, "stt-speculation", "hit") == [False]

    run(test)


def test_a_draft_waits_behind_nobody_at_the_llm_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    async def test() -> None:
        async with talking(tmp_path, WHY) as one:
            order: list[str] = []

            async def typed(text: str) -> None:
                await one.pipeline.answer(Query(text=text))
                order.append(text)

            story = asyncio.create_task(typed("tell a story"))
            while not one.asked.exists() or not one.requests():
                await asyncio.sleep(0.01)

            def later() -> bool:
                if len(tasks) < 1:
                    tasks.append(asyncio.create_task(typed("and me")))
                return "and me" in order

            tasks: list[asyncio.Task[None]] = []
            await ask(one, Speaker(*PIECES, SPEECH, PAUSE, *recognised(one), later, END))
            await asyncio.gather(story, *tasks)
            assert [request.turns[-1].content for request in one.requests()] == ["tell a story", "and me", WHY]

    run(test)


def test_of_an_engine_that_streams_each_wrong_draft_is_counted(tmp_path: Path) -> None:
    async def test() -> None:
        async with talking(tmp_path, WAIT, streams=True) as one:
            live = Speaker(*HALF, SPEECH, loaded(one), PAUSE, written(one), *REST, 0.2, written(one, 2), END)
            assert (await ask(one, live)).report.transcript == WAIT
            hits = data_of(one, "stt-speculation", "hit")
            assert len(hits) >= len(one.requests()) >= 2
            assert (hits[0], hits[-1]) == (False, True)

    run(test)


def test_pressure_that_comes_while_somebody_speaks_forbids_drafts(tmp_path: Path) -> None:
    async def test() -> None:
        async with talking(tmp_path, WHY) as one:

            def pressed() -> bool:
                one.memory.holdings.relieve(RELIEF["high"])
                return True

            def nothing_asked() -> bool:
                return not one.asked.exists() or one.requests() == []

            live = Speaker(*HALF, SPEECH, loaded(one), pressed, *REST, PAUSE, *recognised(one), nothing_asked, END)
            assert (await ask(one, live)).report.reply == f"You said {WHY}."

    run(test)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    room=st.sampled_from([0, 180, 200, 240, 320]),
    parts=st.lists(st.tuples(st.integers(1, 9), st.floats(0, 0.25)), max_size=4),
    streams=st.booleans(),
)
@pytest.mark.timeout(120)
def test_whatever_the_budget_and_the_pauses_the_answer_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, room: int, parts: list[tuple[int, float]], streams: bool
) -> None:
    async def test() -> None:
        steps: list[Step] = [SPEECH]
        at = 0
        for pieces, pause_s in parts:
            steps += [*PIECES[at : at + pieces], PAUSE, pause_s, RESUMED]
            at += pieces
        folder = tmp_path_factory.mktemp("room")
        async with talking(folder, WAIT, streams=streams, room_mib=room) as one:
            report = (await ask(one, Speaker(*steps, *PIECES[at:], PAUSE, 0.2, END), sink := Heard())).report
            rows = LedgerReader("ledger", folder).read().rows
            assert {row.state for row in rows} <= {RowState.IDLE, RowState.PREPARED}
        assert (report.transcript, report.reply, report.error) == (WAIT, f"You said {WAIT}.", None)
        assert sink.pcm == bytes(RATE // 5)

    run(test)
