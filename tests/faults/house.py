"""An assistant with real engines that tests do harm to, and what must hold after every fault."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from assistant import config, paths
from assistant.audio.formats import read_audio
from assistant.daemon import Assistant
from assistant.memory_orchestrator.entry import Entry
from assistant.memory_orchestrator.ledger import SHM, LedgerReader, RowState, segment_name
from assistant.memory_orchestrator.probe import Usage
from assistant.messages import STAGE_ORDER, Stage
from assistant.query import Answer, Query

_numbers = itertools.count(1)


class Ear:
    """A sink that counts."""

    sample_rate = 22050

    def __init__(self) -> None:
        self.bytes = 0

    @property
    def seconds(self) -> float:
        return self.bytes / 2 / self.sample_rate

    def write(self, pcm: bytes, sample_rate: int) -> None:
        self.bytes += len(pcm)
        self.sample_rate = sample_rate


def query() -> Query:
    """Goes through all four stages."""
    return Query(pcm=lambda: read_audio(paths.data_file("question.wav")).pcm, sink=Ear())


class House:
    def __init__(self, assistant: Assistant, ledger: str) -> None:
        self.assistant, self._ledger = assistant, ledger
        self.holdings = assistant.memory.holdings
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def ask(self) -> Answer:
        return await asyncio.wait_for(self.assistant.answer(query()), 60)

    async def unload_all(self) -> None:
        for stage in STAGE_ORDER:
            await self.assistant.unload(stage)

    def entry(self, stage: Stage) -> Entry | None:
        return self.holdings.entries.get(stage.value)

    async def kill_when(self, stage: Stage, ready: Callable[[Entry], bool], within_s: float) -> bool:
        """SIGKILL for the worker of `stage` at a random moment after `ready`; False when that never came."""
        while True:
            entry = self.entry(stage)
            if entry is not None and entry.thing.pid and ready(entry):
                break
            await asyncio.sleep(0.001)
        await asyncio.sleep(random.random() * within_s)
        if not entry.thing.pid:
            return False
        os.kill(entry.thing.pid, signal.SIGKILL)
        return True

    async def check_balance(self) -> None:
        """Nothing is lost: no lease, no process, no zombie, no segment; and all of it inside the budget."""
        await self._settled()
        entries = self.holdings.entries
        assert all(entry.users == 0 for entry in entries.values()), entries
        view = LedgerReader(self._ledger).read()
        assert {row.stage: row.pid for row in view.rows} == {name: one.thing.pid for name, one in entries.items()}
        assert all(row.state in (RowState.IDLE, RowState.PREPARED) for row in view.rows), view.rows
        held = sum((entry.sample.now for entry in entries.values()), Usage()).total
        assert held + view.base_anon + view.base_file + view.margin <= view.budget
        workers = children(self.assistant.fork_server_pid)
        assert sorted(workers) == sorted(row.pid for row in view.rows)
        assert not [pid for pid in workers if is_zombie(pid)]

    async def _settled(self) -> None:
        async with asyncio.timeout(20):
            while any(one.in_use or not one.thing.pid for one in self.holdings.entries.values()):
                await asyncio.sleep(0.005)


@asynccontextmanager
async def house(*sets: str) -> AsyncIterator[House]:
    settings = config.load(sets, files=[], environ={})
    owner = f"faults-{os.getpid()}-{next(_numbers)}"
    async with Assistant(settings, owner=owner) as assistant:
        yield House(assistant, segment_name(owner))
    assert not (SHM / segment_name(owner)).exists()


def children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False
