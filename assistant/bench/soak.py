"""A soak: everything that users and programs do, for a long time, while workers are killed and clients misbehave; what
grows, what is lost, what goes wrong without a reason.

    assistant bench soak [--minutes 20] [--seed 9] [--no-faults] [--set KEY=VALUE]... [--json]

A daemon of its own, without microphone and speaker and with a state folder of its own; as root in a memory cgroup of
its own, whose limit is lowered now and then. Every few seconds all load stops, and every process is read; now and then
with nothing loaded, too. The same seed makes each client and the faults do the same in the same order.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from assistant.api.client import Client
from assistant.bench import mix, soak_rest
from assistant.bench.cgroups import MemoryCgroup
from assistant.bench.daemons import OwnDaemon, terminable
from assistant.bench.load import Target
from assistant.bench.mix import Asked
from assistant.bench.output import judge, said, say_aside
from assistant.bench.soak_actors import ENDS_S, KINDS, Actor, Asker, Gate, Subscriber, TimerKeeper, Watcher
from assistant.bench.soak_faults import ROOMY, STEP_TIMEOUT_S, Harm
from assistant.bench.soak_rest import Place, Rest, Watched
from assistant.bench.soak_verdict import Findings, findings, targets_of
from assistant.errors import EngineFailed, NotRunning, UsageError
from assistant.messages import Stage

MINUTES, SEED = 20.0, 9
LEAST_CYCLES, CYCLE_S = 6, 80.0
"""From one rest with nothing loaded to the next. Faults are made in the first half: in the second workers get old."""
RESTS = 8
"""Of a cycle."""
LEAST_WORK_S = 0.5
"""Between two."""
ALONE = (
    Asked("typed command, silent", mix.COMMANDS[0], b"", speech=False),
    Asked("typed question, silent", mix.QUESTIONS[0], b"", speech=False),
)
"""What is asked at rest, with nobody beside it."""
_FAULT_EVERY_S = 2.5
_ASKERS, _SUBSCRIBERS = 2, 2


class Soak(msgspec.Struct, frozen=True, kw_only=True):
    minutes: float
    seed: int
    queries: int
    actions: dict[str, int]
    faults: dict[str, int]
    """That were made, by kind."""
    restarts: dict[str, int]
    """Of workers, in mid query and without its knowledge, by code: as the daemon's events tell it."""
    evictions: dict[str, int]
    """By reason; `leak` is a fault of ours."""
    rests: tuple[Rest, ...]
    findings: Findings
    timer_faults: tuple[str, ...]
    tracebacks: int
    """In the daemon's log."""
    targets: tuple[Target, ...]
    reached: bool


class Look(Protocol):
    def __call__(self, at_s: float, *, unload: bool) -> Rest: ...


