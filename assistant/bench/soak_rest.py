"""A daemon at rest: what its processes hold, and whether the ledger agrees with the kernel about it.

Reads /proc and the ledger's segment; asks the daemon to unload and to look again, and what it is told to ask alone.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from assistant.bench.daemons import OwnDaemon
from assistant.bench.memory_phases import TRUTH_TARGET_PERCENT
from assistant.bench.mix import Asked, ask
from assistant.bench.observer import Reading, accounted, descendants, read_tree
from assistant.errors import AssistantError, EngineFailed, NotRunning
from assistant.machine import lines_of
from assistant.memory_orchestrator.ledger import SHM, LedgerView, RowState, segment_name
from assistant.messages import STAGE_ORDER, Stage

MIB = 1 << 20
BALANCE_MIB = 8.0
"""The ledger may be so far off, or so many percent as `bench memory` allows. Of anonymous memory alone."""
_QUIET_S = 20.0
"""Until everything has come to rest after the last query."""
_FRESH_S = 4.0
"""The daemon looks at its memory every two seconds, when nothing happens."""
_LOOK_S = 0.02
_PROC = Path("/proc")
DAEMON, FORK_SERVER = "daemon", "fork server"


class Process(msgspec.Struct, frozen=True):
    pid: int
    pss_mib: float
    own_mib: float
    """Anonymous, without shared memory: keys and values grow with what is said, up to a bound."""
    fds: int
    threads: int


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """All processes at one moment at which nothing is asked."""

    at_s: float
    """Since the load began."""
    queries: int
    """Of the load, ended so far."""
    unloaded: bool
    """No stage is loaded."""
    processes: dict[str, Process]
    """By stage, and the daemon and its fork server; others by their pid."""
    pss_mib: float
    anon_mib: float
    """The part that is no file's: what others map changes the share of those."""
    accounted_mib: float
    """What the ledger says they hold."""
    faults: tuple[str, ...]
    """What is out of balance."""
    alone_ms: dict[str, float] = {}
    """By kind, how long the same query took with what it needs loaded and nobody else asking."""


class Place(msgspec.Struct, frozen=True):
    at_s: float
    queries: int


class Watched:
    """A daemon and its ledger, attached to once: its name may be taken away, but not what it says."""

    def __init__(self, daemon: OwnDaemon) -> None:
        self.pid, self.client = daemon.pid, daemon.client
        self.ledger = daemon.ledger()
        self._daemon = daemon

    def view(self) -> LedgerView:
        """Raises `EngineFailed` when the daemon has ended."""
        self.check()
        try:
            return self.ledger.read()
        except NotRunning as error:
            self.check()
            raise EngineFailed(error.message) from None

    def check(self) -> None:
        if self._daemon.process.poll() is not None:
            raise EngineFailed(f"the daemon ended ({self._daemon.process.returncode}): {self._daemon.log[-300:]}")

    @property
    def named(self) -> bool:
        """Whether others can attach to its ledger."""
        return (SHM / segment_name(self._daemon.owner)).exists()


