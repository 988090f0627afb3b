"""Gives stages their memory: reserve → load → measure → settle → release. Knows `Loadable`, never a stage.

`async with orchestrator.lease(thing, ...)` returns with all of them loaded and inside the budget, or raises. What is
wanted together is asked for together: nobody holds one lease while he waits for another. One planner at a time;
loading happens outside its lock, with the reservation already in the ledger.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager

from assistant.errors import AssistantError, BusyNow, StageError
from assistant.memory_orchestrator.entry import Entry, Loadable
from assistant.memory_orchestrator.figures import Figures
from assistant.memory_orchestrator.holdings import Holdings
from assistant.memory_orchestrator.journey import Journey
from assistant.memory_orchestrator.ledger import LedgerWriter, RowState
from assistant.memory_orchestrator.policy import TAKEN, Evict, Need, Refuse, plan
from assistant.memory_orchestrator.probe import Probe
from assistant.messages import Emit

log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 0.5
_BACK_LOOK_S, _BACK_LOOKS = 0.005, 40
"""The kernel's figures of what is free lag behind the end of a process; so long they are looked at again before it
counts as somebody else's."""
_LEAST_WAIT_S = 0.01
"""For the planner's lock, however short the deadline."""


class MemoryOrchestrator:
    def __init__(
        self,
        *,
        ledger: LedgerWriter,
        own_pids: Callable[[], Iterable[int]],
        budget_mib: float = 0,
        margin_mib: float = 300,
        keep_alive_s: float = 300,
        probe: Probe | None = None,
        emit: Emit = lambda name, data: None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`keep_alive_s`: how long an idle stage stays; 0 = not at all, negative = for ever."""
        figures = Figures(
            ledger=ledger,
            own_pids=own_pids,
            budget_mib=budget_mib,
            margin_mib=margin_mib,
            probe=probe or Probe(),
            clock_ns=clock_ns,
        )
        self.holdings = Holdings(figures, keep_alive_s=keep_alive_s, emit=emit, clock_ns=clock_ns)
        self._emit = emit
        self._clock_ns = clock_ns
        self._planning = asyncio.Lock()

    async def close(self) -> None:
        """Unloads everything and removes the ledger; never raises."""
        await self.holdings.close()

    # --- leases -----------------------------------------------------------------------------------------------------
    @asynccontextmanager
    async def lease(self, *things: Loadable, deadline_s: float = 30) -> AsyncIterator[None]:
        """Holds all `things` loaded. Raises `MemoryRefused` (at once if they can never fit), or what a load raised."""
        entries = await self._acquire(things, deadline_s)
        try:
            yield
        finally:
            await self._give_back(entries)

    def fit_together(self, *things: Loadable) -> bool:
        """Whether these could be held at the same time if nobody else held anything."""
        return sum(thing.need().usage.total for thing in things) <= self.holdings.snapshot().room

    def journey(self, stages: Sequence[str]) -> AbstractContextManager[Journey]:
        """Tells which stages a query will need, in order, for as long as it runs."""
        return self.holdings.journey(stages)

    async def _acquire(self, things: Sequence[Loadable], deadline_s: float) -> list[Entry]:
        give_up = time.monotonic() + deadline_s
        while True:
            try:
                await self._planner(give_up - time.monotonic())
                try:
                    entries, mine = await self._admit(things)
                finally:
                    self._planning.release()
            except BusyNow as error:
                left = give_up - time.monotonic()
                if left <= 0 or error.code == TAKEN:
                    raise
                await self.holdings.wait_for_change(min(left, _LOOK_AGAIN_S))
                continue
            try:
                await self._load_all(mine)
                while any(entry.coming for entry in entries):  # others load them for us too
                    await self.holdings.wait_for_change(_LOOK_AGAIN_S)
            except BaseException:
                await self._give_back(entries)
                raise
            if all(self.holdings.serves(entry) and (entry in mine or entry.thing.pid) for entry in entries):
                return entries
            await self._give_back(entries)  # the other one's load failed; ours says why, or succeeds

    async def _planner(self, seconds: float) -> None:
        """Becomes the one planner. Raises `BusyNow` when another does not finish."""
        try:
            async with asyncio.timeout(max(seconds, _LEAST_WAIT_S)):
                await self._planning.acquire()
        except TimeoutError:
            raise BusyNow("the memory is being rearranged", retry_after_ms=1000) from None

    async def _admit(self, things: Sequence[Loadable]) -> tuple[list[Entry], list[Entry]]:
        """The planner's work: reuses, and reserves after evicting what must go. All entries, and those to load.

        Whatever is kept is counted as used before anything is awaited, so that nobody takes it away meanwhile.
        """
        if self.holdings.closing:
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
                await self._make_room([need for _, need in needs.values()], without=prepared)
        except BusyNow as busy:
            self._let_go(kept)
            await self._give_way(things, kept, busy)
            return await self._admit(things)
        except BaseException:
            self._let_go(kept)
            raise
        for entry in kept:
            if entry.state is RowState.IDLE:
                entry.state, entry.until_ns = RowState.IN_USE, 0
        mine = [self._reserve(thing, need) for thing, need in needs.values()]
        for entry in mine:
            entry.users += entry not in kept
        self.holdings.told()
        return [*(entry for entry in kept if entry not in mine), *mine], mine

    async def _give_way(self, things: Sequence[Loadable], kept: Sequence[Entry], busy: BusyNow) -> None:
        """Unloads what was kept where it stands in its own lease's way: it holds more than it would anew, and waiting
        for ourselves would never end. Raises `MemoryRefused` where others are in the way, or all of it never fits."""
        ours = [entry for entry in kept if not entry.in_use]
        if not any(entry.state is RowState.IDLE for entry in ours):
            raise busy
        stay = {entry.thing.name for entry in kept if entry.in_use}
        anew = [thing.need() for thing in things if thing.name not in stay]
        decision = plan(self.holdings.snapshot(without=ours), anew)
        if isinstance(decision, Refuse):
            raise decision.error from None
        await self.holdings.evict([entry.thing.name for entry in ours], "+".join(need.stage for need in anew))

    async def _kept(self, thing: Loadable) -> Entry | None:
        """The entry that can serve `thing`, or None after whatever stood in its place has gone."""
        held = self.holdings.entries.get(thing.name)
        if held is None:
            return None
        if held.thing is thing and held.state is not RowState.LEAVING and (thing.pid or held.coming):
            if held.users or held.coming or held.state is RowState.PREPARED or thing.fresh:
                return held
        elif (held.users or held.coming) and held.thing is not thing:
            raise BusyNow(f"{thing.name} works with {held.thing.model}", stage=thing.name, retry_after_ms=1000)
        await self.holdings.unload(held)
        return None

    async def _make_room(
        self, needs: Sequence[Need], *, without: Collection[Entry] = (), nearer_than: int | None = None
    ) -> None:
        """Evicts until `needs` fit. Raises `MemoryRefused`. `nearer_than`: see `plan`; set for loading ahead."""
        looks = 0
        while True:
            snapshot = self.holdings.snapshot(without=without)
            decision = plan(snapshot, needs, nearer_than=-1 if nearer_than is None else nearer_than)
            if isinstance(decision, Refuse):
                error = decision.error
                if error.code == TAKEN and nearer_than is None and looks < _BACK_LOOKS:
                    looks += 1
                    await asyncio.sleep(_BACK_LOOK_S)
                    continue
                if nearer_than is None:
                    self._emit("memory-deny", {"stage": error.stage, "code": error.code, "message": error.message})
                raise error
            if not isinstance(decision, Evict):
                return
            await self.holdings.evict(decision.victims, "+".join(need.stage for need in needs))

    def _reserve(self, thing: Loadable, need: Need) -> Entry:
        entries = self.holdings.entries
        entry = entries.get(thing.name)
        if entry is None:
            entry = entries[thing.name] = Entry(thing=thing, need=need, last_used_ns=self._clock_ns())
        entry.need, entry.state, entry.until_ns = need, RowState.RESERVED, 0
        self._emit("memory-admit", {"stage": need.stage, "bytes": need.usage.total})
        return entry

    async def _load_all(self, entries: Sequence[Entry]) -> None:
        """All at the same time. Raises what the first of them raised, once all have ended."""
        try:
            results = await asyncio.gather(*(self.holdings.load(entry) for entry in entries), return_exceptions=True)
        finally:
            for entry in entries:
                if entry.state is RowState.RESERVED:  # a cancel came before its load had begun
                    self.holdings.leave(entry)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _give_back(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            entry.last_used_ns = self._clock_ns()
        for entry in self._let_go(entries):
            await self.holdings.unload(entry)

    def _let_go(self, entries: Sequence[Entry]) -> list[Entry]:
        """One user less of each. What nobody uses any more rests; what has died goes, and is returned."""
        for entry in entries:
            entry.users -= 1
        done = [entry for entry in entries if not entry.users and self.holdings.serves(entry)]
        dead = [entry for entry in done if not entry.thing.pid]  # in our hands
        for entry in done:
            if entry in dead:
                self.holdings.leave(entry)
            else:
                self.holdings.settle(entry)
        self.holdings.told()
        return dead

    # --- without a query --------------------------------------------------------------------------------------------
    async def load(self, thing: Loadable, *, keep_alive_s: float | None = None, deadline_s: float = 30) -> None:
        """Loads `thing` and leaves it idle, with a keep-alive of its own if one is given. Raises like `lease`."""
        async with self.lease(thing, deadline_s=deadline_s):
            self.holdings.entries[thing.name].keep_alive_s = keep_alive_s

    async def unload(self, name: str) -> bool:
        """False when it is not there. Raises `BusyNow` when it is in use."""
        entry = self.holdings.entries.get(name)
        if entry is None:
            return False
        if entry.in_use and entry.state is not RowState.LEAVING:
            raise BusyNow(f"{name} is in use", stage=name, retry_after_ms=1000)
        await self.holdings.unload(entry)
        return True

    def prefetch(self, thing: Loadable) -> None:
        """Gets `thing` ready in the background as far as the ledger admits: loaded, else its process prepared and its
        weights read into the page cache. The lease that needs it says what is wrong with it."""
        holdings = self.holdings
        if holdings.relief.load_ahead and not holdings.closing and thing.name not in holdings.entries:
            self.holdings.spawn(self._prefetch(thing))

    async def _prefetch(self, thing: Loadable) -> None:
        try:
            loaded = await self._ahead(thing, thing.need(), loads=True)
            if not loaded:
                if self.holdings.snapshot().free >= thing.weight_files_bytes:
                    thing.read_ahead()
                await self._ahead(thing, thing.prepared_need(), loads=False)
        except AssistantError as error:
            log.info("%s was not made ready ahead: %s", thing.name, error.message)

    async def _ahead(self, thing: Loadable, need: Need, *, loads: bool) -> bool:
        """Whether there was room for `need` without taking anything that is wanted earlier."""
        await self._planner(_LOOK_AGAIN_S)
        try:
            if thing.name in self.holdings.entries:
                return True  # somebody was faster
            try:
                await self._make_room([need], nearer_than=self.holdings.journeys.next_use(thing.name))
            except BusyNow:
                return False
            entry = self._reserve(thing, need)
        finally:
            self._planning.release()
        await (self.holdings.load(entry, insists=False) if loads else self.holdings.prepare(entry))
        return True
