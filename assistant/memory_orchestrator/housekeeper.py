"""Looks after the memory between leases: samples, ends keep-alives, follows the budget, feels the pressure.

Samples often while something loads or works, seldom while all is idle. When stages hold more than the budget has,
idle ones go at once; one that works and has broken its promise is stopped before the margin is used up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from assistant.memory_orchestrator.entry import Entry
from assistant.memory_orchestrator.holdings import Holdings
from assistant.memory_orchestrator.ledger import RowState
from assistant.memory_orchestrator.pressure import RELIEF, Pressure
from assistant.memory_orchestrator.probe import MIB
from assistant.memory_orchestrator.sensors import Readings
from assistant.messages import Emit

log = logging.getLogger(__name__)

SAMPLE_S = 0.05
"""Between two readings of all processes; spikes in between are seen through the kernel's high-water mark."""
IDLE_SAMPLE_S = 2.0
"""The same while nothing is loading or working: a reading costs milliseconds per gigabyte that is mapped."""
SENSE_S = 2.0
"""Between two readings of the sensors."""

_MOVING = (RowState.RESERVED, RowState.LOADING, RowState.IN_USE, RowState.LEAVING)


class Housekeeper:
    def __init__(
        self,
        holdings: Holdings,
        *,
        sense: Callable[[], Readings],
        emit: Emit = lambda name, data: None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        sample_s: float = SAMPLE_S,
        idle_sample_s: float = IDLE_SAMPLE_S,
        sense_s: float = SENSE_S,
    ) -> None:
        self.pressure = Pressure()
        self._holdings = holdings
        self._sense = sense
        self._emit = emit
        self._clock_ns = clock_ns
        self._sample_s, self._idle_sample_s, self._sense_s = sample_s, idle_sample_s, sense_s
        self._sensed_ns = 0
        self._stopped: Entry | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._holdings.figures.read_all(())
        self._holdings.told()
        self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _keep(self) -> None:
        while True:
            await self._pause()
            try:
                await self.look()
            except Exception:  # the guard outlives whatever it meets: nobody else looks after the margin
                log.exception("a look at the memory failed")
                await asyncio.sleep(self._sample_s)

    async def _pause(self) -> None:
        if any(entry.state in _MOVING for entry in self._holdings.entries.values()):
            await asyncio.sleep(self._sample_s)
        else:  # what is idle does not grow; a lease that begins wakes us
            await self._holdings.wait_for_change(min(self._idle_sample_s, self._until_overdue()))

    def _until_overdue(self) -> float:
        end = self._holdings.next_end_ns()
        return max(0.001, (end - self._clock_ns()) / 1e9) if end else self._idle_sample_s

    async def look(self) -> None:
        """One round."""
        holdings = self._holdings
        await asyncio.to_thread(holdings.figures.read_all, holdings.entries.values())
        if overdue := holdings.overdue():
            holdings.begin_eviction(overdue, "keep-alive")  # and is not waited for: the next look must not be late
        if excess := holdings.excess():
            holdings.begin_eviction(excess, "budget")
        self._stop_who_breaks_the_margin()
        if self._clock_ns() - self._sensed_ns >= self._sense_s * 1e9:
            self._feel()
        holdings.figures.write(holdings.entries.values())

    def _stop_who_breaks_the_margin(self) -> None:
        """Anonymous memory cannot be dropped by the kernel: half of the margin in use is the last moment to act."""
        holdings = self._holdings
        budget = holdings.figures.budget
        held = holdings.figures.measured(holdings.entries.values()).anon
        if held <= budget.usable + budget.margin // 2:
            return
        if self._stopped is not None and self._stopped.thing.pid and holdings.here(self._stopped):
            return  # on its way out: nobody else is to blame until its memory is back

        def broken(entry: Entry) -> int:
            return entry.sample.now.anon - entry.need.anon

        worst = max((one for one in holdings.entries.values() if one.thing.pid), key=broken, default=None)
        if worst is not None and broken(worst) > 0:
            holds, promised = worst.sample.now.anon // MIB, worst.need.anon // MIB
            self._stopped = worst
            worst.thing.kill(f"was stopped: it held {holds} MiB, promised were {promised}, and the machine has no more")

    def _feel(self) -> None:
        self._sensed_ns = self._clock_ns()
        margin = self._holdings.figures.budget.margin
        if not self.pressure.feed(self._sense(), margin, self._sensed_ns / 1e9):
            return
        status = self.pressure.status
        log.warning("pressure is %s: %s", status.level, ", ".join(status.reasons) or "back to normal")
        self._holdings.figures.level = status.level
        self._holdings.relieve(RELIEF[status.level])
        self._emit("throttled", {"level": status.level, "reasons": list(status.reasons)})
