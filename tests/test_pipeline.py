"""One query through real workers, with an LLM stage that has a bad day: the query always ends, once, and says how."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from assistant import paths
from assistant.memory_orchestrator.ledger import LedgerReader, RowState
from assistant.memory_orchestrator.policy import NOT_NEEDED
from assistant.messages import Outcome
from assistant.query import Query
from tests.house import house, run


def test_a_question_goes_to_the_llm_with_the_system_prompt(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            answer = await one.pipeline.answer(Query(text="  Why?  "))
            assert answer.error is None
            assert answer.report.outcome is Outcome.ANSWERED
            assert "Be kind." in answer.report.reply
            assert "content='Why?'" in answer.report.reply
            assert [stage.name for stage in answer.report.stages] == ["intent", "llm"]
            assert one.names().count("run-end") == 1
            assert one.names()[0] == "run-start"
            assert one.names()[-1] == "run-end"

    run(test)


@pytest.mark.parametrize("how", ["", "hang-on-load", "crash-on-load"])
def test_a_local_command_never_waits_for_the_llm_that_loads_ahead(tmp_path: Path, how: str) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            one.how = how
            async with asyncio.timeout(5):
                report = (await one.pipeline.answer(Query(text="what time is it"))).report
            assert (report.outcome, report.reply) == (Outcome.HANDLED, "It is 5:05 PM.")
            assert [stage.name for stage in report.stages] == ["intent"]

    run(test)


@pytest.mark.parametrize(
    ("how", "code", "reply"),
    [
        ("damaged", "model-damaged", ""),
        ("raise-on-load", "engine-failed", ""),
        ("crash-on-load", "stage-died", ""),
        ("raise-on-run", "engine-failed", ""),
        ("exit-mid-stream", "stage-died", "half"),
        ("hang-on-run", "stage-hung", ""),
        ("say-nothing", "llm-no-answer", ""),
    ],
)
def test_a_stage_that_fails_fails_its_query_and_no_other(tmp_path: Path, how: str, code: str, reply: str) -> None:
    async def test() -> None:
        async with house(tmp_path, step_timeout_s=0.5) as one:
            one.how = how
            answer = await one.pipeline.answer(Query(text="Why?"))
            report = answer.report
            assert report.outcome is Outcome.FAILED
            assert report.error is not None
            assert answer.error is not None
            assert (report.error.code, report.error.stage) == (code, "llm")
            assert report.reply == reply
            assert one.names().count("run-end") == 1
            left = [row.stage for row in LedgerReader("ledger", tmp_path).read().rows]
            if how in ("raise-on-load", "crash-on-load"):  # all that was idle went, for the second try
                assert left == []
            else:
                assert left == (["intent", "llm"] if how in ("raise-on-run", "say-nothing") else ["intent"])
            one.how = ""
            assert (await one.pipeline.answer(Query(text="Why?"))).report.outcome is Outcome.ANSWERED

    run(test)


def test_commands_need_no_llm_and_a_question_says_that_there_is_none(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            one.how = "missing"
            report = (await one.pipeline.answer(Query(text="what time is it"))).report
            assert (report.outcome, report.reply) == (Outcome.HANDLED, "It is 5:05 PM.")
            report = (await one.pipeline.answer(Query(text="Why?"))).report
            assert report.error is not None
            assert (report.error.code, report.outcome) == ("model-missing", Outcome.FAILED)

    run(test)


def speech() -> bytes:
    return paths.data_file("question.wav").read_bytes()[44:]


def test_stages_load_while_the_recording_is_read_and_no_recogniser_hears_silence(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            read = threading.Event()

            def silence() -> bytes:
                read.wait(5)
                return bytes(16_000 * 2 * 3)

            task = asyncio.create_task(one.pipeline.answer(Query(pcm=silence)))
            async with asyncio.timeout(5):
                while {data["stage"] for name, data in one.events if name == "stage-load-end"} != {"asr", "intent"}:
                    await asyncio.sleep(0.02)  # both are there before a single sample is
            read.set()
            report = (await task).report
            assert report.error is not None
            assert report.error.code == "stt-no-text-recognized"
            assert one.heard() == []

    run(test)


def test_the_recogniser_hears_speech_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            quiet = bytes(16_000 * 2 * 3)
            report = (await one.pipeline.answer(Query(pcm=lambda: quiet + speech() + quiet))).report
            assert report.transcript == "what time is it"
            (heard,) = one.heard()
            assert 1.0 < heard / 32_000 < 3.2

    run(test)


def test_a_start_that_crashed_is_tried_once_more_without_trusting_its_cache(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            one.how = "crash-until-distrusted"
            report = (await one.pipeline.answer(Query(text="Why?"))).report
            assert (report.outcome, report.error) == (Outcome.ANSWERED, None)

    run(test)


def test_a_cancelled_query_ends_once_and_its_stage_serves_the_next(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            one.how = "slow"
            task = asyncio.create_task(one.pipeline.answer(Query(text="Why?")))
            await one.llm_loaded.wait()
            while "intent-end" not in one.names():
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            ends = [data for name, data in one.events if name == "run-end"]
            assert [data["outcome"] for data in ends] == ["cancelled"]
            assert ends[0]["report"].error.code == "cancelled"
            assert ends[0]["report"].timings_ms.llm > 50, "what was worked for nothing counts, too"
            one.how = ""
            assert (await one.pipeline.answer(Query(text="Why?"))).report.outcome is Outcome.ANSWERED

    run(test)


def test_a_bad_text_loads_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            report = (await one.pipeline.answer(Query(text="a\0b"))).report
            assert report.error is not None
            assert report.error.code == "text-has-nul"
            assert "memory-admit" not in one.names()

    run(test)


def test_a_second_query_finds_its_stages_loaded_and_a_third_after_an_unload_loads_them_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            costs = []
            for query in range(3):
                report = (await one.pipeline.answer(Query(text="Why?"))).report
                costs.append([stage.load_ms > 0 for stage in report.stages])
                assert all(stage.run_ms > 0 for stage in report.stages)
                assert report.memory.peak_mib > 0
                if query == 1:
                    assert await one.memory.unload("llm")
            assert costs[1] == [False, False]
            assert costs[2] == [False, True]

    run(test)


def test_queries_at_the_same_time_share_the_stages_and_all_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            answers = await asyncio.gather(*(one.pipeline.answer(Query(text=f"Why {n}?")) for n in range(4)))
            assert [answer.report.outcome for answer in answers] == [Outcome.ANSWERED] * 4
            assert all(f"Why {n}?" in answer.report.reply for n, answer in enumerate(answers))
            rows = LedgerReader("ledger", tmp_path).read().rows
            assert {row.stage: row.state for row in rows} == {"intent": RowState.IDLE, "llm": RowState.IDLE}
            assert one.names().count("stage-load-end") == 2

    run(test)


def test_a_cancel_at_any_moment_of_a_query_leaves_the_ledger_balanced(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            one.how = "slow"
            for wait_s in (0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4):
                task = asyncio.create_task(one.pipeline.answer(Query(text="Why?")))
                await asyncio.sleep(wait_s)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                async with asyncio.timeout(5):
                    while any(entry.in_use for entry in one.memory.holdings.entries.values()):
                        await asyncio.sleep(0.01)
            assert not one.memory.holdings.journeys.next_use("llm") < NOT_NEEDED
            assert one.names().count("run-start") == one.names().count("run-end") == 7

    run(test)


def test_a_query_works_with_the_model_that_it_has_leased_though_another_is_the_right_one_by_then(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:

            async def press() -> None:
                await one.llm_loaded.wait()
                one.how = "another model"

            pressing = asyncio.create_task(press())
            answer = await one.pipeline.answer(Query(text="Why?"))
            await pressing
            assert answer.error is None

    run(test)
