"""More questions than the machine can answer: each is answered or refused at once, and the memory stays as it is.

    assistant bench load [--clients 8] [--rate 10] [--seconds 30] [--set KEY=VALUE]... [--json]
    assistant bench load --status [--seconds 30] [--json]

A daemon of its own, without microphone and speaker; all clients ask the same question, so that answers are equal work.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from assistant.api import wire
from assistant.bench.daemons import OwnDaemon, terminable
from assistant.bench.load_clients import Asked, Crowd, status_ms
from assistant.bench.observer import Reading, TreeLog
from assistant.bench.output import judge, said
from assistant.messages import Stage

MIB = 2**20
QUESTION = "Tell me about the history of the city of Paris."
REFUSAL_MS, STATUS_MS = 20.0, 5.0
"""Targets, of the slowest in a hundred."""
FLAT, EQUAL = 0.03, 1.5
FEWEST = 30
"""Answers of which a slowest in a hundred can be judged; of fewer, it is the one slowest of all, and the slowest in
ten is judged in its place."""
_SETTLE_S = 1.0
"""Of the load, before memory counts."""
_LOOK_S = 0.25
_FINISH_S = 120.0


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    p50: float
    p90: float
    p99: float


class Target(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    value: float
    limit: float
    met: bool


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """PSS of all processes."""

    start: float
    """A second after the load began."""
    max: float
    """From then on."""
    end: float


class Load(msgspec.Struct, frozen=True, kw_only=True):
    sent: int
    accepted: int
    """Answered well."""
    refused: int
    """Busy."""
    lost: int
    """Neither answered nor refused: no last reply, or another error."""
    refusal_ms: Spread
    accepted_ms: Spread
    """From the question to the whole answer."""
    memory_mib: Memory
    oom_kills: int
    """On this machine meanwhile."""

    met: bool = False
    """All targets."""
    targets: tuple[Target, ...] = ()

    @property
    def reached(self) -> bool:
        return self.met


class StatusTimes(msgspec.Struct, frozen=True, kw_only=True):
    samples: int
    answers: int
    """Of the model meanwhile."""
    status_ms: Spread
    slowest_ms: float
    met: bool
    targets: tuple[Target, ...]

    @property
    def reached(self) -> bool:
        return self.met


def measure(clients: int, rate: float, seconds: float, sets: Sequence[str] = ()) -> Load:
    """Raises what the daemon's start or its models raise."""
    ask = wire.Ask(text=QUESTION, stream=False)
    with OwnDaemon(sets) as daemon:
        _warm_up(daemon, ask)
        killed = oom_kills()
        with Crowd(daemon.folder, clients) as crowd, TreeLog(daemon.pid, _LOOK_S) as memory:
            began = time.monotonic_ns()
            crowd.ask_for(ask, rate, seconds)
            crowd.finish(_FINISH_S)
            time.sleep(2 * _LOOK_S)
        return judged(list(crowd.asked.values()), memory.readings, began, oom_kills() - killed)


def _warm_up(daemon: OwnDaemon, ask: wire.Ask) -> None:
    """Loads what is needed, and answers twice: what is allocated once belongs to no growth."""
    for stage in (Stage.INTENT, Stage.LLM):
        daemon.client.load(stage)
    for _ in range(2):
        for _ in daemon.client.replies(daemon.client.ask(ask)):
            pass


def judged(asked: Sequence[Asked], readings: Sequence[Reading], began_ns: int, kills: int) -> Load:
    accepted = [one.ms for one in asked if one.ended and one.taken and not one.code]
    refused = [one.ms for one in asked if one.ended and one.code == "busy"]
    held = [one.total / MIB for one in readings if one.begin_ns >= began_ns + _SETTLE_S * 1e9] or [0.0]
    found = Load(
        sent=len(asked),
        accepted=len(accepted),
        refused=len(refused),
        lost=len(asked) - len(accepted) - len(refused),
        refusal_ms=spread(refused),
        accepted_ms=spread(accepted),
        memory_mib=Memory(start=round(held[0], 1), max=round(max(held), 1), end=round(held[-1], 1)),
        oom_kills=kills,
    )
    targets = targets_of(found)
    return msgspec.structs.replace(found, met=all(one.met for one in targets), targets=targets)


def targets_of(found: Load) -> tuple[Target, ...]:
    answers, memory = found.accepted_ms, found.memory_mib
    many = found.accepted >= FEWEST
    slowest = "answers p99" if many else f"answers p90 (fewer than {FEWEST})"
    return (
        _most("lost", found.lost, 0),
        _most("OOM kills", found.oom_kills, 0),
        _most("refusals p99, ms", found.refusal_ms.p99, REFUSAL_MS),
        _most(f"{slowest}, ms", answers.p99 if many else answers.p90, EQUAL * answers.p50),
        _most("memory max, MiB", memory.max, (1 + FLAT) * memory.start),
        _most("memory lost from start to end, MiB", memory.start - memory.end, FLAT * memory.start),
    )


