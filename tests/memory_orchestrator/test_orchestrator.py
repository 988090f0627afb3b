"""Leases over real processes that really hold memory: admitted by memory alone, measured, and all of it back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from assistant.errors import BusyNow, EngineFailed, NeverFits
from assistant.memory_orchestrator.calibration import Calibration
from assistant.memory_orchestrator.housekeeper import Housekeeper
from assistant.memory_orchestrator.ledger import LedgerReader, LedgerWriter, RowState
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.memory_orchestrator.policy import Admit, Need, plan
from assistant.memory_orchestrator.probe import MIB, Probe, Usage
from assistant.memory_orchestrator.sensors import Readings

HOLD = "import sys,time; block = b'x' * (int(sys.argv[1]) << 20); print('on', flush=True); time.sleep(60)"
alive: set[str] = set()
"""Holders whose process lives."""


class Holder:
    """A stage that holds `mib` MiB in a process of its own."""

    engine, model = "hold", "m"

    def __init__(
        self,
        name: str,
        mib: int,
        *,
        promise: int | None = None,
        fails: bool = False,
        leaves_after_s: float = 0,
    ) -> None:
        self.name, self._mib, self._fails = name, mib, fails
        self._leaves_after_s = leaves_after_s
        self._promise = promise if promise is not None else mib + 20
        self._process: subprocess.Popen[str] | None = None
        self.fresh = True
        self.weight_files_bytes = 0
        self.settled: list[Usage] = []
        self.loads = 0

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    def need(self) -> Need:
        return Need(stage=self.name, anon=self._promise * MIB, file=0)

    def prepared_need(self) -> Need:
        return self.need()

    def settle(self, peak: Usage) -> bool:
        self.settled.append(peak)
        return True

    def read_ahead(self) -> None:
        raise AssertionError("nobody loads ahead here")

    async def prepare(self) -> None:
        raise AssertionError("nobody loads ahead here")

    def kill(self, why: str) -> None:
        self.die()

    async def load(self, *, again: bool = False) -> None:
        alive.add(self.name)
        self.loads += 1
        self._process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(self._mib)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        await asyncio.to_thread(self._process.stdout.readline)
        if self._fails:
            await self.unload()
            raise EngineFailed("no")

    async def unload(self) -> None:
        if self._process is not None:
            await asyncio.sleep(self._leaves_after_s)
            self.die()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def die(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        alive.discard(self.name)


@asynccontextmanager
async def orchestrator(
    tmp_path: Path, budget_mib: int = 400, margin_mib: int = 100
) -> AsyncIterator[MemoryOrchestrator]:
    memory = MemoryOrchestrator(
        ledger=LedgerWriter("ledger", tmp_path),
        own_pids=lambda: (os.getpid(),),
        budget_mib=budget_mib + own_mib(),
        margin_mib=margin_mib,
    )
    housekeeper = Housekeeper(memory.holdings, sense=Readings)
    housekeeper.start()
    try:
        yield memory
    finally:
        await housekeeper.close()
        await memory.close()
        assert not (tmp_path / "ledger").exists()
        assert not alive


def own_mib() -> int:
    """The test's own process counts as the daemon's."""
    return Probe().usage(os.getpid()).total // MIB


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


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
            assert (own_mib() + 155) * MIB < memory.holdings.peaks.anon + 40 * MIB
            assert memory.holdings.peaks.anon < (own_mib() + 2 * 160) * MIB

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


async def times_ms(work: Callable[[], Coroutine[Any, Any, object]]) -> float:
    times = []
    for _ in range(200):
        started = time.perf_counter()
        await work()
        times.append((time.perf_counter() - started) * 1000)
    return median(times)


def test_the_decision_about_a_lease_takes_a_millisecond(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:
            llm, new = Holder("llm", 50), Holder("tts", 50)
            await memory.load(llm)

            async def reuse() -> None:
                entries, mine = await memory._admit([llm])
                assert not mine
                await memory._give_back(entries)

            async def admit() -> None:
                entries, _ = await memory._admit([llm])
                assert entries
                for entry in entries:
                    entry.users -= 1
                    entry.state = RowState.IDLE

            async def decide() -> None:
                assert plan(memory.holdings.snapshot(), [new.need()]) == Admit()

            found = {
                "idle": await times_ms(admit),
                "idle and back": await times_ms(reuse),
                "new": await times_ms(decide),
            }
        with capsys.disabled():
            shown = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
            sys.stdout.write(f"\nlease decision, median ms: {shown}\n")
        assert found["idle"] <= 3
        assert found["new"] <= 3

    run(test)


def test_what_was_measured_is_known_the_next_time(tmp_path: Path) -> None:
    file = tmp_path / "state/measured.json"
    Calibration(file).learn("k", Usage(100, 50))
    again = Calibration(file)
    assert again.peak("k") == Usage(100, 50)
    again.learn("k", Usage(200, 10))
    assert Calibration(file).peak("k") == Usage(200, 42)
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"k": 3}', b'{"k": {"anon": "x"}}', b"\xff\xfe"])
def test_a_damaged_calibration_file_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "measured.json"
    file.write_bytes(content)
    known = Calibration(file)
    assert known.peak("k") is None
    known.learn("k", Usage(1, 2))
    assert Calibration(file).peak("k") == Usage(1, 2)
