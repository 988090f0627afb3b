"""Parts whose memory, loads and deaths a test decides, and the kernel's figures that go with them. No processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from assistant.errors import StageDied
from assistant.memory_orchestrator.housekeeper import Housekeeper
from assistant.memory_orchestrator.ledger import LedgerReader, LedgerView, LedgerWriter, RowState
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.memory_orchestrator.policy import Need
from assistant.memory_orchestrator.pressure import RELIEF
from assistant.memory_orchestrator.probe import MIB, Machine, Probe, Sample, Usage
from assistant.memory_orchestrator.sensors import Readings
from assistant.messages import Level

OWN_PID = 1
BASE = 50


class Kernel(Probe):
    """What the kernel says of this test's processes. Sizes in MiB."""

    def __init__(self, total: int = 2048, others: int = 0) -> None:
        super().__init__()
        self.total, self.others = total, others
        self.cgroup: int | None = None
        self.held: dict[int, Usage] = {OWN_PID: Usage(BASE * MIB)}
        self.peak: dict[int, int] = {}
        self._pid = 1000

    def started(self, usage: Usage) -> int:
        self._pid += 1
        self.hold(self._pid, usage)
        return self._pid

    def hold(self, pid: int, usage: Usage) -> None:
        self.held[pid] = usage
        self.peak[pid] = max(self.peak.get(pid, 0), usage.total)

    def ended(self, pid: int) -> None:
        self.held.pop(pid, None)

    def sample(self, pid: int) -> Sample:
        now = self.held.get(pid, Usage())
        return Sample(now=now, rss=now.total, rss_peak=self.peak.get(pid, now.total))

    def family_sample(self, pid: int) -> Sample:
        return self.sample(pid)

    def machine(self) -> Machine:
        anon = sum(one.anon for one in self.held.values())
        return Machine(
            total=self.total * MIB,
            available=(self.total - self.others) * MIB - anon,
            cgroup_limit=None if self.cgroup is None else self.cgroup * MIB,
            cgroup_left=0 if self.cgroup is None else max(0, self.cgroup * MIB - anon),
        )


class Part:
    """A `Loadable` that does what its test says. Sizes in MiB."""

    engine = "scripted"

    def __init__(
        self, kernel: Kernel, name: str, mib: int, *, promise: int | None = None, file: int = 0, model: str = "m"
    ) -> None:
        self.name, self.model, self.mib, self.file = name, model, mib, file
        self.promise = mib if promise is None else promise
        self.anew = mib
        """What a load that makes its cached files again takes."""
        self.pid = 0
        self.fresh = True
        self.weight_files_bytes = 0
        self.fails: list[BaseException] = []
        """What the next loads raise, first one first."""
        self.prepare_fails: list[BaseException] = []
        self.unload_fails: list[BaseException] = []
        """What the next unloads raise, when the process is gone."""
        self.may_load = self.may_prepare = self.may_leave = open_gate()
        self.works = True
        """Whether it has worked by the time it settles."""
        self.loads: list[bool] = []
        """`again` of each load."""
        self.prepares = self.unloads = self.reads = self.settles = 0
        self.killed_for = ""
        self.peaks: list[Usage] = []
        self._kernel = kernel
        self._going: list[int] = []

    # --- Loadable ---------------------------------------------------------------------------------------------------
    def need(self, *, anew: bool = False) -> Need:
        return Need(self.name, anon=(self.anew if anew else self.promise) * MIB, file=self.file * MIB)

    def prepared_need(self) -> Need:
        return Need(self.name, anon=10 * MIB, file=0)

    def settle(self, peak: Usage) -> bool:
        self.settles += 1
        self.peaks.append(peak)
        return self.works

    def read_ahead(self) -> None:
        self.reads += 1

    async def prepare(self) -> None:
        self.prepares += 1
        self.pid = self._kernel.started(Usage(10 * MIB))
        await self._step(self.may_prepare, self.prepare_fails)

    async def load(self, *, again: bool = False) -> None:
        self.loads.append(again)
        if not self.pid:
            self.pid = self._kernel.started(Usage(10 * MIB))
        await self._step(self.may_load, self.fails)
        self.hold(self.mib)

    async def _step(self, gate: asyncio.Event, fails: list[BaseException]) -> None:
        pid = self.pid
        try:
            await gate.wait()
            await asyncio.sleep(0)
            if self.pid != pid:
                raise StageDied(f"the worker of {self.name} is gone", stage=self.name)
            if fails:
                raise fails.pop(0)
        except BaseException:
            if self.pid == pid:
                self.die()
            raise

    async def unload(self) -> None:
        pid, self.pid = self.pid, 0
        self.unloads += 1
        await self.may_leave.wait()
        await asyncio.sleep(0)
        self._kernel.ended(pid)
        if self.unload_fails:
            raise self.unload_fails.pop(0)

    def kill(self, why: str) -> None:
        self.killed_for = why
        self.die()

    # --- what happens to it -----------------------------------------------------------------------------------------
    def hold(self, mib: int) -> None:
        self._kernel.hold(self.pid, Usage(mib * MIB, self.file * MIB))

    def die(self) -> None:
        self._kernel.ended(self.pid)
        self.pid = 0


