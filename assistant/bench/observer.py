"""An observer beside the orchestrator: walks the process tree from the daemon's pid and reads what the kernel says of
each process. Shares no code with `memory_orchestrator.probe`, so that a fault there shows here.

Reads /proc and the ledger's segment; never talks to the daemon.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from assistant.errors import NotRunning
from assistant.memory_orchestrator.ledger import LedgerReader, LedgerView

_KIB = 1024
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Held:
    """PSS of one process in bytes."""

    anon: int = 0
    """With what is swapped out."""
    file: int = 0
    """Clean pages of mapped files."""
    shm: int = 0
    """The part of `anon` that lies in shared memory: keys and values."""

    @property
    def total(self) -> int:
        return self.anon + self.file


@dataclass(frozen=True, slots=True)
class Reading:
    """All processes, one after another, between two moments of CLOCK_MONOTONIC."""

    begin_ns: int
    end_ns: int
    processes: dict[int, Held] = field(default_factory=dict)
    available: int = 0
    """MemAvailable of the machine, bytes."""

    @property
    def total(self) -> int:
        return sum(one.total for one in self.processes.values())

    @property
    def anon(self) -> int:
        return sum(one.anon for one in self.processes.values())


def read_tree(root: int, proc: Path = _PROC) -> Reading:
    """One reading of the process `root` and all its descendants."""
    begin = time.monotonic_ns()
    processes = {pid: held for pid in descendants(root, proc) if (held := _held(proc, pid)) is not None}
    return Reading(begin, time.monotonic_ns(), processes, _available(proc))


def descendants(root: int, proc: Path = _PROC) -> list[int]:
    """`root` and whatever descends from it, by the parents that /proc/PID/stat names."""
    children: dict[int, list[int]] = {}
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                stat = (proc / name / "stat").read_text("ascii", errors="replace")
            except OSError:
                continue  # it has just ended
            # the command name in parentheses may hold anything; the parent is the second field behind it
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _held(proc: Path, pid: int) -> Held | None:
    sizes = {"Pss": 0, "Pss_File": 0, "Pss_Shmem": 0, "SwapPss": 0}
    try:
        with open(proc / str(pid) / "smaps_rollup", encoding="ascii") as lines:
            for line in lines:
                name, _, rest = line.partition(":")
                if name in sizes:
                    sizes[name] = int(rest.split()[0]) * _KIB
    except OSError:
        return None
    anon = sizes["Pss"] - sizes["Pss_File"] + sizes["SwapPss"]
    return Held(anon=anon, file=sizes["Pss_File"], shm=sizes["Pss_Shmem"])


def _available(proc: Path) -> int:
    for line in (proc / "meminfo").read_text("ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * _KIB
    return 0


class Repeating(ABC):
    """A thread that looks at something again and again. `with` starts and ends it."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @abstractmethod
    def look(self) -> bool:
        """False: there is nothing more to see."""

    def _run(self) -> None:
        while self.look() and not self._stop.wait(self._every_s):
            pass

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()


class TreeLog(Repeating):
    """Readings of a process tree, about every `every_s`."""

    def __init__(self, root: int, every_s: float = 0.02) -> None:
        super().__init__(every_s)
        self._root = root
        self.readings: list[Reading] = []

    def look(self) -> bool:
        reading = read_tree(self._root)
        if reading.processes:
            self.readings.append(reading)
        return bool(reading.processes)


class LedgerLog(Repeating):
    """Every write of a ledger that stood for `every_s` or longer."""

    def __init__(self, reader: LedgerReader, every_s: float = 0.003) -> None:
        super().__init__(every_s)
        self._reader = reader
        self.views: list[LedgerView] = []

    def look(self) -> bool:
        try:
            view = self._reader.read()
        except NotRunning:
            return False
        if not self.views or view.updated_ns != self.views[-1].updated_ns:
            self.views.append(view)
        return True


def accounted(view: LedgerView) -> int:
    """Bytes of PSS that the ledger says all processes hold."""
    return view.base_anon + view.base_file + sum(row.anon + row.file for row in view.rows)


def workers(views: Sequence[LedgerView]) -> dict[int, str]:
    """The stage of every worker process that the ledger ever named."""
    return {row.pid: row.stage for view in views for row in view.rows if row.pid}


def gone(views: Sequence[LedgerView]) -> int:
    """How many workers the ledger named that it names no longer: evicted, at the end of their keep-alive, or dead."""
    return len(workers(views)) - len(workers(views[-1:]))
