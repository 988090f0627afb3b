"""Leases over scripted parts: joint, cancelled at every point, refused, given up by a command or at the end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from assistant.errors import BusyNow, EngineFailed, MemoryRefused, NeverFits
from assistant.memory_orchestrator.ledger import RowState
from tests.memory_orchestrator.scripted import room, run, settled


def test_several_who_ask_at_the_same_moment_share_one_load(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            await asyncio.gather(*(one.use(llm) for _ in range(5)))
            assert llm.loads == [False]
            assert one.states() == {"llm": RowState.IDLE}

    run(test)


def test_a_cancel_before_the_load_has_begun_loses_no_reservation(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            task = asyncio.create_task(one.use(llm))
            await asyncio.sleep(0)  # reserved; its load is a task that has not run
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await settled()
            # gone, or loaded already and at rest
            assert one.states() in ({}, {"llm": RowState.IDLE})
            assert all(entry.users == 0 for entry in one.memory.holdings.entries.values())
            await one.use(llm)

    run(test)


@pytest.mark.parametrize("turns", range(12))
def test_a_cancel_at_any_turn_of_the_loop_leaves_the_ledger_balanced(tmp_path: Path, turns: int) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            asr, llm, tts = one.part("asr", 300), one.part("llm", 200), one.part("tts", 200)
            await one.use(asr)
            task = asyncio.create_task(one.use(llm, tts))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await settled()
            for name, entry in one.memory.holdings.entries.items():
                assert (entry.users, entry.state) == (0, RowState.IDLE), name
            await one.use(llm, tts)
            await one.use(asr)

    run(test)


def test_what_is_wanted_together_is_loaded_together_and_given_back_together(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm, tts = one.part("llm", 200), one.part("tts", 200)
            llm.may_load, tts.may_load = asyncio.Event(), asyncio.Event()
            task = asyncio.create_task(one.use(llm, tts))
            await settled()
            assert one.states() == {"llm": RowState.LOADING, "tts": RowState.LOADING}
            llm.may_load.set()
            tts.may_load.set()
            await task
            assert one.states() == {"llm": RowState.IDLE, "tts": RowState.IDLE}
            assert llm.loads == tts.loads == [False]

    run(test)


def test_a_joint_lease_with_a_part_that_fails_gives_the_other_one_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm, tts = one.part("llm", 200), one.part("tts", 200)
            tts.fails = [EngineFailed("no"), EngineFailed("still no")]
            with pytest.raises(EngineFailed, match="still no"):
                await one.use(llm, tts)
            assert one.states() == {"llm": RowState.IDLE}
            assert one.memory.holdings.entries["llm"].users == 0
            await one.use(llm, tts)

    run(test)


def test_two_joint_leases_in_opposite_order_both_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:  # 500 MiB
            llm, tts, asr = one.part("llm", 200), one.part("tts", 200), one.part("asr", 300)
            uses = [one.use(llm, tts), one.use(tts, llm), one.use(asr, tts), one.use(asr), one.use(llm)]
            await asyncio.gather(*uses)
            assert all(entry.users == 0 for entry in one.memory.holdings.entries.values())

    run(test)


def test_a_promise_that_was_too_large_does_not_stand_in_the_way_of_its_own_lease(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:  # 500 MiB
            llm, tts = one.part("llm", 200, promise=400), one.part("tts", 200)
            await one.use(llm)
            llm.promise = 250  # as it was measured
            assert one.memory.fit_together(llm, tts)
            await one.use(llm, tts, deadline_s=0.5)
            assert llm.loads == [False, False]

    run(test)


def test_what_can_never_be_held_together_is_refused_at_once_though_one_of_them_is_there(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:  # 500 MiB
            llm, tts = one.part("llm", 300), one.part("tts", 300)
            await one.use(llm)
            with pytest.raises(NeverFits, match="llm and tts"):
                async with asyncio.timeout(1):
                    await one.use(llm, tts, deadline_s=60)
            assert one.states() == {"llm": RowState.IDLE}

    run(test)


# --- commands ---------------------------------------------------------------------------------------------------------
def test_unloading_what_is_not_there_idle_or_in_use(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            assert not await one.memory.unload("llm")
            async with one.memory.lease(llm):
                with pytest.raises(BusyNow, match="llm is in use"):
                    await one.memory.unload("llm")
                assert llm.pid
            assert await one.memory.unload("llm")
            assert (llm.pid, one.states()) == (0, {})

    run(test)


def test_unloading_what_is_loading_is_busy(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            llm.may_load = asyncio.Event()
            task = asyncio.create_task(one.memory.load(llm))
            await settled()
            with pytest.raises(BusyNow):
                await one.memory.unload("llm")
            llm.may_load.set()
            await task
            assert await one.memory.unload("llm")

    run(test)


def test_a_refusal_is_an_event_with_its_reason(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            with pytest.raises(MemoryRefused):
                await one.use(one.part("llm", 501))
            ((name, data),) = one.events
            assert (name, data["stage"], data["code"]) == ("memory-deny", "llm", "memory-never-fits")

    run(test)


def test_a_lease_that_ends_after_the_orchestrator_harms_nobody(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            async with one.memory.lease(llm):
                await one.memory.close()
            assert one.kernel.held.keys() == {1}
            assert not (tmp_path / "ledger").exists()

    run(test)
