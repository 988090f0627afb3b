"""Leases over scripted parts: joint, cancelled at every point, of what dies, leaves, comes, or is in its own way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from assistant.errors import BusyNow, EngineFailed, MemoryRefused, ModelDamaged, NeverFits, StageDied
from assistant.memory_orchestrator.ledger import RowState
from tests.memory_orchestrator.scripted import Part, Room, room, run, settled


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
            assert one.states() == {}
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


# --- who fails, dies, leaves ------------------------------------------------------------------------------------------
def test_a_failed_load_evicts_what_is_idle_and_is_tried_once_more(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            asr, llm = one.part("asr", 100), one.part("llm", 100)
            await one.use(asr)
            llm.fails = [StageDied("crashed")]
            await one.use(llm)
            assert llm.loads == [False, True]
            assert one.states() == {"llm": RowState.IDLE}
            assert one.evicted() == [("asr", "llm")]

    run(test)


def test_what_another_one_uses_stays_while_a_failed_load_is_tried_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            asr, llm = one.part("asr", 100), one.part("llm", 100)
            llm.fails = [StageDied("crashed"), StageDied("again")]
            async with one.memory.lease(asr):
                with pytest.raises(StageDied, match="again"):
                    await one.use(llm)
                assert one.states() == {"asr": RowState.IN_USE}
            assert llm.loads == [False, True]

    run(test)


def test_a_models_own_fault_is_not_tried_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            asr, llm = one.part("asr", 100), one.part("llm", 100)
            await one.use(asr)
            llm.fails = [ModelDamaged("one byte is missing")]
            with pytest.raises(ModelDamaged):
                await one.use(llm)
            assert llm.loads == [False]
            assert one.states() == {"asr": RowState.IDLE}

    run(test)


def test_a_lease_that_waited_for_the_load_of_another_loads_itself_when_that_fails(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            llm.may_load = asyncio.Event()
            llm.fails = [ModelDamaged("once")]
            first, second = asyncio.create_task(one.use(llm)), asyncio.create_task(one.use(llm))
            await settled()
            llm.may_load.set()
            with pytest.raises(ModelDamaged):
                await first
            await second
            assert llm.loads == [False, False]

    run(test)


def test_a_cancel_of_the_one_who_loads_does_not_fail_the_one_who_waits(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            llm.may_load = asyncio.Event()
            first, second = asyncio.create_task(one.use(llm)), asyncio.create_task(one.use(llm))
            await settled()
            first.cancel()
            await settled()
            llm.may_load.set()
            await second
            assert first.cancelled()

    run(test)


def test_a_part_that_died_idle_is_loaded_anew(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            await one.use(llm)
            llm.die()
            await one.use(llm)
            assert llm.loads == [False, False]

    run(test)


def test_a_part_that_died_idle_is_struck_from_the_ledger_by_the_housekeeper(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            await one.use(llm)
            llm.die()
            await one.look()
            assert one.states() == {}

    run(test)


def test_a_part_that_died_prepared_is_prepared_anew_by_its_load(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            asr, llm = one.part("asr", 300), one.part("llm", 300)
            async with one.memory.lease(asr):
                one.memory.prefetch(llm)
                await settled()
                assert one.states()["llm"] is RowState.PREPARED
                llm.die()
            await one.use(llm)
            assert one.states() == {"llm": RowState.IDLE}

    run(test)


def test_a_part_that_dies_while_it_loads_gives_back_what_it_reserved(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            llm.may_load = asyncio.Event()
            task = asyncio.create_task(one.use(llm))
            await settled()
            llm.die()
            llm.may_load.set()
            await task  # the second try
            assert llm.loads == [False, True]
            assert one.states() == {"llm": RowState.IDLE}

    run(test)


def test_two_that_died_in_use_are_both_struck_though_the_caller_is_cancelled_meanwhile(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm, tts = one.part("llm", 100), one.part("tts", 100)
            llm.may_leave = asyncio.Event()

            async def use() -> None:
                async with one.memory.lease(llm, tts):
                    llm.die()
                    tts.hold(150)

            task = asyncio.create_task(use())
            await settled()
            task.cancel()
            await settled()
            llm.may_leave.set()
            await asyncio.gather(task, return_exceptions=True)
            assert one.states() == {"tts": RowState.IDLE}  # and not left as if it still worked

    run(test)


async def given_to_somebody(one: Room, part: Part) -> None:
    async with one.memory.lease(part):
        for _ in range(20):
            await asyncio.sleep(0)
            assert part.pid, "it was unloaded under its user"


def test_nobody_is_given_what_the_housekeeper_has_just_chosen_to_evict(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            await one.use(llm)
            evicting = asyncio.create_task(one.memory.holdings.evict(["llm"], "keep-alive"))
            users = [asyncio.create_task(given_to_somebody(one, llm)) for _ in range(3)]
            await asyncio.gather(evicting, *users)

    run(test)


def test_nobody_is_given_what_is_restarted_for_a_leak(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            await one.use(llm)
            async with one.memory.lease(llm):
                llm.hold(160)
            await given_to_somebody(one, llm)  # in the same turn of the loop
            assert llm.loads == [False, False]

    run(test)


def test_who_asks_while_it_leaves_gets_a_new_one(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            await one.use(llm)
            llm.may_leave = asyncio.Event()
            leaving = asyncio.create_task(one.memory.unload("llm"))
            await settled()
            task = asyncio.create_task(one.use(llm))
            await settled()
            assert not task.done()
            llm.may_leave.set()
            assert await leaving
            await task
            assert llm.loads == [False, False]

    run(test)


def test_a_stage_that_is_given_back_while_another_waits_with_it_rests_when_that_one_gives_up(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:  # 500 MiB
            asr, llm, tts = one.part("asr", 100), one.part("llm", 200), one.part("tts", 200)
            await one.use(tts)
            tts.may_leave = asyncio.Event()
            release = asyncio.Event()

            async def hold() -> None:
                async with one.memory.lease(asr):
                    await release.wait()

            holder = asyncio.create_task(hold())
            await settled()
            large = one.part("llm", 350)
            both = asyncio.create_task(one.use(asr, large))
            await settled()  # it has counted itself as a user of asr, and waits for tts to leave
            release.set()
            await holder
            both.cancel()
            tts.may_leave.set()
            await asyncio.gather(both, return_exceptions=True)
            assert one.states() == {"asr": RowState.IDLE}
            assert one.ledger().rows[0].keep_alive_until_ns
            await one.use(llm)

    run(test)


# --- two models under one name ----------------------------------------------------------------------------------------
def test_another_model_of_a_stage_takes_its_place(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            large, small = one.part("llm", 300, model="large"), one.part("llm", 100, model="small")
            await one.use(large)
            await one.use(small)
            (row,) = one.ledger().rows
            assert (row.model, row.pid) == ("small", small.pid)
            assert large.pid == 0

    run(test)


def test_another_model_waits_for_the_one_that_works_or_is_told_busy(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            large, small = one.part("llm", 300, model="large"), one.part("llm", 100, model="small")
            async with one.memory.lease(large):
                with pytest.raises(BusyNow, match="works with large"):
                    await one.use(small, deadline_s=0.05)
                task = asyncio.create_task(one.use(small))
                await settled()
                assert large.pid
            await task
            assert small.loads == [False]

    run(test)


def test_another_model_that_is_being_loaded_ahead_is_not_cut_off_in_the_middle(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            large, small = one.part("llm", 300, model="large"), one.part("llm", 100, model="small")
            large.may_load = asyncio.Event()
            one.memory.prefetch(large)
            await settled()
            task = asyncio.create_task(one.use(small))
            await settled()
            large.may_load.set()
            await task
            assert (large.pid, one.states()) == (0, {"llm": RowState.IDLE})
            assert one.kernel.held.keys() == {1, small.pid}

    run(test)


def test_other_settings_take_effect_at_the_next_lease_and_not_under_a_user(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            async with one.memory.lease(llm):
                llm.fresh = False
                await one.use(llm)
                assert llm.loads == [False]
            await one.use(llm)
            assert llm.loads == [False, False]

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