def read(daemon: Watched, place: Place, *, unload: bool, alone: Sequence[Asked] = ()) -> Rest:
    """Waits until nothing is under way; with `unload` until nothing is loaded, either; without it asks `alone` first,
    one after the other. Raises `EngineFailed` when the daemon has ended."""
    if unload:
        for stage in STAGE_ORDER:
            daemon.client.unload(stage)
    faults = [] if _quiet(daemon) else [f"not at rest after {_QUIET_S:g} s: {_states(daemon)}"]
    alone_ms = dict[str, float]()
    if not unload:
        for asked in alone:
            ask(daemon.client, asked)  # loads what it needs
            ended = ask(daemon.client, asked)
            alone_ms[asked.kind] = ended.total_ms
            if ended.code:
                faults.append(f"{asked.kind}, asked alone: {ended.code}: {ended.message}")
    if unload and (rows := daemon.view().rows):
        faults.append("reserved after everything was unloaded: " + ", ".join(row.stage for row in rows))
    if not daemon.named:
        faults.append("the ledger's segment has lost its name")
    view, reading = _fresh(daemon)
    names = _names(daemon, view)
    processes = {names.get(pid, f"other {pid}"): _process(pid, reading) for pid in reading.processes}
    faults += _strangers(daemon, view)
    held, told = reading.anon, view.base_anon + sum(row.anon for row in view.rows)
    if abs(held - told) > max(BALANCE_MIB * MIB, held * TRUTH_TARGET_PERCENT / 100):
        faults.append(f"anonymous: the ledger says {told / MIB:.1f} MiB, the kernel {held / MIB:.1f}")
    return Rest(
        at_s=round(place.at_s, 1),
        queries=place.queries,
        unloaded=unload,
        processes=processes,
        pss_mib=round(reading.total / MIB, 2),
        anon_mib=round(held / MIB, 2),
        accounted_mib=round(accounted(view) / MIB, 2),
        faults=tuple(faults),
        alone_ms=alone_ms,
    )


def _quiet(daemon: Watched) -> bool:
    give_up = time.monotonic() + _QUIET_S
    while time.monotonic() < give_up:
        view = daemon.view()
        settled = all(row.state in (RowState.IDLE, RowState.PREPARED) for row in view.rows)
        if settled and not _strangers(daemon, view):
            return True
        time.sleep(_LOOK_S)
    return False


def _states(daemon: Watched) -> str:
    return ", ".join(f"{row.stage} {row.state.name.lower()}" for row in daemon.view().rows) or "nothing loaded"


def _fresh(daemon: Watched) -> tuple[LedgerView, Reading]:
    """A view whose figures were measured from now on, and the kernel's. A lease makes the daemon look at once."""
    asked = time.monotonic_ns()
    loaded = [row.stage for row in daemon.view().rows if row.state is RowState.IDLE]
    if loaded:
        with contextlib.suppress(AssistantError):
            daemon.client.load(Stage(loaded[0]))
    give_up = time.monotonic() + _FRESH_S
    while (view := daemon.view()).measured_ns < asked and time.monotonic() < give_up:
        time.sleep(_LOOK_S)
    return view, read_tree(daemon.pid)


def _strangers(daemon: Watched, view: LedgerView) -> list[str]:
    """Children that nobody accounts for, zombies, rows without a process."""
    found = []
    family, known = set(descendants(daemon.pid)[1:]), {row.pid for row in view.rows}
    servers = {pid for pid in family if pid not in known and _parent(pid) == daemon.pid}
    if len(servers) > 1:
        found.append(f"{len(servers)} fork servers")
    if strangers := family - servers - known:
        found.append(f"{len(strangers)} processes that the ledger does not know")
    if missing := [row.stage for row in view.rows if row.pid and row.pid not in family]:
        found.append("no process of " + ", ".join(missing))
    if zombies := [pid for pid in family if _stat(pid)[:1] == ["Z"]]:
        found.append(f"{len(zombies)} zombies")
    return found


def _stat(pid: int) -> list[str]:
    return "".join(lines_of(_PROC / str(pid) / "stat")).rpartition(")")[2].split()


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def _names(daemon: Watched, view: LedgerView) -> dict[int, str]:
    names = {row.pid: row.stage for row in view.rows}
    for pid in descendants(daemon.pid)[1:]:
        if pid not in names and _parent(pid) == daemon.pid:
            names[pid] = FORK_SERVER
    return {**names, daemon.pid: DAEMON}


def _process(pid: int, reading: Reading) -> Process:
    held, fds, threads = reading.processes[pid], 0, 0
    with contextlib.suppress(OSError):
        fds = len(os.listdir(_PROC / str(pid) / "fd"))
        threads = len(os.listdir(_PROC / str(pid) / "task"))
    return Process(pid, round(held.total / MIB, 2), round((held.anon - held.shm) / MIB, 2), fds, threads)
