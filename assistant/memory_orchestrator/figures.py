"""What is held and what may be: reads the kernel's figures of our processes, keeps peaks and budget, writes the ledger.

Decides nothing. `read_all` runs in a thread of its own: it replaces values and never mutates them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from assistant.memory_orchestrator import budget as budgets
from assistant.memory_orchestrator.entry import Entry
from assistant.memory_orchestrator.ledger import LedgerView, LedgerWriter
from assistant.memory_orchestrator.policy import NOT_NEEDED, Need, Snapshot, mode_of
from assistant.memory_orchestrator.probe import Probe, Sample, Usage
from assistant.messages import Level, Mode

_READINGS = 3
"""At most, of all processes in a row: where they come and go all the time, one must do."""


@dataclass(slots=True)
class Peaks:
    """The most that all processes held together, in bytes of PSS."""

    total: int = 0
    anon: int = 0

    def see(self, usage: Usage) -> None:
        self.total, self.anon = max(self.total, usage.total), max(self.anon, usage.anon)


class Figures:
    def __init__(
        self,
        *,
        ledger: LedgerWriter,
        own_pids: Callable[[], Iterable[int]],
        forking: Callable[[], bool],
        budget_mib: float,
        margin_mib: float,
        probe: Probe,
        clock_ns: Callable[[], int],
    ) -> None:
        self._ledger = ledger
        self._own_pids = own_pids
        self._forking = forking
        self._configured = budget_mib, margin_mib
        self._clock_ns = clock_ns
        self._closed = False
        self._base_samples: dict[int, Sample] = {}
        self._read_pids: list[int] | None = None
        self._read_ns = 0
        self._measured_ns = 0
        self._merging = threading.Lock()
        self._needs: tuple[Need, ...] = ()
        self.probe = probe
        self.base = Usage()
        """What the daemon and its fork server hold."""
        self.peaks = Peaks()
        """Since the start."""
        self._watches: tuple[Peaks, ...] = ()
        self._highest = Usage()
        """Of the last reading."""
        self.mode: Mode = "sequential"
        self.level: Level = "normal"
        self.budget = budgets.decide(probe.machine(), 0, configured_mib=budget_mib, margin_mib=margin_mib)

    # --- readings ---------------------------------------------------------------------------------------------------
    def measure(self, entry: Entry) -> None:
        if entry.thing.pid:
            sample = self.probe.family_sample(entry.thing.pid)
            if sample.now.total:
                with self._merging:  # the loop and the reading thread both come here
                    seen = sample.peak_since(entry.sample)
                    entry.peak, entry.spike, entry.sample = entry.peak | seen, entry.spike | seen, sample
        elif not entry.coming and entry.leaving is None:  # its process has died
            entry.sample = Sample()

    def read_all(self, entries: Collection[Entry]) -> None:
        """One reading of every process; updates peaks. `entries` may change meanwhile.

        When a process has come or gone in between, all are read again: it shares pages with those that were read
        before, and the sum would be of no moment at all.
        """
        for _ in range(_READINGS):
            before = self._pids(entries)
            self._read(list(entries))
            self._read_pids, self._read_ns = before, self._clock_ns()
            if before is not None and self._pids(entries) == before:
                break

    def _pids(self, entries: Iterable[Entry]) -> list[int] | None:
        """Of all that is read; None while one is being born, whose number nobody knows yet."""
        found = [*self._own_pids(), *(entry.thing.pid for entry in list(entries))]
        return None if self._forking() else found

    def _read(self, entries: Iterable[Entry]) -> None:
        highest = base = Usage()
        for pid in self._own_pids():
            sample = self.probe.sample(pid)
            highest += sample.peak_since(self._base_samples.get(pid, sample))
            base += sample.now
            self._base_samples[pid] = sample
        self.base = base
        for entry in entries:
            self.measure(entry)
            with self._merging:
                highest += entry.spike
                entry.spike = entry.sample.now
        self._highest = highest
        for peaks in (self.peaks, *self._watches):
            peaks.see(highest)

    @contextmanager
    def watch(self) -> Iterator[Peaks]:
        """Peaks of its own, for a query."""
        peaks = Peaks()
        peaks.see(self._highest)  # or one that ends before the next reading would have held nothing
        self._watches = (*self._watches, peaks)
        try:
            yield peaks
        finally:
            self._watches = tuple(one for one in self._watches if one is not peaks)

    def measured(self, entries: Iterable[Entry]) -> Usage:
        """All of our processes as of their last readings."""
        return sum((entry.sample.now for entry in entries), self.base)

    def _decide_budget(self, entries: Iterable[Entry]) -> None:
        budget_mib, margin_mib = self._configured
        ours = self.measured(entries).anon
        self.budget = budgets.decide(self.probe.machine(), ours, configured_mib=budget_mib, margin_mib=margin_mib)
        self.mode = mode_of(self.budget.usable - self.base.total, self._needs)

    # --- what the policy sees ---------------------------------------------------------------------------------------
    def snapshot(
        self,
        entries: Mapping[str, Entry],
        next_use: Callable[[str], int] = lambda _: NOT_NEEDED,
        *,
        without: Collection[Entry] = (),
    ) -> Snapshot:
        """The budget is read anew: a container's limit, and what others hold, can change.

        `without`: entries that are left out, because their promise is being replaced.
        """
        if not self._read_ns:
            self.read_all(entries.values())
        # ours as of the last reading of all: PSS moves between processes when one of them ends, so that base and stages
        # which were read at different times would not add up
        self._decide_budget(entries.values())
        return Snapshot(
            usable=self.budget.usable,
            budget=self.budget.total,
            margin=self.budget.margin,
            base=self.base.total,
            others=self.budget.taken,
            most=self.budget.total + self.budget.others,
            squeezable=self._configured[0] == 0,
            margin_note=self.budget.margin_note,
            held=tuple(entry.held(next_use(name)) for name, entry in entries.items() if entry not in without),
        )

    def expect(self, needs: Iterable[Need]) -> None:
        """What all stages of a query will need: the mode follows from it."""
        self._needs = tuple(needs)
        self.mode = mode_of(self.budget.usable - self.base.total, self._needs)

    # --- the ledger -------------------------------------------------------------------------------------------------
    def view(self, entries: Iterable[Entry]) -> LedgerView:
        entries = list(entries)
        if (
            self._read_pids is not None and self._pids(entries) == self._read_pids
        ):  # else the rows are not those that were read together
            self._measured_ns = self._read_ns
        return LedgerView(
            writer_pid=os.getpid(),
            budget=self.budget.total,
            margin=self.budget.margin,
            base_anon=self.base.anon,
            base_file=self.base.file,
            peak_anon=self.peaks.anon,
            peak_total=self.peaks.total,
            updated_ns=self._clock_ns(),
            mode=self.mode,
            level=self.level,
            measured_ns=self._measured_ns,
            rows=tuple(entry.row() for entry in entries),
        )

    def write(self, entries: Iterable[Entry]) -> None:
        if not self._closed:  # what ends later than we do has nothing to tell any more
            self._ledger.write(self.view(entries))

    def close(self) -> None:
        self._closed = True
        self._ledger.close()
