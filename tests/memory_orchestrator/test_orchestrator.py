"""Leases over real processes that really hold memory: one heavy stage at a time, measured, and all of it back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import BusyNow, EngineFailed, NeverFits
from assistant.memory_orchestrator.calibration import Calibration
from assistant.memory_orchestrator.ledger import LedgerReader, LedgerWriter, RowState
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.memory_orchestrator.policy import Need
from assistant.memory_orchestrator.probe import MIB, Usage

HOLD = "import sys,time; block = b'x' * (int(sys.argv[1]) << 20); print('on', flush=True); time.sleep(60)"
alive: set[str] = set()
"""Heavy holders whose process lives: never two."""


class Holder:
    """A stage that holds `mib` MiB in a process of its own."""

    engine, model = "hold", "m"

    def __init__(
        self,
        name: str,
        mib: int,
        *,
        promise: int | None = None,
        heavy: bool = True,
        fails: bool = False,
        leaves_after_s: float = 0,
    ) -> None:
        self.name, self._mib, self._heavy, self._fails = name, mib, heavy, fails
        self._leaves_after_s = leaves_after_s
        self._promise = promise if promise is not None else mib + 20
        self._process: subprocess.Popen[str] | None = None
        self.settled: list[Usage] = []
        self.loads = 0

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    def need(self) -> Need:
        return Need(stage=self.name, anon=self._promise * MIB, file=0, heavy=self._heavy)

    def settle(self, peak: Usage) -> None:
        self.settled.append(peak)

    async def load(self) -> None:
        if self._heavy:
            assert not alive, f"{self.name} loads while {alive} live"
            alive.add(self.name)
        self.loads += 1
        self._process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(self._mib)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        await asyncio.to_thread(self._process.stdout.readline)
        if self._fails:
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
    events: list[str] = []
    memory = MemoryOrchestrator(
        ledger=LedgerWriter("ledger", tmp_path),
        own_pids=lambda: (os.getpid(),),
        budget_mib=budget_mib + own_mib(),
        margin_mib=margin_mib,
        emit=lambda name, data: events.append(f"{name} {data['stage']}"),
    )
    memory.start()
    memory.events = events  # type: ignore[attr-defined]
    try:
        yield memory
    finally:
        await memory.close()
        assert not (tmp_path / "ledger").exists()
        assert not alive


def own_mib() -> int:
    """The test's own process counts as the daemon's."""
    from assistant.memory_orchestrator.probe import Probe

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
            assert memory.peak_of("llm").anon > 80 * MIB

    run(test)


def test_one_heavy_stage_goes_before_the_next_comes(tmp_path: Path) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:
            stages = [Holder(name, 60) for name in ("asr", "llm", "tts")]
            for stage in stages:
                async with memory.lease(stage):
                    pass  # Holder.load itself asserts that no other heavy one lives
            assert [stage.loads for stage in stages] == [1, 1, 1]
            assert stages[0].pid == 0
            assert [len(stage.settled) for stage in stages] == [1, 1, 0]
            # the peak is of one at a time, not of the sum
            assert memory.peaks.anon < (own_mib() + 60 + 60) * MIB

    run(test)


def test_a_light_stage_stays(tmp_path: Path) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:
            intent, llm = Holder("intent", 5, heavy=False), Holder("llm", 60)
            async with memory.lease(llm), memory.lease(intent):
                assert intent.pid
                assert llm.pid

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
            asr, llm = Holder("asr", 20), Holder("llm", 20)
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
            asr, llm = Holder("asr", 20, leaves_after_s=0.3), Holder("llm", 20)
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
            asr, llm = Holder("asr", 20, leaves_after_s=0.3), Holder("llm", 20)
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
            await asyncio.sleep(0.2)
            written = set()
            for _ in range(15):
                await asyncio.sleep(0.05)
                written.add(reader.read().updated_ns)
            assert len(written) <= 2

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
