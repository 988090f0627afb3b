"""Leases over scripted parts: of what fails to load, dies, or is just leaving."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from assistant.errors import EngineFailed, ModelDamaged, StageDied
from assistant.memory_orchestrator.ledger import RowState
from assistant.memory_orchestrator.probe import MIB
from tests.memory_orchestrator.scripted import Part, Room, room, run, settled


def test_a_failed_load_evicts_what_is_idle_and_is_tried_once_more(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            asr, llm = one.part("asr", 100), one.part("llm", 100)
            await one.use(asr)
            llm.fails = [StageDied("crashed")]
            await one.use(llm)
            assert llm.loads == [False, False]  # nothing says that cached files are to blame
            assert one.states() == {"llm": RowState.IDLE}
            assert one.evicted() == [("asr", "llm")]

    run(test)


@pytest.mark.parametrize(("anew_mib", "trusts"), [(250, False), (5000, True)])
def test_cached_files_are_distrusted_after_a_crash_if_there_is_room_to_make_them_anew(
    tmp_path: Path, anew_mib: int, trusts: bool
) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            llm.anew = anew_mib
            llm.fails = [EngineFailed("nonsense")]
            async with one.memory.lease(llm):
                assert llm.loads == [False, not trusts]
                promised = one.memory.holdings.entries["llm"].need.anon // MIB
                assert promised == (100 if trusts else anew_mib)

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
            assert llm.loads == [False, False]

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
                await one.ahead(llm)
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
            assert llm.loads == [False, False]
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


# --- who leaves -------------------------------------------------------------------------------------------------------
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


def test_a_stage_whose_end_went_wrong_behind_its_process_can_come_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            await one.use(llm)
            llm.unload_fails = [RuntimeError("can't start new thread")]
            with pytest.raises(RuntimeError):
                await one.memory.unload("llm")
            assert one.states() == {}
            await one.use(llm)
            assert one.states() == {"llm": RowState.IDLE}

    run(test)
