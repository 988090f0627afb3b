"""Gives stages their memory: reserve → load → measure → settle → release. Knows `Loadable`, never a stage.

`async with orchestrator.lease(thing, ...)` returns with all of them loaded and inside the budget, or raises. What is
wanted together is asked for together: nobody holds one lease while he waits for another. Loading happens outside the
planner's turn, with the reservation already in the ledger.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager

from assistant.errors import AssistantError, BusyNow, MemoryRefused, NeverFits
from assistant.memory_orchestrator.entry import Entry, Loadable
from assistant.memory_orchestrator.figures import Figures
from assistant.memory_orchestrator.holdings import Holdings
from assistant.memory_orchestrator.journey import Journey
from assistant.memory_orchestrator.ledger import LedgerWriter, RowState
from assistant.memory_orchestrator.planner import Planner
from assistant.memory_orchestrator.policy import TAKEN, Need
from assistant.memory_orchestrator.probe import Probe
from assistant.messages import Emit

log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 0.5


class MemoryOrchestrator:
    def __init__(
        self,
        *,
        ledger: LedgerWriter,
        own_pids: Callable[[], Iterable[int]],
        forking: Callable[[], bool] = lambda: False,
        budget_mib: float = 0,
        margin_mib: float = 300,
        keep_alive_s: float = 300,
        probe: Probe | None = None,
        emit: Emit = lambda name, data: None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`forking`: whether a process is being made that no `Loadable` names yet. `keep_alive_s`: how long an idle
        stage stays; 0 = not at all, negative = for ever."""
        figures = Figures(
            ledger=ledger,
            own_pids=own_pids,
            forking=forking,
            budget_mib=budget_mib,
            margin_mib=margin_mib,
            probe=probe or Probe(),
            clock_ns=clock_ns,
        )
        self.holdings = Holdings(figures, keep_alive_s=keep_alive_s, emit=emit, clock_ns=clock_ns)
        self._emit = emit
        self._clock_ns = clock_ns
        self._planner = Planner(self.holdings, self._let_go, emit, clock_ns)

    async def close(self) -> None:
        """Unloads everything and removes the ledger; never raises."""
        await self.holdings.close()

    # --- leases -----------------------------------------------------------------------------------------------------
    @asynccontextmanager
    async def lease(self, *things: Loadable, deadline_s: float = 30, waits: bool = True) -> AsyncIterator[None]:
        """Holds all `things` loaded. Raises `MemoryRefused` (at once if they can never fit), or what a load raised.

        Without `waits`, what others use or a query needs earlier is in the way at once, and no denial is told of it."""
        entries = await self._acquire(things, deadline_s, waits)
        try:
            yield
        finally:
            await self._give_back(entries)

    def check_ever(self, *things: Loadable) -> None:
        """Raises `NeverFits` for the first of them that could not be loaded even if nobody held anything."""
        try:
            self._planner.check_ever(*things)
        except NeverFits as error:
            self._deny(error)
            raise

    def fit_together(self, *things: Loadable) -> bool:
        """Whether these could be held at the same time if nobody else held anything."""
        return self._planner.fit_together(*things)

    def journey(self, stages: Sequence[str]) -> AbstractContextManager[Journey]:
        """Tells which stages a query will need, in order, for as long as it runs."""
        return self.holdings.journey(stages)

    async def _acquire(self, things: Sequence[Loadable], deadline_s: float, waits: bool) -> list[Entry]:
        give_up = time.monotonic() + deadline_s
        while True:
            try:
                async with self._planner.turn(give_up - time.monotonic()):
                    entries, mine = await self._planner.admit(things, waits=waits)
            except BusyNow as error:
                if not waits:
                    raise
                left = give_up - time.monotonic()
                if left <= 0 or error.code == TAKEN:
                    self._deny(error)
                    raise
                await self.holdings.wait_for_change(min(left, _LOOK_AGAIN_S))
                continue
            except NeverFits as error:
                if waits:
                    self._deny(error)
                raise
            try:
                await self._load_all(mine)
                while coming := [entry.thing.name for entry in entries if entry.coming]:  # others load them for us too
                    if time.monotonic() > give_up:
                        raise BusyNow(f"{coming[0]} is still loading", stage=coming[0], retry_after_ms=1000)
                    await self.holdings.wait_for_change(_LOOK_AGAIN_S)
            except BaseException:
                await self._give_back(entries)
                raise
            if all(self.holdings.serves(entry) and (entry in mine or entry.thing.pid) for entry in entries):
                return entries
            await self._give_back(entries)  # the other one's load failed; ours says why, or succeeds

    def _deny(self, error: MemoryRefused) -> None:
        self._emit("memory-deny", {"stage": error.stage, "code": error.code, "message": error.message})

    async def _load_all(self, entries: Sequence[Entry]) -> None:
        """All at the same time. Raises what the first of them raised, once all have ended. A load that nobody else
        waits for ends with us; one that others share goes on."""
        loads = [self.holdings.begin_load(entry) for entry in entries]
        try:
            results = await asyncio.gather(*map(asyncio.shield, loads), return_exceptions=True)
        except asyncio.CancelledError:
            for entry in entries:
                if entry.users == 1 and entry.loading is not None and not entry.loading.done():
                    entry.loading.cancel()
                    await self.holdings.unload(entry)
            raise
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
        if entry.state is not RowState.LEAVING:
            self.holdings.begin_eviction([name], "command")
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
        async with self._planner.turn(_LOOK_AGAIN_S):
            if thing.name in self.holdings.entries:
                return True  # somebody was faster
            try:
                await self._planner.make_room([need], nearer_than=self.holdings.journeys.next_use(thing.name))
            except BusyNow:
                return False
            entry = self._planner.reserve(thing, need)
        await (self.holdings.begin_load(entry, insists=False) if loads else self.holdings.prepare(entry))
        return True