def open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


class Clock:
    def __init__(self) -> None:
        self.ns = 1_000_000_000

    def __call__(self) -> int:
        return self.ns

    def forward(self, seconds: float) -> None:
        self.ns += int(seconds * 1e9)


class Room:
    """An orchestrator over scripted parts. Room = budget - margin - 50 MiB of its own."""

    def __init__(self, tmp_path: Path, *, budget: int, margin: int, keep_alive_s: float, kernel: Kernel | None) -> None:
        self.kernel = kernel or Kernel()
        self.clock = Clock()
        self.readings = Readings()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.folder = tmp_path
        self.memory = MemoryOrchestrator(
            ledger=LedgerWriter("ledger", tmp_path),
            own_pids=lambda: (OWN_PID,),
            budget_mib=budget,
            margin_mib=margin,
            keep_alive_s=keep_alive_s,
            probe=self.kernel,
            emit=lambda name, data: self.events.append((name, data)),
            clock_ns=self.clock,
        )
        self.housekeeper = Housekeeper(
            self.memory.holdings, sense=lambda: self.readings, emit=self._emit_pressure, clock_ns=self.clock
        )

    def _emit_pressure(self, name: str, data: dict[str, Any]) -> None:
        self.events.append((name, data))

    def part(self, name: str, mib: int, **more: Any) -> Part:
        return Part(self.kernel, name, mib, **more)

    def ledger(self) -> LedgerView:
        reader = LedgerReader("ledger", self.folder)
        try:
            return reader.read()
        finally:
            reader.close()

    def states(self) -> dict[str, RowState]:
        return {row.stage: row.state for row in self.ledger().rows}

    def evicted(self) -> list[tuple[str, str]]:
        return [(data["stage"], data["for"]) for name, data in self.events if name == "memory-evict"]

    async def look(self, seconds: float = 0) -> None:
        """What the housekeeper does after so much time, and what follows from it."""
        self.clock.forward(seconds)
        await self.housekeeper.look()
        await settled()

    def press(self, level: Level) -> None:
        self.memory.holdings.relieve(RELIEF[level])

    async def ahead(self, part: Part) -> None:
        """Asks for it ahead of its use, and lets everything happen that does not wait."""
        self.memory.prefetch(part)
        await settled()

    async def use(self, *parts: Part, deadline_s: float = 5) -> None:
        async with self.memory.lease(*parts, deadline_s=deadline_s):
            assert all(part.pid for part in parts)


async def settled() -> None:
    """Lets everything happen that needs no time."""
    for _ in range(50):
        await asyncio.sleep(0)


@asynccontextmanager
async def room(
    tmp_path: Path, budget: int = 650, margin: int = 100, keep_alive_s: float = 300, kernel: Kernel | None = None
) -> AsyncIterator[Room]:
    one = Room(tmp_path, budget=budget, margin=margin, keep_alive_s=keep_alive_s, kernel=kernel)
    try:
        yield one
    finally:
        await one.memory.close()


def run(test: Callable[[], Awaitable[None]], within_s: float = 10) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(within_s):
            await test()

    asyncio.run(bounded())
