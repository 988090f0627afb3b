"""Stages that are real processes and really hold memory, and an orchestrator over them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from assistant.errors import EngineFailed
from assistant.memory_orchestrator.ledger import LedgerWriter
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.memory_orchestrator.policy import Need
from assistant.memory_orchestrator.probe import MIB, Probe, Usage
from assistant.messages import Emit
from tests.housekept import housekept

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

    def need(self, *, anew: bool = False) -> Need:
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
    tmp_path: Path, budget_mib: int = 400, margin_mib: int = 100, emit: Emit = lambda name, data: None
) -> AsyncIterator[MemoryOrchestrator]:
    memory = MemoryOrchestrator(
        ledger=LedgerWriter("ledger", tmp_path),
        own_pids=lambda: (os.getpid(),),
        budget_mib=budget_mib + own_mib(),
        margin_mib=margin_mib,
        emit=emit,
    )
    try:
        async with housekept(memory):
            yield memory
    finally:
        assert not (tmp_path / "ledger").exists()
        assert not alive


def own_mib() -> int:
    """The test's own process counts as the daemon's."""
    return Probe().usage(os.getpid()).total // MIB


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())
