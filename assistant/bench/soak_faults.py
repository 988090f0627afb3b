"""What goes wrong in a soak, on purpose: when it began and ended, and which errors it explains.

One thread does harm to the daemon's children, its sockets and its memory limit, with dice of its own; never to the
daemon itself. Whatever it does is undone when the gate closes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from assistant.api import framing, sockets, wire
from assistant.api.client import Client
from assistant.bench.cgroups import MemoryCgroup
from assistant.bench.hostile_frames import hostile
from assistant.bench.observer import descendants
from assistant.bench.soak_actors import Actor, Did, Gate
from assistant.bench.soak_sockets import talking
from assistant.errors import NotRunning
from assistant.memory_orchestrator.ledger import LedgerReader, Row
from assistant.messages import Stage

MIB = 1 << 20
STEP_TIMEOUT_S = 5
"""Of every stage: how long a stopped worker is waited for."""
ROOMY, TIGHT = 1200 * MIB, 460 * MIB
"""Limits of the daemon's cgroup."""
BATCH = 16
"""Malformed messages at once."""
_REPLY_MS = 5000
_HANG_S = 3 * STEP_TIMEOUT_S
_AFTER_S = 3.0
"""For so long an error may still come from a fault that is over."""

_DIED = frozenset({"stage-died", "stage-failed"})
_REFUSED = frozenset({"memory-taken", "memory-never-fits", "memory-refused"})
EXPLAINS: dict[str, frozenset[str]] = {
    "kill": _DIED,
    "stop": frozenset({"stage-hung", "stage-start-timeout"}),
    "hang": _DIED | {"stage-hung", "stage-start-timeout"},
    "fork-server": _DIED | {"stage-start-timeout"},
    "unload": frozenset({"stage-failed"}),
    "limit": _REFUSED | _DIED | {"stage-over-memory"},
    "vanish": frozenset(),
    "malformed": frozenset(),
}
"""The codes of errors by the kind of fault; of the same stage, where both name one."""
_OFTEN = {"kill": 4, "stop": 3, "hang": 1, "fork-server": 1, "unload": 2, "limit": 2, "vanish": 4, "malformed": 3}
BY_DESIGN = {
    "say": frozenset({"no-voice"}),
    "cancelled question": frozenset({"cancelled", "query-unknown"}),
}
"""Errors that an action has to meet: there is no speaker; what is cancelled may have ended just before."""


class Fault(msgspec.Struct, frozen=True):
    kind: str
    begin: float
    end: float
    stage: str | None = None
    """Whose worker it met."""

    def explains(self, did: Did) -> bool:
        if did.code not in EXPLAINS[self.kind] or did.begin > self.end + _AFTER_S or did.end < self.begin:
            return False
        return self.stage is None or did.stage is None or self.stage == did.stage


def explained(did: Did, faults: Sequence[Fault]) -> bool:
    return any(one.explains(did) for one in faults)


def by_design(did: Did) -> bool:
    """`busy` is no failure anywhere: it says when to come again."""
    return did.code == "busy" or did.code in BY_DESIGN.get(did.kind, ())


class Harm(Actor):
    def __init__(
        self, folder: Path, gate: Gate, seed: int, pid: int, ledger: LedgerReader, group: MemoryCgroup | None,
        every_s: float, kinds: Collection[str] = _OFTEN,
    ) -> None:  # fmt: skip
        """`pid`: of the daemon. `group`: the cgroup it lives in, if it has one. `every_s`: mean time from fault to
        fault. `kinds`: of faults."""
        super().__init__("harm", folder, gate, seed)
        self.faults: list[Fault] = []
        self.calm = False
        """It does nothing just now."""
        self._pid, self._ledger, self._group, self._every_s = pid, ledger, group, every_s
        self._kinds = [kind for kind in kinds if group is not None or kind != "limit"]

    def act(self, client: Client) -> None:
        self._wait(self._every_s * 2 * self._dice.random())
        if self._gate.closed or self.calm:
            return
        kind = self._dice.choices(self._kinds, [_OFTEN[one] for one in self._kinds])[0]
        begin, stage = time.monotonic(), None
        match kind:
            case "kill" | "stop" | "hang":
                stage = self._worker(kind)
                if stage is None:
                    return  # nobody was there
            case "fork-server":
                self._kill_fork_server()
            case "unload":
                stage = self._dice.choice(list(Stage)).value
                self._tried("unload", lambda: client.unload(Stage(stage)))
            case "limit":
                self._limit()
            case "vanish":
                self._vanish()
            case "malformed":
                self._malformed()
        self.faults.append(Fault(kind, begin, time.monotonic(), stage))

    # --- workers ----------------------------------------------------------------------------------------------------
    def _rows(self) -> list[Row]:
        with contextlib.suppress(NotRunning):
            return [row for row in self._ledger.read().rows if row.pid]
        return []

    def _worker(self, kind: str) -> str | None:
        """The stage whose worker was met."""
        rows = self._rows()
        if not rows:
            return None
        row = self._dice.choice(rows)
        if kind == "kill":
            return row.stage if _sent(row.pid, signal.SIGKILL) else None
        if not _sent(row.pid, signal.SIGSTOP):
            return None
        if kind == "stop":
            self._wait(0.1 + self._dice.random())
        else:
            until = time.monotonic() + _HANG_S
            while not self._gate.closed and time.monotonic() < until and row.pid in {one.pid for one in self._rows()}:
                time.sleep(0.02)
        _sent(row.pid, signal.SIGCONT)
        return row.stage

    def _kill_fork_server(self) -> None:
        workers = {row.pid for row in self._rows()}
        for pid in descendants(self._pid)[1:2]:
            if pid not in workers:
                _sent(pid, signal.SIGKILL)

    # --- memory -----------------------------------------------------------------------------------------------------
    def _limit(self) -> None:
        assert self._group is not None
        until = time.monotonic() + 1 + 3 * self._dice.random()
        try:
            # version 1 refuses a limit below what is held: the daemon has not seen it, and gives nothing back
            with contextlib.suppress(OSError):
                self._group.limit_to(TIGHT)
            self._wait(until - time.monotonic())
        finally:
            self._group.limit_to(ROOMY)

    # --- clients ----------------------------------------------------------------------------------------------------
    def _vanish(self) -> None:
        """Asks, and is gone in the middle of the answer or before."""
        with talking(self._folder, sockets.COMMAND) as socket:
            ask = wire.Ask(text="Tell me about the ocean.", speech=True, more=False)
            socket.send_multipart(framing.encode(ask))
            socket.poll(_REPLY_MS)
            self._wait(self._dice.random())

    def _malformed(self) -> None:
        """Each has to get its error."""
        name = self._dice.choice([sockets.COMMAND, sockets.CONTROL])
        begin, errors = time.monotonic(), 0
        with talking(self._folder, name) as socket:
            for _ in range(BATCH):
                socket.send_multipart(hostile(self._dice, name.removesuffix(".sock")))
            while errors < BATCH and socket.poll(_REPLY_MS):
                errors += msgspec.json.decode(socket.recv_multipart()[0])["type"] == "error"
        code = "" if errors == BATCH else "no-error"
        self.did.append(Did("malformed", begin, time.monotonic(), code, f"{errors} errors for {BATCH} messages"))


def _sent(pid: int, number: int) -> bool:
    """Whether it was there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
