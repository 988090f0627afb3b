"""What stays and what goes between leases: keep-alive, pressure, shrinking budgets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from assistant.memory_orchestrator.ledger import RowState
from assistant.memory_orchestrator.probe import MIB
from assistant.memory_orchestrator.sensors import Readings
from tests.memory_orchestrator.scripted import Kernel, room, run


# --- keep-alive -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("configured", "own", "stays_s", "gone_after_s"),
    [
        (300, None, 299, 1.5),
        (0, None, None, 0),
        (-1, None, 1e6, None),
        (300, 10, 9, 1.5),
        (300, 0, None, 0),
        (300, -1, 1e6, None),
        (0, 60, 59, 1.5),
    ],
)
def test_an_idle_stage_stays_for_its_keep_alive(
    tmp_path: Path, configured: float, own: float | None, stays_s: float | None, gone_after_s: float | None
) -> None:
    async def test() -> None:
        async with room(tmp_path, keep_alive_s=configured) as one:
            llm = one.part("llm", 100)
            await one.memory.load(llm, keep_alive_s=own)
            if stays_s is not None:
                await one.look(stays_s)
                assert one.states() == {"llm": RowState.IDLE}
            if gone_after_s is not None:
                await one.look(gone_after_s)
                assert one.states() == {}
                assert one.evicted() == [("llm", "keep-alive")]

    run(test)


def test_an_unload_by_command_is_told_as_every_other_end_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            await one.use(one.part("llm", 100))
            assert all(await asyncio.gather(one.memory.unload("llm"), one.memory.unload("llm")))
            assert one.evicted() == [("llm", "command")]
            assert not await one.memory.unload("llm")
            assert len(one.evicted()) == 1

    run(test)


def test_a_use_starts_the_keep_alive_anew_and_nothing_ends_while_it_works(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            async with one.memory.lease(llm):
                await one.look(1000)
                assert one.states() == {"llm": RowState.IN_USE}
                assert one.ledger().rows[0].keep_alive_until_ns == 0
            await one.look(299)
            (row,) = one.ledger().rows
            assert row.keep_alive_until_ns - one.clock.ns == 1_000_000_000

    run(test)


def test_a_keep_alive_of_its_own_lasts_until_it_is_unloaded(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            await one.memory.load(llm, keep_alive_s=10)
            await one.use(llm)
            await one.look(11)
            assert one.states() == {}
            await one.use(llm)
            await one.look(11)
            assert one.states() == {"llm": RowState.IDLE}

    run(test)


def test_a_stage_that_a_running_query_will_need_outlives_its_keep_alive(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, keep_alive_s=0) as one:
            asr, tts, llm = one.part("asr", 100), one.part("tts", 100), one.part("llm", 100)
            with one.memory.journey(["asr", "llm", "tts"]) as journey:
                for part in (asr, tts):
                    await one.use(part)
                journey.reached("asr")
                await one.look(5)
                assert one.states() == {"tts": RowState.IDLE}
                async with one.memory.lease(llm):
                    journey.reached("llm")
                    await one.look(5)
                    assert one.states() == {"tts": RowState.IDLE, "llm": RowState.IN_USE}
            await one.look()
            assert one.states() == {}

    run(test)


def test_pressure_shortens_the_keep_alive_of_what_rests_already(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            await one.use(llm)
            one.press("high")  # a tenth
            await one.look(29)
            assert one.states() == {"llm": RowState.IDLE}
            await one.look(2)
            assert one.states() == {}

    run(test)


def test_critical_pressure_sends_away_even_what_shall_stay_for_ever_but_not_what_works(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, keep_alive_s=-1) as one:
            llm, asr = one.part("llm", 100), one.part("asr", 100)
            await one.use(llm)
            async with one.memory.lease(asr):
                one.press("critical")
                await one.look()
                assert one.states() == {"asr": RowState.IN_USE}
            await one.look()
            assert one.states() == {}

    run(test)


def test_the_housekeeper_feels_the_pressure_and_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            one.readings = Readings(available=10 * MIB)
            await one.look(3)
            assert one.ledger().level == "critical"
            ((name, data),) = one.events
            assert (name, data["level"]) == ("throttled", "critical")
            assert not one.memory.holdings.relief.load_ahead

    run(test)


# --- a budget that shrinks --------------------------------------------------------------------------------------------
def test_a_budget_below_what_is_loaded_sends_idle_stages_away_and_waits_for_those_that_work(tmp_path: Path) -> None:
    async def test() -> None:
        kernel = Kernel(total=4096)
        kernel.cgroup = 2048
        async with room(tmp_path, budget=0, margin=100, kernel=kernel) as one:
            asr, llm, tts = one.part("asr", 300), one.part("llm", 600), one.part("tts", 300)
            await one.use(asr)
            await one.use(tts)
            async with one.memory.lease(llm):
                kernel.cgroup = 1100  # margin 61, base 50: 989 of room
                await one.look()
                assert one.states() == {"tts": RowState.IDLE, "llm": RowState.IN_USE}
                assert one.evicted() == [("asr", "budget")]
                kernel.cgroup = 500
                await one.look()
                assert one.states() == {"llm": RowState.IN_USE}
            await one.look()
            assert one.states() == {}
            assert one.ledger().budget == 500 * MIB

    run(test)


def test_what_leaves_already_counts_as_gone_when_the_budget_shrinks(tmp_path: Path) -> None:
    async def test() -> None:
        kernel = Kernel(total=1792)
        async with room(tmp_path, budget=0, margin=100, kernel=kernel) as one:
            asr, llm = one.part("asr", 300), one.part("llm", 300)
            await one.use(asr)
            await one.use(llm)
            asr.may_leave = asyncio.Event()
            kernel.others = 1200
            for _ in range(3):
                await one.look()  # and is not held up by the one that takes its time
            assert one.states() == {"asr": RowState.LEAVING, "llm": RowState.IDLE}
            asr.may_leave.set()
            await one.look()
            assert one.states() == {"llm": RowState.IDLE}

    run(test)


# --- by itself --------------------------------------------------------------------------------------------------------
def test_a_housekeeper_that_is_started_wakes_for_the_end_of_a_keep_alive_and_ends_when_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, keep_alive_s=0) as one:
            one.housekeeper.start()
            llm = one.part("llm", 100)
            await one.use(llm)
            async with asyncio.timeout(1):
                while one.states():
                    await asyncio.sleep(0.005)
            await one.housekeeper.close()
            assert llm.pid == 0

    run(test)
