"""Decides with the policy and carries it out: what is kept, what must go, what is reserved. One planner at a time.

Loads nothing: it hands out entries whose promises stand in the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from assistant.errors import BusyNow, NeverFits, StageError
from assistant.memory_orchestrator.entry import Entry, Loadable
from assistant.memory_orchestrator.holdings import Holdings
from assistant.memory_orchestrator.ledger import RowState
from assistant.memory_orchestrator.policy import TAKEN, Evict, Need, Refuse, plan
from assistant.messages import Emit

_BACK_LOOK_S, _BACK_LOOKS = 0.005, 40
"""The kernel's figures of what is free lag behind the end of a process; so long they are looked at again before it
counts as somebody else's."""
_LEAST_WAIT_S = 0.01
"""For the turn, however short the deadline."""


class Planner:
    def __init__(
        self, holdings: Holdings, let_go: Callable[[Sequence[Entry]], object], emit: Emit, clock_ns: Callable[[], int]
    ) -> None:
        """`let_go`: takes back one user of each."""
        self._holdings = holdings
        self._let_go = let_go
        self._emit = emit
        self._clock_ns = clock_ns
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, seconds: float) -> AsyncIterator[None]:
        """Inside, nobody else plans. Raises `BusyNow` when another does not finish in time."""
        try:
            async with asyncio.timeout(max(seconds, _LEAST_WAIT_S)):
                await self._lock.acquire()
        except TimeoutError:
            raise BusyNow("the memory is being rearranged", retry_after_ms=1000) from None
        try:
            yield
        finally:
            self._lock.release()

    def check_ever(self, *things: Loadable) -> None:
        """Raises `NeverFits` for the first of them that could not be loaded even if nobody held anything."""
        snapshot = replace(self._holdings.snapshot(), held=())
        for thing in things:
            decision = plan(snapshot, [thing.need()])
            if isinstance(decision, Refuse) and isinstance(decision.error, NeverFits):
                raise decision.error

    def fit_together(self, *things: Loadable) -> bool:
        """Whether these could be held at the same time if nobody else held anything."""
        return sum(thing.need().usage.total for thing in things) <= self._holdings.snapshot().room

    async def admit(self, things: Sequence[Loadable], *, waits: bool = True) -> tuple[list[Entry], list[Entry]]:
        """In one's turn: reuses, and reserves after evicting what must go. All entries, and those to load. Without
        `waits`, nothing goes that a query needs as soon.

        Whatever is kept is counted as used before anything is awaited, so that nobody takes it away meanwhile.
        """
        if self._holdings.closing:
            raise StageError("the assistant is ending", stage=things[0].name)
        kept: list[Entry] = []
        try:
            for thing in things:
                held = await self._kept(thing)
                if held is not None:
                    held.users += 1
                    kept.append(held)
            prepared = [entry for entry in kept if entry.state is RowState.PREPARED]
            there = {entry.thing.name for entry in kept} - {entry.thing.name for entry in prepared}
            needs = {thing.name: (thing, thing.need()) for thing in things if thing.name not in there}
            if needs:
                nearer = None if waits else min(self._holdings.journeys.next_use(thing.name) for thing in things)
                await self.make_room([need for _, need in needs.values()], without=prepared, nearer_than=nearer)
        except BusyNow as busy:
            self._let_go(kept)
            if not waits:
                raise
            await self._give_way(things, kept, busy)
            return await self.admit(things)
        except BaseException:
            self._let_go(kept)
            raise
        for entry in kept:
            if entry.state is RowState.IDLE:
                entry.state, entry.until_ns = RowState.IN_USE, 0
        mine = [self.reserve(thing, need) for thing, need in needs.values()]
        for entry in mine:
            entry.users += entry not in kept
        self._holdings.told()
        return [*(entry for entry in kept if entry not in mine), *mine], mine

    async def _give_way(self, things: Sequence[Loadable], kept: Sequence[Entry], busy: BusyNow) -> None:
        """Unloads what was kept where it stands in its own lease's way: it holds more than it would anew, and waiting
        for ourselves would never end. Raises `MemoryRefused` where others are in the way, or all of it never fits."""
        ours = [entry for entry in kept if not entry.in_use]
        if not any(entry.state is RowState.IDLE for entry in ours):
            raise busy
        stay = {entry.thing.name for entry in kept if entry.in_use}
        anew = [thing.need() for thing in things if thing.name not in stay]
        decision = plan(self._holdings.snapshot(without=ours), anew)
        if isinstance(decision, Refuse):
            raise decision.error from None
        await self._holdings.evict([entry.thing.name for entry in ours], "+".join(need.stage for need in anew))

    async def _kept(self, thing: Loadable) -> Entry | None:
        """The entry that can serve `thing`, or None after whatever stood in its place has gone."""
        held = self._holdings.entries.get(thing.name)
        if held is None:
            return None
        if held.thing is thing and held.state is not RowState.LEAVING and (thing.pid or held.coming):
            if held.users or held.coming or held.state is RowState.PREPARED or thing.fresh:
                return held
        elif (held.users or held.coming) and held.thing is not thing:
            raise BusyNow(f"{thing.name} works with {held.thing.model}", stage=thing.name, retry_after_ms=1000)
        if held.thing.pid and held.state is not RowState.LEAVING:
            self._holdings.begin_eviction([thing.name], "replaced")
        await self._holdings.unload(held)
        return None

    async def make_room(
        self, needs: Sequence[Need], *, without: Collection[Entry] = (), nearer_than: int | None = None
    ) -> None:
        """Evicts until `needs` fit. Raises `MemoryRefused`. `nearer_than`: see `plan`; set for loading ahead."""
        looks = 0
        while True:
            snapshot = self._holdings.snapshot(without=without)
            decision = plan(snapshot, needs, nearer_than=-1 if nearer_than is None else nearer_than)
            if isinstance(decision, Refuse):
                error = decision.error
                if error.code == TAKEN and nearer_than is None and looks < _BACK_LOOKS:
                    looks += 1
                    await asyncio.sleep(_BACK_LOOK_S)
                    continue
                raise error
            if not isinstance(decision, Evict):
                return
            await self._holdings.evict(decision.victims, "+".join(need.stage for need in needs))

    def reserve(self, thing: Loadable, need: Need) -> Entry:
        entries = self._holdings.entries
        entry = entries.get(thing.name)
        if entry is None:
            entry = entries[thing.name] = Entry(thing=thing, need=need, last_used_ns=self._clock_ns())
        entry.need, entry.state, entry.until_ns = need, RowState.RESERVED, 0
        self._emit("memory-admit", {"stage": need.stage, "bytes": need.usage.total})
        return entry
