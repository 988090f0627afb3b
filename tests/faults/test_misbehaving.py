"""Workers that hang, ignore SIGTERM, leak, leave in mid stream, fail to load or meet the kernel's OOM killer, as a
stage under the orchestrator: a typed error, then the next request succeeds and nothing is lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from assistant.bench.cgroups import MemoryCgroup
from assistant.errors import AssistantError, EngineFailed, ModelDamaged, StageDied, StageHung, UsageError
from assistant.memory_orchestrator.calibration import Calibration
from assistant.memory_orchestrator.housekeeper import Housekeeper
from assistant.memory_orchestrator.ledger import LedgerReader, LedgerWriter, RowState
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.memory_orchestrator.probe import MIB
from assistant.memory_orchestrator.sensors import Readings
from assistant.messages import LlmDelta, LlmRequest, Stage, Turn
from assistant.stages.fork_client import ForkServer
from assistant.stages.spec import StageSpec
from assistant.stages.supervisor import Supervisor
from tests.faults.house import children, is_zombie
from tests.housekept import housekept

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REQUEST = LlmRequest(turns=(Turn(role="user", content="hello"),))


class Nursery:
    """One stage whose engine does what `how` says, under a real orchestrator."""

    def __init__(self, folder: Path, server: ForkServer, budget_mib: float, margin_mib: float) -> None:
        self.server = server
        self.folder = folder
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.calibration = Calibration(folder / "measured.json")
        emit = lambda name, data: self.events.append((name, data))  # noqa: E731
        self.memory = MemoryOrchestrator(
            ledger=LedgerWriter("ledger", folder),
            own_pids=lambda: (server.pid,),
            budget_mib=budget_mib,
            margin_mib=margin_mib,
            emit=emit,
        )
        self.housekeeper = Housekeeper(self.memory.holdings, sense=Readings, emit=emit)
        self._stages: dict[str, Supervisor] = {}

    def stage(self, how: str) -> Supervisor:
        if how not in self._stages:
            spec = StageSpec(
                stage=Stage.LLM, engine="templates", model=how or "good", model_dir=Path(), digest="", weight_bytes=0,
                cache_dir=self.folder / "cache", threads=1, start_timeout_s=10, step_timeout_s=0.3,
                options={"how": how},
            )  # fmt: skip
            engine = "tests.stages.misbehaving:Misbehaving"
            self._stages[how] = Supervisor(spec, self.server, self.calibration, lambda name, data: None, engine)
        return self._stages[how]

    async def ask(self, how: str) -> str:
        stage = self.stage(how)
        async with self.memory.lease(stage, deadline_s=10):
            outputs = [out async for out in stage.run(REQUEST)]
        return "".join(out.text for out in outputs if isinstance(out, LlmDelta))

    async def check(self) -> None:
        """The next request succeeds, nothing is lost."""
        assert "hello" in await self.ask("")
        entries = self.memory.holdings.entries
        assert [(name, one.users, one.state) for name, one in entries.items()] == [("llm", 0, RowState.IDLE)]
        (row,) = LedgerReader("ledger", self.folder).read().rows
        assert children(self.server.pid) == [row.pid]
        assert not is_zombie(row.pid)


@asynccontextmanager
async def nursery(folder: Path, budget_mib: float, margin_mib: float) -> AsyncIterator[Nursery]:
    server = ForkServer()
    server.start()
    one = Nursery(folder, server, budget_mib, margin_mib)
    async with housekept(one.memory, one.housekeeper, server):
        yield one
    assert not (folder / "ledger").exists()


def run_faults(
    folder: Path, times: int, fault: Callable[[Nursery], Any], *, budget_mib: float = 400, margin_mib: float = 40
) -> None:
    async def test() -> None:
        async with nursery(folder, budget_mib, margin_mib) as one:
            await one.check()
            for _ in range(times):
                await fault(one)
                await one.check()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("hang-on-run", StageHung),
        ("ignore-sigterm", StageHung),
        ("exit-mid-stream", StageDied),
        ("raise-on-run", EngineFailed),
        ("raise-on-load", EngineFailed),
        ("crash-on-load", StageDied),
        ("damaged", ModelDamaged),
    ],
)
def test_a_bad_worker_is_a_typed_error(tmp_path: Path, how: str, error: type[AssistantError], fault_times: int) -> None:
    async def fault(one: Nursery) -> None:
        with pytest.raises(error):
            await one.ask(how)

    run_faults(tmp_path, fault_times, fault)


def test_a_worker_that_ignores_sigterm_leaves_all_the_same(tmp_path: Path, fault_times: int) -> None:
    async def fault(one: Nursery) -> None:
        async with one.memory.lease(one.stage("ignore-sigterm")):
            pass
        # another model under the same stage name: the one that does not listen has to go

    run_faults(tmp_path, min(fault_times, 10), fault)


def test_a_worker_that_leaks_is_restarted_before_it_hurts(tmp_path: Path, fault_times: int) -> None:
    async def fault(one: Nursery) -> None:
        for _ in range(8):  # 400 MiB in one process, if nobody looked
            assert "hello" in await one.ask("leak")
            await asyncio.sleep(0.02)
            held = one.memory.holdings.figures.measured(one.memory.holdings.entries.values())
            assert held.total <= 400 * MIB
        assert ("memory-evict", {"stage": "llm", "for": "leak"}) in one.events
        # what leaks teaches nothing: the promise stays that of one request
        assert one.stage("leak").need().anon < 130 * MIB

    run_faults(tmp_path, fault_times, fault)


def test_a_worker_that_eats_the_margin_is_stopped(tmp_path: Path, fault_times: int) -> None:
    async def fault(one: Nursery) -> None:
        with pytest.raises(StageDied, match="promised were") as caught:
            await one.ask("eat-forever")
        assert caught.value.code == "stage-over-memory"
        # it takes 2 GB a second; a look every 50 ms and half of the margin are enough to stop it inside the budget
        assert one.memory.holdings.figures.peaks.anon <= 600 * MIB

    run_faults(tmp_path, fault_times, fault, budget_mib=600, margin_mib=200)


@pytest.mark.root
def test_the_kernels_oom_kill_is_a_typed_error(tmp_path: Path, fault_times: int) -> None:
    """The worker alone lives in a cgroup that is smaller than anybody told the ledger."""

    async def fault(one: Nursery) -> None:
        try:
            with MemoryCgroup(f"assistant-oom-{os.getpid()}", 60 * MIB) as group:
                stage = one.stage("eat-forever")
                # the first worker is killed by the kernel; the second one, outside of the group, by the ledger
                with pytest.raises(StageDied, match="promised were"):
                    async with one.memory.lease(stage):
                        group.procs.write_text(str(stage.pid))
                        async for _ in stage.run(REQUEST):
                            pass
                assert group.oom_kills() == 1
        except UsageError as error:
            pytest.skip(f"no memory cgroup: {error.message}")

    run_faults(tmp_path, fault_times, fault, budget_mib=600, margin_mib=200)
