"""Prefetch: loaded, or prepared, or only read ahead, or nothing; never at the cost of what is wanted earlier."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from assistant.errors import EngineFailed, StageDied
from assistant.memory_orchestrator.journey import Journeys
from assistant.memory_orchestrator.ledger import RowState
from assistant.memory_orchestrator.policy import NOT_NEEDED
from assistant.memory_orchestrator.probe import MIB
from tests.memory_orchestrator.scripted import room, run, settled


@pytest.mark.parametrize(
    ("works", "weights", "state", "reads"),
    [
        (300, 100, RowState.IDLE, 0),  # 200 MiB of 500 are free: loaded
        (301, 100, RowState.PREPARED, 1),
        (301, 200, RowState.PREPARED, 0),  # the page cache would take what the others need
        (491, 5, None, 1),  # not even a process of 10 MiB
        (491, 10, None, 0),
    ],
)
def test_as_far_as_the_ledger_admits(
    tmp_path: Path, works: int, weights: int, state: RowState | None, reads: int
) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            asr, llm = one.part("asr", works), one.part("llm", 200)
            llm.weight_files_bytes = weights * MIB
            async with one.memory.lease(asr):
                await one.ahead(llm)
                assert (one.states().get("llm"), llm.reads) == (state, reads)

    run(test)


def test_a_prepared_stage_is_loaded_from_where_it_is(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            asr, llm = one.part("asr", 300), one.part("llm", 300)
            async with one.memory.lease(asr):
                await one.ahead(llm)
                prepared = llm.pid
                (row,) = [row for row in one.ledger().rows if row.stage == "llm"]
                assert row.reserved == 10 * MIB
            async with one.memory.lease(llm):
                assert llm.pid == prepared
                (row,) = [row for row in one.ledger().rows if row.stage == "llm"]
                assert row.reserved == 300 * MIB

    run(test)


def test_a_prepared_stage_leaves_after_its_keep_alive_and_after_half_a_minute_where_there_is_none(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with room(tmp_path, keep_alive_s=0) as one:
            asr, llm = one.part("asr", 300), one.part("llm", 300)
            async with one.memory.lease(asr):
                await one.ahead(llm)
                await one.look(29)
                assert one.states()["llm"] is RowState.PREPARED
                await one.look(2)
                assert "llm" not in one.states()

    run(test)


def test_it_takes_the_place_of_what_is_needed_later_and_of_nothing_else(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            intent, tts, llm = one.part("intent", 200), one.part("tts", 200), one.part("llm", 250)
            await one.use(intent)
            await one.use(tts)
            one.memory.prefetch(llm)  # nobody says that it will be needed
            await settled()
            assert one.evicted() == []
            await one.memory.unload("llm")
            with one.memory.journey(["intent", "llm", "tts"]):
                await one.ahead(llm)
                assert one.evicted() == [("llm", "command"), ("tts", "llm")]
                assert one.states() == {"intent": RowState.IDLE, "llm": RowState.IDLE}
                await one.memory.unload("llm")
                one.memory.prefetch(one.part("llm", 350, model="larger"))
                await settled()
                assert one.states()["intent"] is RowState.IDLE

    run(test)


def test_a_lease_that_comes_while_it_loads_ahead_shares_that_load(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 200)
            llm.may_load = asyncio.Event()
            await one.ahead(llm)
            task = asyncio.create_task(one.use(llm))
            await settled()
            llm.may_load.set()
            await task
            assert llm.loads == [False]

    run(test)


def test_a_lease_that_comes_while_it_is_prepared_loads_it_then(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            asr, llm = one.part("asr", 300), one.part("llm", 300)
            llm.may_prepare = asyncio.Event()
            async with one.memory.lease(asr):
                await one.ahead(llm)
                assert one.states()["llm"] is RowState.LOADING
            task = asyncio.create_task(one.use(llm))
            await settled()
            assert not task.done()
            llm.may_prepare.set()
            await task
            assert (llm.prepares, llm.loads) == (1, [False])

    run(test)


def test_loading_ahead_that_fails_evicts_nobody_and_the_lease_tries_and_says_why(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            intent, llm = one.part("intent", 100), one.part("llm", 100)
            await one.use(intent)
            llm.fails = [StageDied("crashed")]
            await one.ahead(llm)
            assert llm.loads == [False]
            assert one.states() == {"intent": RowState.IDLE}
            llm.fails = [EngineFailed("first"), EngineFailed("second")]
            with pytest.raises(EngineFailed, match="second"):
                await one.use(llm)

    run(test)


def test_a_process_that_cannot_be_prepared_leaves_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            asr, llm = one.part("asr", 300), one.part("llm", 300)
            llm.prepare_fails = [EngineFailed("not installed")]
            async with one.memory.lease(asr):
                await one.ahead(llm)
                assert (one.states(), llm.pid) == ({"asr": RowState.IN_USE}, 0)

    run(test)


def test_under_pressure_nothing_is_loaded_ahead(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            one.press("high")
            await one.ahead(llm)
            assert (llm.loads, llm.prepares) == ([], 0)

    run(test)


def test_what_others_have_taken_does_not_keep_a_lease_waiting_for_a_prefetch(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, budget=0) as one:
            one.kernel.others = 1500
            small = one.part("asr", 50)
            one.memory.prefetch(one.part("llm", 1000))
            started = asyncio.get_running_loop().time()
            await settled()
            await one.use(small)
            assert asyncio.get_running_loop().time() - started < 0.1

    run(test)


def test_everything_that_loads_ahead_ends_with_the_orchestrator(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            llm.may_load = asyncio.Event()
            await one.ahead(llm)
        assert llm.pid == 0
        assert set(one.kernel.held) == {1}

    run(test)


def test_a_journey_knows_what_is_still_to_come() -> None:
    journeys = Journeys()
    with journeys.of(["asr", "intent", "llm", "tts"]) as first:
        assert [journeys.next_use(name) for name in ("asr", "intent", "tts", "x")] == [0, 1, 3, NOT_NEEDED]
        first.reached("intent")
        assert [journeys.next_use(name) for name in ("asr", "intent", "llm")] == [NOT_NEEDED, NOT_NEEDED, 0]
        with journeys.of(["intent", "llm", "tts"]) as second:
            assert journeys.next_use("intent") == 0
            second.reached("tts")
            assert journeys.next_use("intent") == NOT_NEEDED
        first.reached("asr")  # which is behind it: nothing changes
        assert journeys.next_use("tts") == 1
    assert journeys.next_use("tts") == NOT_NEEDED
