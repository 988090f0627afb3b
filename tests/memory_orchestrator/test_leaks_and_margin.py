"""Who is stopped or restarted for what it holds: leaks, and the guard of the margin."""

from __future__ import annotations

from pathlib import Path

from assistant.memory_orchestrator.ledger import RowState
from assistant.memory_orchestrator.probe import MIB, Usage
from tests.memory_orchestrator.scripted import room, run, settled


# --- leaks ------------------------------------------------------------------------------------------------------------
def test_a_stage_that_holds_more_after_each_request_is_restarted(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            held = 100
            for _ in range(6):
                async with one.memory.lease(llm):
                    held = 100 if one.kernel.held[llm.pid].anon == 100 * MIB else held
                    held += 50
                    llm.hold(held)
                assert held <= 200
                await settled()
            assert len(llm.loads) == 3  # every second request: its first rest explains what it held then
            assert [why for _, why in one.evicted()] == ["leak"] * 3
            assert max(peak.anon for peak in llm.peaks) <= 200 * MIB  # so the calibration has a bound

    run(test)


def test_a_stage_that_rests_where_it_first_rested_is_left_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 170, promise=100)
            for _ in range(5):
                await one.use(llm)
            assert (llm.loads, llm.settles) == ([False], 1)

    run(test)


def test_a_stage_that_has_not_worked_yet_settles_at_the_end_of_its_first_work(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            llm.works = False
            await one.use(llm)
            llm.works = True
            async with one.memory.lease(llm):
                llm.hold(180)
                await one.look()
                llm.hold(110)
            await one.use(llm)
            assert llm.settles == 2
            assert llm.peaks[-1].anon >= 180 * MIB  # the high-water mark, not what it holds at the end

    run(test)


# --- the margin -------------------------------------------------------------------------------------------------------
def test_who_eats_the_margin_is_stopped_and_nobody_else(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:  # 550 below the margin, 600 at half of it
            llm, tts = one.part("llm", 200), one.part("tts", 110, promise=100)
            async with one.memory.lease(llm, tts):
                llm.hold(400)
                await one.look()
                assert not llm.killed_for
                llm.hold(460)
                await one.look()
                assert "held 460 MiB, promised were 200" in llm.killed_for
                for _ in range(3):
                    await one.look()
                assert not tts.killed_for  # what the dead one held is not counted any more
                assert one.states() == {"llm": RowState.IN_USE, "tts": RowState.IN_USE}
            assert one.states() == {"tts": RowState.IDLE}

    run(test)


def test_who_keeps_its_promise_is_not_stopped(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 500)
            async with one.memory.lease(llm):
                one.kernel.hold(1, Usage(200 * MIB))  # the daemon itself has grown
                await one.look()
                assert not llm.killed_for

    run(test)