def _most(what: str, value: float, limit: float) -> Target:
    return Target(what=what, value=round(value, 2), limit=round(limit, 2), met=value <= limit)


def spread(values: Sequence[float]) -> Spread:
    return Spread(p50=percentile(values, 50), p90=percentile(values, 90), p99=percentile(values, 99))


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many are not above; 0 of none."""
    ordered = sorted(values)
    return round(ordered[max(0, -(-len(ordered) * percent // 100) - 1)], 2) if ordered else 0.0


def oom_kills(vmstat: Path = Path("/proc/vmstat")) -> int:
    """Since the machine started; 0 where the kernel does not count them (before 4.13)."""
    lines = (line.split() for line in vmstat.read_text("ascii").splitlines())
    return next((int(value) for name, value in lines if name == "oom_kill"), 0)


def measure_status(seconds: float, sets: Sequence[str] = ()) -> StatusTimes:
    ask = wire.Ask(text=QUESTION)
    with OwnDaemon(sets) as daemon:
        _warm_up(daemon, ask)
        with Crowd(daemon.folder, 1) as crowd:
            times = status_ms(daemon.folder, crowd, ask, seconds)
            answers = sum(not one.code for one in crowd.asked.values() if one.ended)
    took = spread(times)
    targets = (
        _most("status p99, ms", took.p99, STATUS_MS),
        Target(what="answers meanwhile, at least", value=answers, limit=1, met=answers > 0),
    )
    return StatusTimes(
        samples=len(times), answers=answers, status_ms=took, slowest_ms=round(max(times, default=0.0), 2),
        met=all(one.met for one in targets), targets=targets,
    )  # fmt: skip


def table(found: Load) -> str:
    memory = found.memory_mib
    return "\n".join(
        [
            f"sent {found.sent}, answered {found.accepted}, refused {found.refused}, lost {found.lost}",
            f"refused after   p50 {found.refusal_ms.p50:8.1f} ms   p99 {found.refusal_ms.p99:8.1f} ms",
            f"answered after  p50 {found.accepted_ms.p50:8.0f} ms   p99 {found.accepted_ms.p99:8.0f} ms",
            f"memory (PSS)  start {memory.start:8.1f} MiB  max {memory.max:8.1f} MiB  end {memory.end:.1f} MiB",
            f"OOM kills {found.oom_kills}",
            f"targets: {said(found.met)}",
            *(f"  {said(one.met):<8} {one.what}: {one.value:g} (at most {one.limit:g})" for one in found.targets),
        ]
    )


def status_table(found: StatusTimes) -> str:
    return (
        f"status while the model answers ({found.answers} answers): {found.samples} round trips, p50"
        f" {found.status_ms.p50:.2f} ms, p99 {found.status_ms.p99:.2f} ms, slowest {found.slowest_ms:.1f} ms\n"
        f"target: p99 {STATUS_MS:g} ms: {said(found.reached)}"
    )


def _between(least: float, most: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        if not least <= (value := float(text)) <= most:
            raise argparse.ArgumentTypeError(f"between {least:g} and {most:g}")
        return value

    return number


def main(argv: Sequence[str]) -> int:
    """The command. Returns 0 when the targets are reached, 1 when not, or the exit status of the error."""
    parser = argparse.ArgumentParser(
        prog="assistant bench load",
        description="More questions than the machine can answer: each is answered or refused at once, and the memory"
        " stays as it is. Exit code 0: all targets are met; 1: not all of them.",
    )
    add = parser.add_argument
    add("--clients", type=_between(1, 256), default=8, metavar="N", help="Who ask in turns. [default: 8]")
    add("--rate", type=_between(0.1, 10_000), default=10, metavar="N", help="Questions a second. [default: 10]")
    add("--seconds", type=_between(0.1, 86_400), default=30, metavar="SECONDS", help="How long. [default: 30]")
    add("--status", action="store_true", help="Instead: the round trip of `status` beside one question.")
    add("--set", action="append", default=[], dest="sets", metavar="KEY=VALUE", help="Override a setting; repeatable.")
    add("--json", action="store_true", help="Print JSON alone on stdout.")
    args = parser.parse_args(argv)
    with terminable():
        if args.status:
            return judge(lambda: measure_status(args.seconds, args.sets), status_table, as_json=args.json)
        return judge(lambda: measure(int(args.clients), args.rate, args.seconds, args.sets), table, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
