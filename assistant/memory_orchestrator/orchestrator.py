"""Gives stages their memory: reserve → load → measure → settle → release. Knows `Loadable`, never a stage.

`async with orchestrator.lease(thing)` returns with the thing loaded and inside the budget, or raises. One planner at
a time; loading happens outside its lock, with the reservation already in the ledger.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from assistant.errors import BusyNow
from assistant.memory_orchestrator import budget as budgets
from assistant.memory_orchestrator.entry import Entry, Loadable
from assistant.memory_orchestrator.ledger import LedgerView, LedgerWriter, RowState
from assistant.memory_orchestrator.policy import Admit, Evict, Held, Refuse, Snapshot, plan
from assistant.memory_orchestrator.probe import Probe, Sample, Usage

log = logging.getLogger(__name__)

SAMPLE_S = 0.05
"""Between two readings of all processes; spikes in between are seen through the kernel's high-water mark."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Bytes of PSS of all processes together."""

    total: int = 0
    anon: int = 0


Emit = Callable[[str, dict[str, object]], None]


class MemoryOrchestrator:
    def __init__(
        self,
        *,
        ledger: LedgerWriter,
        own_pids: Callable[[], Iterable[int]],
        budget_mib: float = 0,
        margin_mib: float = 300,
        probe: Probe | None = None,
        emit: Emit = lambda name, data: None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._ledger = ledger
        self._own_pids = own_pids
        self._configured = budget_mib, margin_mib
        self._probe = probe or Probe()
        self._emit = emit
        self._clock_ns = clock_ns
        self._entries: dict[str, Entry] = {}
        self._planning = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._base: dict[int, Sample] = {}
        self._base_usage = Usage()
        self._sampler: asyncio.Task[None] | None = None
        self.peaks = Peaks()
        self.budget = budgets.decide(self._probe.machine(), 0, configured_mib=budget_mib, margin_mib=margin_mib)

    # --- life -------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        self._read_all()
        self._sampler = asyncio.create_task(self._sample_forever())

    async def close(self) -> None:
        """Unloads everything and removes the ledger; never raises."""
        for entry in list(self._entries.values()):
            await self._unload(entry)
        if self._sampler is not None:
            self._sampler.cancel()
            await asyncio.gather(self._sampler, return_exceptions=True)
            self._sampler = None
        self._ledger.close()

    # --- leases -----------------------------------------------------------------------------------------------------
    @asynccontextmanager
    async def lease(self, thing: Loadable, *, deadline_s: float = 30) -> AsyncIterator[None]:
        """Holds `thing` loaded. Raises `MemoryRefused` (at once when it can never fit) or what its load raised."""
        entry = await self._acquire(thing, deadline_s)
        try:
            yield
        finally:
            entry.users -= 1
            entry.last_used_ns = self._clock_ns()
            if entry.users == 0 and entry.state is RowState.IN_USE:
                entry.state = RowState.IDLE
            if thing.pid == 0:  # it died in our hands; its memory is back
                await self._unload(entry)
            self._write()
            await self._tell()

    async def _acquire(self, thing: Loadable, deadline_s: float) -> Entry:
        give_up = time.monotonic() + deadline_s
        while True:
            try:
                async with self._planning:
                    entry = await self._admit(thing)
            except BusyNow:
                left = give_up - time.monotonic()
                if left <= 0:
                    raise
                await self._wait_for_change(min(left, 0.5))
                continue
            if entry.state is RowState.RESERVED:
                await self._load(entry)
            try:
                while entry.state is RowState.LOADING:  # somebody else loads it for us too
                    await self._wait_for_change(0.5)
            except BaseException:
                entry.users -= 1
                raise
            if self._entries.get(thing.name) is entry:
                return entry
            # the other one's load failed; ours says why, or succeeds

    async def _admit(self, thing: Loadable) -> Entry:
        """Under the planning lock: reuse, or reserve after evicting what must go."""
        held = self._entries.get(thing.name)
        if held is not None and held.thing is thing and (thing.pid or held.state is not RowState.IDLE):
            held.users += 1
            if held.state is RowState.IDLE:
                held.state = RowState.IN_USE
            return held
        if held is not None:
            await self._unload(held)
        need = thing.need()
        while True:
            match plan(self.snapshot(), need):
                case Refuse(error):
                    self._emit("memory-deny", {"stage": need.stage, "code": error.code, "message": error.message})
                    raise error
                case Evict(victims):
                    for name in victims:
                        self._emit("memory-evict", {"stage": name, "for": need.stage})
                        await self._unload(self._entries[name])
                case Admit():
                    break
        entry = Entry(thing=thing, need=need, users=1, last_used_ns=self._clock_ns())
        self._entries[thing.name] = entry
        self._emit("memory-admit", {"stage": need.stage, "bytes": need.total})
        self._write()
        return entry

    async def _load(self, entry: Entry) -> None:
        entry.state = RowState.LOADING
        try:
            await entry.thing.load()
        except BaseException:
            await self._unload(entry)
            await self._tell()
            raise
        self._measure(entry)
        entry.state = RowState.IN_USE
        self._write()
        await self._tell()

    async def evict(self, name: str) -> None:
        """Unloads an idle stage now rather than when the next one needs its memory."""
        async with self._planning:
            entry = self._entries.get(name)
            if entry is not None and entry.users == 0:
                await self._unload(entry)

    async def _unload(self, entry: Entry) -> None:
        entry.state = RowState.LEAVING
        self._measure(entry)
        await entry.thing.unload()
        self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        """The process is reaped, so the kernel has its memory back: the ledger may say so."""
        if self._entries.pop(entry.thing.name, None) is not None:
            entry.thing.settle(entry.peak)
        self._write()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _wait_for_change(self, seconds: float) -> None:
        async with self._changed:
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return

    # --- figures ----------------------------------------------------------------------------------------------------
    def snapshot(self) -> Snapshot:
        """The budget is read anew: a container's limit, and what others hold, can change."""
        configured_mib, margin_mib = self._configured
        ours = self._base_usage.total + sum(entry.sample.now.total for entry in self._entries.values())
        self.budget = budgets.decide(self._probe.machine(), ours, configured_mib=configured_mib, margin_mib=margin_mib)
        return Snapshot(
            usable=self.budget.usable,
            budget=self.budget.total,
            margin=self.budget.margin,
            base=self._base_usage.total,
            held=tuple(
                Held(
                    stage=name,
                    reserved=entry.need.total,
                    measured=entry.sample.now.total,
                    in_use=entry.users > 0 or entry.state is RowState.LOADING,
                    last_used_ns=entry.last_used_ns,
                    heavy=entry.need.heavy,
                )
                for name, entry in self._entries.items()
            ),
        )

    def peak_of(self, name: str) -> Usage:
        """The measured peak of a stage that is loaded, in bytes."""
        entry = self._entries.get(name)
        if entry is None:
            return Usage()
        self._measure(entry)
        return entry.peak

    def _measure(self, entry: Entry) -> None:
        if entry.thing.pid:
            sample = self._probe.family_sample(entry.thing.pid)
            if sample.now.total:
                seen = sample.peak_since(entry.sample)
                entry.peak = Usage(max(entry.peak.anon, seen.anon), max(entry.peak.file, seen.file))
                entry.sample = sample

    def _read_all(self) -> None:
        """One reading of every process; updates peaks. Called from a thread: replaces values, never mutates them."""
        highest = Usage()
        base = Usage()
        for pid in self._own_pids():
            sample = self._probe.sample(pid)
            highest += sample.peak_since(self._base.get(pid, sample))
            base += sample.now
            self._base[pid] = sample
        self._base_usage = base
        for entry in list(self._entries.values()):
            before = entry.sample
            self._measure(entry)
            highest += entry.sample.peak_since(before)
        self.peaks = Peaks(max(self.peaks.total, highest.total), max(self.peaks.anon, highest.anon))

    async def _sample_forever(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            await asyncio.to_thread(self._read_all)
            self._write()

    def _write(self) -> None:
        self._ledger.write(
            LedgerView(
                writer_pid=os.getpid(),
                budget=self.budget.total,
                margin=self.budget.margin,
                base_anon=self._base_usage.anon,
                base_file=self._base_usage.file,
                peak_anon=self.peaks.anon,
                peak_total=self.peaks.total,
                updated_ns=self._clock_ns(),
                rows=tuple(entry.row() for entry in self._entries.values()),
            )
        )
