"""What is loaded: the entries, their way from reservation to rest and out, and the ledger that says so.

Every change of an entry happens here or under the orchestrator's lock. Knows `Loadable`, never a stage; plans nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from assistant.errors import StageError
from assistant.memory_orchestrator.entry import Entry
from assistant.memory_orchestrator.figures import Figures
from assistant.memory_orchestrator.journey import Journey, Journeys
from assistant.memory_orchestrator.ledger import LedgerView, RowState
from assistant.memory_orchestrator.policy import NOT_NEEDED, Snapshot, excess
from assistant.memory_orchestrator.pressure import RELIEF, Relief
from assistant.memory_orchestrator.probe import MIB, Usage
from assistant.messages import Emit
from assistant.tasks import uninterrupted

log = logging.getLogger(__name__)

_PREPARED_S = 30
"""How long a prepared process waits for its weights where idle stages are unloaded at once."""


class Holdings:
    def __init__(self, figures: Figures, *, keep_alive_s: float, emit: Emit, clock_ns: Callable[[], int]) -> None:
        """`keep_alive_s`: how long an idle stage stays; 0 = not at all, negative = for ever."""
        self.figures = figures
        self.entries: dict[str, Entry] = {}
        self.journeys = Journeys()
        self.relief: Relief = RELIEF["normal"]
        """What the pressure on the machine asks for."""
        self.closing = False
        self._keep_alive_s = keep_alive_s
        self._emit = emit
        self._clock_ns = clock_ns
        self._changed = asyncio.Event()
        self._background: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Unloads everything and removes the ledger; never raises. From here on nothing is admitted."""
        self.closing = True
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await asyncio.gather(*(self.unload(entry) for entry in list(self.entries.values())))
        self.figures.close()

    # --- from reservation to rest -----------------------------------------------------------------------------------
    def begin_load(self, entry: Entry, *, insists: bool = True) -> asyncio.Task[None]:
        """A load of its own, which goes on while anybody waits for it."""
        entry.state = RowState.LOADING
        entry.loading = asyncio.create_task(self._load(entry, insists))
        entry.loading.add_done_callback(
            lambda task: task.cancelled() or task.exception()
        )  # looked at, if by nobody else
        self.told()
        return entry.loading

    async def _load(self, entry: Entry, insists: bool) -> None:
        """A failed load evicts everything that is idle and is tried once more, if the caller insists; a model's own
        fault is not."""
        try:
            try:
                await entry.thing.load()
            except StageError as error:
                if not insists or entry.leaving is not None:
                    raise
                log.warning("%s; what is idle goes, and %s is loaded once more", error.message, entry.thing.name)
                await self.evict([name for name, one in self.entries.items() if not one.in_use], entry.thing.name)
                if entry.leaving is not None:
                    raise
                await entry.thing.load(again=error.suspects_cache and self._room_to_make_anew(entry))
            if entry.leaving is not None:
                raise StageError(f"{entry.thing.name} was unloaded while it loaded", stage=entry.thing.name)
        except BaseException:
            await self.unload(entry)
            raise
        self.figures.measure(entry)
        self._ready(entry)

    def _room_to_make_anew(self, entry: Entry) -> bool:
        """Whether files made for this machine can be made again inside the budget; their promise is then reserved."""
        anew = entry.thing.need(anew=True)
        if anew.usage.total > self.snapshot(without=[entry]).free:
            return False
        entry.need = anew
        return True

    def _ready(self, entry: Entry) -> None:
        if entry.users:
            entry.state = RowState.IN_USE
        else:
            self.rest(entry)
        self.told()

    async def prepare(self, entry: Entry) -> None:
        entry.state = RowState.LOADING
        self.told()
        try:
            await entry.thing.prepare()
        except BaseException:
            await self.unload(entry)
            raise
        self.figures.measure(entry)
        entry.state = RowState.PREPARED
        entry.until_ns = self._until(self._keep_alive_s or _PREPARED_S)
        self.told()

    def settle(self, entry: Entry) -> None:
        """After work: measures, tells the stage what it took, and lets it rest."""
        self.figures.measure(entry)
        if entry.at_rest is None and entry.thing.settle(entry.peak):
            entry.at_rest = entry.sample.now
            # what the first estimate promised too much is free for others; more than was promised waits for a new load
            entry.need = min(entry.need, entry.thing.need(), key=lambda need: need.usage.total)
        self.rest(entry)

    def rest(self, entry: Entry) -> None:
        """Nobody uses it: it stays for its keep-alive, and as long as a running query will need it."""
        entry.state = RowState.IDLE
        entry.until_ns = self._until(self._keep_alive_s if entry.keep_alive_s is None else entry.keep_alive_s)
        if entry.leaks:
            held, promised = entry.sample.now.anon // MIB, entry.need.anon // MIB
            log.warning("%s holds %d MiB at rest, promised were %d: restarted", entry.thing.name, held, promised)
            self._emit("memory-evict", {"stage": entry.thing.name, "for": "leak"})
            self.leave(entry)

    def _until(self, configured_s: float) -> int:
        stays_s = self.relief.keep_alive_s(configured_s)
        return 0 if stays_s < 0 else self._clock_ns() + int(stays_s * 1e9)

    @contextmanager
    def journey(self, stages: Sequence[str]) -> Iterator[Journey]:
        """Tells which stages a query will need, in order, for as long as it runs."""
        with self.journeys.of(stages) as journey:
            yield journey
        self.told()  # what it needed may go now

    async def evict(self, names: Iterable[str], for_whom: str) -> None:
        """Returns when their processes are reaped and their memory shows as free."""
        for victim in self.begin_eviction(names, for_whom):
            await self.unload(victim)

    def begin_eviction(self, names: Iterable[str], for_whom: str) -> list[Entry]:
        """From here on nobody is given them."""
        victims = [entry for name in names if (entry := self.entries.get(name)) is not None]
        for victim in victims:
            self._emit("memory-evict", {"stage": victim.thing.name, "for": for_whom})
            self.leave(victim)
        return victims

    async def unload(self, entry: Entry) -> None:
        """Returns when the process is reaped, so that the kernel has its memory back. A cancel does not interrupt it,
        and who comes while it goes on waits for the same end."""
        await uninterrupted(self.leave(entry))

    def leave(self, entry: Entry) -> asyncio.Task[None]:
        """Begins its unloading. The state changes at once, so that no lease gets what is about to go."""
        if entry.leaving is None:
            entry.state, entry.until_ns = RowState.LEAVING, 0
            entry.leaving = asyncio.create_task(self._leave(entry))
            self.told()
        return entry.leaving

    async def _leave(self, entry: Entry) -> None:
        try:
            await entry.thing.unload()
        finally:  # whatever went wrong behind its process: one that is gone must not keep its place for ever
            if self.here(entry) and not entry.thing.pid:
                del self.entries[entry.thing.name]
            self.told()

    # --- for the housekeeper ----------------------------------------------------------------------------------------
    def overdue(self) -> list[str]:
        """Idle stages whose keep-alive is over, or whose process has died."""
        now = self._clock_ns()
        at_rest = [(name, one) for name, one in self.entries.items() if not one.in_use]
        return [
            name for name, one in at_rest if not one.thing.pid or (0 < one.until_ns <= now and not self._soon(name))
        ]

    def next_end_ns(self) -> int:
        """When the next keep-alive is over; 0 = none will be."""
        ends = [one.until_ns for name, one in self.entries.items() if not one.in_use and not self._soon(name)]
        return min((end for end in ends if end), default=0)

    def _soon(self, name: str) -> bool:
        return self.journeys.next_use(name) < NOT_NEEDED

    def excess(self) -> tuple[str, ...]:
        """Idle stages that the budget, as it is now, has no room for, once those have gone that are going."""
        return excess(self.snapshot(without=[one for one in self.entries.values() if one.leaving is not None]))

    def relieve(self, relief: Relief) -> None:
        """Takes over what the pressure asks for: shorter keep-alives at once, the rest at the next load."""
        before, self.relief = self.relief, relief
        if relief.keep_alive >= before.keep_alive:
            return
        for entry in self.entries.values():
            if not entry.in_use:
                until = self._until(self._keep_alive_s if entry.keep_alive_s is None else entry.keep_alive_s)
                entry.until_ns = min(entry.until_ns or until, until)
        self.told()

    # --- figures ----------------------------------------------------------------------------------------------------
    def snapshot(self, *, without: Collection[Entry] = ()) -> Snapshot:
        return self.figures.snapshot(self.entries, self.journeys.next_use, without=without)

    def peak_of(self, name: str) -> Usage:
        """The measured peak of a stage that is loaded, in bytes."""
        entry = self.entries.get(name)
        if entry is None:
            return Usage()
        self.figures.measure(entry)
        return entry.peak

    def watch_anew(self, name: str) -> None:
        """The peak of an idle stage that has been learned from counts from now on: what it once took to load is not
        what the next query costs."""
        entry = self.entries.get(name)
        if entry is not None and entry.at_rest is not None and not entry.in_use:
            entry.peak = entry.sample.now

    def view(self) -> LedgerView:
        return self.figures.view(self.entries.values())

    def told(self) -> None:
        """Something changed: the ledger says so, and who waits looks again."""
        self.figures.write(self.entries.values())
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """In the background; `close` waits for it."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def here(self, entry: Entry) -> bool:
        return self.entries.get(entry.thing.name) is entry

    def serves(self, entry: Entry) -> bool:
        return self.here(entry) and entry.state is RowState.IN_USE
