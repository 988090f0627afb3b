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
from assistant.memory_orchestrator.policy import FILE_SHARE, Admit, Held, Refuse, Snapshot, plan
from assistant.memory_orchestrator.probe import Probe, Sample, Usage
from assistant.messages import Emit
from assistant.tasks import uninterrupted

log = logging.getLogger(__name__)

SAMPLE_S = 0.05
"""Between two readings of all processes; spikes in between are seen through the kernel's high-water mark."""
IDLE_SAMPLE_S = 2.0
"""The same while nothing is loading or working: a reading costs milliseconds per gigabyte that is mapped."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Bytes of PSS of all processes together."""

    total: int = 0
    anon: int = 0


_MOVING = (RowState.RESERVED, RowState.LOADING, RowState.IN_USE, RowState.LEAVING)


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
        self._changed = asyncio.Event()
        self._base: dict[int, Sample] = {}
        self._base_usage = Usage()
        self._sampler: asyncio.Task[None] | None = None
        self.peaks = Peaks()
        self.budget = budgets.decide(self._probe.machine(), 0, configured_mib=budget_mib, margin_mib=margin_mib)

    # --- life -------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        self._read_all()
        self._write()
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
            await self._give_back(entry)

    async def _give_back(self, entry: Entry) -> None:
        entry.users -= 1
        entry.last_used_ns = self._clock_ns()
        if entry.users == 0 and entry.state is RowState.IN_USE:
            entry.state = RowState.IDLE
        self._told()
        if entry.thing.pid == 0:  # it died in our hands
            await self._unload(entry)

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
            if self._entries.get(thing.name) is entry and entry.state is not RowState.LEAVING:
                return entry
            # the other one's load failed; ours says why, or succeeds

    async def _admit(self, thing: Loadable) -> Entry:
        """Under the planning lock: reuse, or reserve after evicting what must go."""
        held = self._entries.get(thing.name)
        if held is not None:
            coming = held.state in (RowState.RESERVED, RowState.LOADING)
            if held.thing is thing and held.state is not RowState.LEAVING and (thing.pid or coming):
                held.users += 1
                if held.state is RowState.IDLE:
                    held.state = RowState.IN_USE
                return held
            await self._unload(held)
        need = thing.need()
        while not isinstance(decision := plan(self.snapshot(), need), Admit):
            if isinstance(decision, Refuse):
                error = decision.error
                self._emit("memory-deny", {"stage": need.stage, "code": error.code, "message": error.message})
                raise error
            for victim in [self._entries[name] for name in decision.victims]:
                self._emit("memory-evict", {"stage": victim.thing.name, "for": need.stage})
                await self._unload(victim)
        entry = Entry(thing=thing, need=need, users=1, last_used_ns=self._clock_ns())
        self._entries[thing.name] = entry
        self._emit("memory-admit", {"stage": need.stage, "bytes": need.usage.total})
        self._told()
        return entry

    async def _load(self, entry: Entry) -> None:
        entry.state = RowState.LOADING
        try:
            await entry.thing.load()
        except BaseException:
            await self._unload(entry)
            raise
        self._measure(entry)
        entry.state = RowState.IN_USE
        self._told()

    async def _unload(self, entry: Entry) -> None:
        """Returns when the process is reaped, so that the kernel has its memory back. A cancel does not interrupt it,
        and who comes while it goes on waits for the same end."""
        if entry.leaving is None:
            entry.state = RowState.LEAVING
            entry.leaving = asyncio.create_task(self._leave(entry))
        await uninterrupted(entry.leaving)

    async def _leave(self, entry: Entry) -> None:
        self._measure(entry)
        await entry.thing.unload()
        if self._entries.get(entry.thing.name) is entry:
            del self._entries[entry.thing.name]
        entry.thing.settle(entry.peak)
        self._told()

    def _told(self) -> None:
        """Something changed: the ledger says so, and who waits looks again."""
        self._write()
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_for_change(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    # --- figures ----------------------------------------------------------------------------------------------------
    def snapshot(self) -> Snapshot:
        """The budget is read anew: a container's limit, and what others hold, can change."""
        configured_mib, margin_mib = self._configured
        # ours as of now: what we grew by since the last sample would count as somebody else's
        self._base_usage = sum((self._probe.usage(pid) for pid in self._own_pids()), Usage())
        ours = self._base_usage.anon + sum(entry.sample.now.anon for entry in self._entries.values())
        self.budget = budgets.decide(self._probe.machine(), ours, configured_mib=configured_mib, margin_mib=margin_mib)
        return Snapshot(
            usable=self.budget.usable,
            budget=self.budget.total,
            margin=self.budget.margin,
            base=self._base_usage.total,
            file_share=1.0 if self.budget.source == "configured" else FILE_SHARE,
            held=tuple(
                Held(
                    stage=name,
                    reserved=entry.need.usage,
                    measured=entry.sample.now,
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
            if any(entry.state in _MOVING for entry in self._entries.values()):
                await asyncio.sleep(SAMPLE_S)
            else:  # what is idle does not grow; a lease that begins wakes us
                await self._wait_for_change(IDLE_SAMPLE_S)
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
