"""Leases over real processes that really hold memory: admitted by memory alone, measured, and all of it back."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from assistant.errors import BusyNow, EngineFailed, NeverFits
from assistant.memory_orchestrator.ledger import LedgerReader, RowState
from assistant.memory_orchestrator.probe import MIB
from tests.memory_orchestrator.holding import Holder, alive, orchestrator, run


def test_a_lease_is_loaded_measured_and_written_down(tmp_path: Path) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:
            one = Holder("llm", 80)
            async with memory.lease(one):
                view = LedgerReader("ledger", tmp_path).read()
                (row,) = view.rows
                assert (row.stage, row.pid, row.state) == ("llm", one.pid, RowState.IN_USE)
                assert row.reserved == 100 * MIB
                assert 80 * MIB < row.anon < 95 * MIB
                assert view.margin == 100 * MIB
            (row,) = LedgerReader("ledger", tmp_path).read().rows
            assert row.state is RowState.IDLE
            async with memory.lease(one):
                assert one.loads == 1
            assert memory.holdings.peak_of("llm").anon > 80 * MIB

    run(test)


def test_as_much_stays_loaded_as_fits_and_the_oldest_goes_for_the_next(tmp_path: Path) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:  # 300 MiB
            stages = [Holder(name, 100) for name in ("asr", "llm", "tts")]
            for stage in stages:
                async with memory.lease(stage):
                    pass
            assert [stage.loads for stage in stages] == [1, 1, 1]
            assert [bool(stage.pid) for stage in stages] == [False, True, True]
            assert [len(stage.settled) for stage in stages] == [1, 1, 1]  # at the end of the first lease
            assert all(stage.settled[0].anon > 100 * MIB for stage in stages)
            await memory.unload("tts")
            async with memory.lease(stages[0], stages[1]):
                assert [stage.loads for stage in stages] == [2, 1, 1]

    run(test)


def test_the_peak_is_of_what_was_there_at_the_same_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:
            for name in ("asr", "llm"):
                async with memory.lease(Holder(name, 160)):
                    await asyncio.sleep(0.15)
            base = memory.holdings.figures.base.anon
            assert base + 155 * MIB < memory.holdings.figures.peaks.anon + 40 * MIB
            assert memory.holdings.figures.peaks.anon < base + 2 * 160 * MIB

    run(test)


def test_what_is_evicted_is_gone_before_the_next_one_loads(tmp_path: Path) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:
            asr, llm = Holder("asr", 200, leaves_after_s=0.2), Holder("llm", 200)
            async with memory.lease(asr):
                pid = asr.pid
            async with memory.lease(llm):
                assert alive == {"llm"}
                assert not Path(f"/proc/{pid}").exists()

    run(test)


def test_what_can_never_fit_is_refused_without_a_process(tmp_path: Path) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:
            big = Holder("llm", 10, promise=1000)
            started = time.monotonic()
            with pytest.raises(NeverFits, match="budget"):
                async with memory.lease(big):
                    pass
            assert time.monotonic() - started < 1
            assert big.loads == 0
            assert LedgerReader("ledger", tmp_path).read().rows == ()

    run(test)


def test_a_failed_load_gives_back_what_it_reserved(tmp_path: Path) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:
            with pytest.raises(EngineFailed):
                async with memory.lease(Holder("llm", 20, fails=True)):
                    pass
            assert LedgerReader("ledger", tmp_path).read().rows == ()
            async with memory.lease(Holder("llm", 20)):
                pass

    run(test)


def test_who_must_wait_is_served_when_the_other_is_done_or_told_busy(tmp_path: Path) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:
            asr, llm = Holder("asr", 20, promise=160), Holder("llm", 20, promise=160)
            async with memory.lease(asr):
                with pytest.raises(BusyNow, match="asr"):
                    async with memory.lease(llm, deadline_s=0.2):
                        pass
                assert llm.loads == 0

                async def wait() -> None:
                    async with memory.lease(llm, deadline_s=10):
                        pass

                waiting = asyncio.create_task(wait())
                await asyncio.sleep(0.2)
                assert not waiting.done()
            await asyncio.wait_for(waiting, 5)
            assert llm.loads == 1

    run(test)


def test_who_does_not_wait_gets_what_is_free_and_is_refused_without_a_word_otherwise(tmp_path: Path) -> None:
    async def test() -> None:
        told: list[str] = []
        async with orchestrator(tmp_path, emit=lambda name, data: told.append(name)) as memory:
            asr, llm, tts = (Holder(name, 20, promise=160) for name in ("asr", "llm", "tts"))
            async with memory.lease(asr):
                with pytest.raises(BusyNow):
                    async with memory.lease(llm, waits=False):
                        pass
                async with memory.lease(asr, waits=False):
                    assert asr.loads == 1
            with memory.journey(["asr", "tts"]):
                with pytest.raises(BusyNow):  # what a query needs sooner stays
                    async with memory.lease(tts, waits=False):
                        pass
                assert asr.pid
            with memory.journey(["tts", "asr"]):
                async with memory.lease(tts, waits=False):
                    assert not asr.pid
            assert "memory-deny" not in told
            assert llm.loads == 0

    run(test)


def test_two_users_of_one_stage_share_one_load(tmp_path: Path) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:
            llm = Holder("llm", 20)

            async def use() -> None:
                async with memory.lease(llm):
                    await asyncio.sleep(0.05)

            await asyncio.gather(use(), use(), use())
            assert llm.loads == 1

    run(test)


def test_a_stage_that_died_in_use_is_struck_from_the_ledger_and_can_come_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:
            llm = Holder("llm", 20)
            async with memory.lease(llm):
                llm.die()
            assert LedgerReader("ledger", tmp_path).read().rows == ()
            async with memory.lease(llm):
                assert llm.loads == 2

    run(test)


def test_a_cancelled_load_leaves_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:
            llm = Holder("llm", 100)

            async def use() -> None:
                async with memory.lease(llm):
                    pass

            task = asyncio.create_task(use())
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert llm.pid == 0
            assert LedgerReader("ledger", tmp_path).read().rows == ()

    run(test)


def test_a_cancel_while_another_stage_leaves_breaks_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:
            asr, llm = Holder("asr", 20, promise=160, leaves_after_s=0.3), Holder("llm", 20, promise=160)
            async with memory.lease(asr):
                pass

            async def use() -> None:
                async with memory.lease(llm):
                    pass

            task = asyncio.create_task(use())
            await asyncio.sleep(0.1)  # the recogniser is leaving
            for _ in range(2):
                task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
            async with memory.lease(asr):
                assert asr.pid
            assert asr.loads == 2

    run(test)


def test_who_asks_for_a_stage_that_is_leaving_gets_a_new_one(tmp_path: Path) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:
            asr, llm = Holder("asr", 20, promise=160, leaves_after_s=0.3), Holder("llm", 20, promise=160)
            async with memory.lease(asr):
                pass

            async def use(stage: Holder) -> None:
                async with memory.lease(stage, deadline_s=10):
                    assert stage.pid
                    await asyncio.sleep(0.05)

            first = asyncio.create_task(use(llm))
            await asyncio.sleep(0.1)
            await asyncio.gather(first, use(asr))
            assert asr.loads == 2

    run(test)


def test_an_idle_orchestrator_rests(tmp_path: Path) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:
            async with memory.lease(Holder("llm", 20)):
                pass
            reader = LedgerReader("ledger", tmp_path)
            await asyncio.sleep(0.2)  # the housekeeper's last quick look
            written = set()
            for _ in range(15):
                await asyncio.sleep(0.05)
                written.add(reader.read().updated_ns)
            assert len(written) <= 2

    run(test)