class Witness(threading.Thread):
    """Hears for the whole run what the daemon tells of workers that ended."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="witness", daemon=True)
        self.restarts, self.evictions, self.missed = Counter[str](), Counter[str](), 0
        self._client = Client(folder)
        self._events = self._client.events("stage-restart", "memory-evict")

    def run(self) -> None:
        last: dict[str, int] = {}
        with contextlib.suppress(NotRunning), self._client:
            for event in self._events:
                self.missed += max(0, event.nth - last.get(event.name, event.nth - 1) - 1)
                last[event.name] = event.nth
                if event.name == "stage-restart":
                    self.restarts[str(event.data.get("code", ""))] += 1
                else:
                    self.evictions[_reason(str(event.data.get("for", "")))] += 1


def _reason(told: str) -> str:
    """The stages that needed the memory are one reason."""
    return "memory" if told.split("+")[0] in {one.value for one in Stage} else told


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    minutes: float = MINUTES
    seed: int = SEED
    faults: bool = True
    kinds: tuple[str, ...] = KINDS
    """What is asked."""


def measure(plan: Plan, sets: Sequence[str] = ()) -> Soak:
    """Raises what kept the daemon from starting, and `EngineFailed` when it ended or something had no end."""
    spoken = any(kind.startswith("spoken") for kind in plan.kinds)
    voices = mix.voices() if spoken else mix.Voices((), ())
    seconds, seed = plan.minutes * 60, plan.seed
    cycle_s = min(CYCLE_S, seconds / LEAST_CYCLES)
    limits = [f"stages.{stage.value}.step_timeout_s={STEP_TIMEOUT_S}" for stage in Stage]
    with (
        _own_cgroup() as group,
        tempfile.TemporaryDirectory(prefix="assistant-soak-") as state,
        OwnDaemon(
            [*limits, "memory.keep_alive_s=-1", *sets],
            procs=group.procs if group else None,
            environ={**os.environ, "XDG_STATE_HOME": state},
        ) as daemon,
    ):
        gate, witness, watched = Gate(), Witness(daemon.folder), Watched(daemon)
        witness.start()
        timers = TimerKeeper("timers", daemon.folder, gate, seed)
        actors: list[Actor] = [
            *(Asker(f"asker {n}", daemon.folder, gate, seed, voices, plan.kinds) for n in range(_ASKERS)),
            *(Subscriber(f"subscriber {n}", daemon.folder, gate, seed) for n in range(_SUBSCRIBERS)),
            Watcher("watcher", daemon.folder, gate, seed),
            timers,
        ]
        harm = Harm(
            daemon.folder, gate, seed, daemon.pid, watched.ledger, group, min(_FAULT_EVERY_S, cycle_s / RESTS / 4)
        )
        everybody = [*actors, harm] if plan.faults else actors
        look = partial(_rest, watched, actors, [one for one in ALONE if one.kind in plan.kinds])
        rests = _run(watched, gate, everybody, timers, look, harm if plan.faults else None, seconds, cycle_s)
        did = [one for actor in everybody for one in actor.did]
        lowest = [("OOM kills", group.oom_kills())] if group else []
        tracebacks = daemon.log.count("Traceback (most recent call last)")
    queries = sum(one.query for one in did)
    found = findings(rests, did, harm.faults, seconds)
    targets = targets_of(
        found,
        seconds,
        [
            ("timers lost or too many", len(timers.faults)),
            ("workers restarted because they leaked", witness.evictions["leak"]),
            ("tracebacks in the log", tracebacks),
            ("events missed by a subscriber that reads", witness.missed),
            *lowest,
        ],
    )
    return Soak(
        minutes=plan.minutes, seed=seed, queries=queries,
        actions=dict(sorted(Counter(one.kind for one in did).items())),
        faults=dict(sorted(Counter(one.kind for one in harm.faults).items())),
        restarts=dict(witness.restarts), evictions=dict(witness.evictions),
        rests=tuple(rests), findings=found, timer_faults=tuple(timers.faults), tracebacks=tracebacks,
        targets=targets, reached=all(one.met for one in targets),
    )  # fmt: skip


@contextlib.contextmanager
def _own_cgroup() -> Iterator[MemoryCgroup | None]:
    """None where none can be made: then no limit is lowered."""
    with contextlib.ExitStack() as stack:
        group = None
        try:
            group = stack.enter_context(MemoryCgroup(f"assistant-soak-{os.getpid()}", ROOMY))
        except UsageError as error:
            say_aside(f"no memory limit is lowered: {error.message}")
        yield group


def _run(
    daemon: Watched, gate: Gate, actors: Sequence[Actor], timers: TimerKeeper, look: Look, harm: Harm | None,
    seconds: float, cycle_s: float,
) -> list[Rest]:  # fmt: skip
    for actor in actors:
        actor.start()
    for actor in actors:
        actor.ready.wait(ENDS_S)
    began = cycle = time.monotonic()
    rests = [look(0.0, unload=True)]
    try:
        while (now := time.monotonic()) < began + seconds:
            if harm is not None:
                harm.calm = now - cycle >= cycle_s / 2
            gate.open()
            _work(daemon, actors, max(LEAST_WORK_S, cycle_s / RESTS))
            if not gate.close(ENDS_S):
                raise EngineFailed(f"something that was asked had no end within {ENDS_S:g} s")
            rests.append(look(time.monotonic() - began, unload=False))
            if (now := time.monotonic()) >= min(cycle + cycle_s, began + seconds):
                rests.append(look(time.monotonic() - began, unload=True))
                cycle = now
            timers.compare(daemon.client)
    finally:
        gate.end()
        for actor in actors:
            actor.join(ENDS_S)
    return rests


def _work(daemon: Watched, actors: Sequence[Actor], every_s: float) -> None:
    until = time.monotonic() + every_s
    while time.monotonic() < until:
        daemon.check()
        for actor in actors:
            if actor.broke is not None:
                raise actor.broke
        time.sleep(0.05)


def _rest(daemon: Watched, actors: Sequence[Actor], alone: Sequence[Asked], at_s: float, *, unload: bool) -> Rest:
    place = Place(at_s, sum(one.query for actor in actors for one in actor.did))
    rest = soak_rest.read(daemon, place, unload=unload, alone=alone)
    what = "nothing loaded" if unload else "as it is"
    say_aside(f"{rest.at_s:6.0f} s  {rest.queries:6} queries  {rest.pss_mib:7.1f} MiB {what}  {'; '.join(rest.faults)}")
    return rest


def table(found: Soak) -> str:
    seen, counts = found.findings, _counts
    idle = [one for one in found.rests if one.unloaded]
    lines = [
        f"{found.minutes:g} minutes, seed {found.seed}: {found.queries} queries, {seen.answered:.0%} answered",
        f"done: {counts(found.actions)}",
        f"faults made: {counts(found.faults)}",
        f"workers that were replaced in mid query: {counts(found.restarts)}; sent away: {counts(found.evictions)}",
        f"errors by design: {counts(seen.errors.by_design)}",
        f"errors that a fault explains: {counts(seen.errors.explained)}",
        f"errors that none explains: {counts(seen.errors.unexplained)}",
        *(f"  {one}" for one in seen.errors.examples),
        *(f"out of balance {one}" for one in seen.balance_faults),
        *(f"timers: {one}" for one in found.timer_faults),
        "slowest queries, seconds of loading+running by stage, and the faults that they met:",
        *(f"  {one}" for one in seen.slowest),
        f"at rest, nothing loaded: {idle[0].pss_mib:.1f} MiB at first, {idle[-1].pss_mib:.1f} at last",
        "",
        f"{'ms of what went well':<26}{'first third p50':>16}{'p99':>9}{'last third p50':>16}{'p99':>9}{'samples':>9}",
        *(
            f"{kind:<26}{one.first.p50:>16.1f}{one.first.p99:>9.0f}{one.last.p50:>16.1f}{one.last.p99:>9.0f}"
            f"{one.samples:>9}"
            for kind, one in seen.latency.items()
        ),
        *(f"{f'{kind}, alone':<26}{first:>16.1f}{'':>9}{last:>16.1f}" for kind, (first, last) in seen.alone_ms.items()),
        "",
        f"targets: {said(found.reached)}",
        *(f"  {said(one.met):<8} {one.what}: {one.value:g} (at most {one.limit:g})" for one in found.targets),
    ]
    return "\n".join(lines)


def _counts(by_name: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in by_name.items()) or "none"


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns 0 when the targets are reached, 1 when not, or the exit status of the error."""
    parser = argparse.ArgumentParser(
        prog="assistant bench soak", description="A mixed load with faults for a long time, and what grows or is lost."
    )
    add = parser.add_argument
    add("--minutes", type=float, default=MINUTES, metavar="N", help=f"how long (default {MINUTES:g})")
    add("--seed", type=int, default=SEED, help=f"of the dice (default {SEED})")
    add("--no-faults", action="store_true", help="the load alone")
    add("--set", action="append", default=[], dest="sets", metavar="KEY=VALUE", help="a setting")
    add("--json", action="store_true", help="JSON on stdout")
    args = parser.parse_args(argv)
    if not 0 < args.minutes <= 100_000:
        parser.error("--minutes takes a number above 0")
    with terminable():
        plan = Plan(minutes=args.minutes, seed=args.seed, faults=not args.no_faults)
        return judge(lambda: measure(plan, args.sets), table, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
