"""Growth: one daemon, many mixed queries, and what its processes hold at the same points again and again.

    assistant bench soak [--queries 500] [--every 100] [--set k=v]... [--json]

A round is `--every` queries. In each, all processes are read with every stage loaded, early and at the end (a worker
that grows shows between the two), and once more after everything was unloaded (a daemon or fork server that grows shows
from round to round).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence

import msgspec

from assistant.bench import mix
from assistant.bench.daemons import OwnDaemon, terminable
from assistant.bench.observer import descendants, read_tree
from assistant.bench.output import judge, say_aside
from assistant.messages import STAGE_ORDER

MIB = 1 << 20
GROWTH_TARGET_MIB = 1.0
"""In 100 queries."""
IDLE_TARGET_MIB = 60.0
_REST_S = 0.5
_FOR_EVER = -1


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """MiB of PSS by process, at one moment."""

    queries: int
    processes: dict[str, float]
    total_mib: float


class Soak(msgspec.Struct, frozen=True, kw_only=True):
    queries: int
    failed: dict[str, str]
    """The message of the first of each kind."""
    idle: tuple[Point, ...]
    """Nothing loaded: before the first query, and after each round."""
    early: tuple[Point, ...]
    """All loaded, after the first part of each round."""
    loaded: tuple[Point, ...]
    """All loaded, at the end of each round."""
    idle_growth_mib: float
    """In 100 queries: slope over the rounds, the first (what is loaded once and stays) not counted."""
    loaded_growth_mib: float
    worker_growth_mib: dict[str, float]
    """In 100 queries, by process: median over the rounds of what it gained from early to end."""
    seconds: float
    reached: bool


def measure(queries: int, every: int, sets: Sequence[str], rest_s: float = _REST_S) -> Soak:
    """Raises `ModelError`, `StageError`, or what kept the daemon from starting."""
    asked = list(mix.queries(queries, mix.voices()))
    started = time.monotonic()
    failed: dict[str, str] = {}
    idle, early, loaded = [], [], []
    with OwnDaemon([*sets, f"memory.keep_alive_s={_FOR_EVER}"]) as daemon:
        time.sleep(rest_s)
        idle.append(_point(daemon, 0))
        for begin in range(0, queries, every):
            one_round = asked[begin : begin + every]
            part = min(len(one_round), max(2 * len(mix.KINDS), every // 5))
            _ask(daemon, one_round[:part], failed)
            early.append(_all_loaded(daemon, begin + part, rest_s))
            _ask(daemon, one_round[part:], failed)
            done = begin + len(one_round)
            loaded.append(_all_loaded(daemon, done, rest_s))
            for stage in STAGE_ORDER:
                daemon.client.unload(stage)
            time.sleep(rest_s)
            idle.append(_point(daemon, done))
            say_aside(f"{done} queries: {idle[-1].total_mib:.1f} MiB idle, {loaded[-1].total_mib:.1f} MiB loaded")
    return _judged(queries, failed, idle, early, loaded, time.monotonic() - started)


def _ask(daemon: OwnDaemon, asked: Sequence[mix.Asked], failed: dict[str, str]) -> None:
    for one in asked:
        told = mix.ask(daemon.client, one)
        if told.code:
            failed.setdefault(f"{told.kind}: {told.code}", told.message)


def _all_loaded(daemon: OwnDaemon, done: int, rest_s: float) -> Point:
    for stage in STAGE_ORDER:
        daemon.client.load(stage)
    time.sleep(rest_s)
    return _point(daemon, done)


def _point(daemon: OwnDaemon, done: int) -> Point:
    """Names processes by the ledger's rows; of the others, the first is the daemon and the second its fork server."""
    stages = {row.pid: row.stage for row in daemon.ledger().read().rows}
    names = {daemon.pid: "daemon"}
    for pid in descendants(daemon.pid)[1:]:
        names[pid] = stages.get(pid) or ("fork server" if "fork server" not in names.values() else f"other {pid}")
    reading = read_tree(daemon.pid)
    held = {names.get(pid, f"other {pid}"): round(one.total / MIB, 2) for pid, one in reading.processes.items()}
    return Point(queries=done, processes=held, total_mib=round(reading.total / MIB, 2))


def _judged(
    queries: int, failed: dict[str, str], idle: list[Point], early: list[Point], loaded: list[Point], seconds: float
) -> Soak:
    # what is imported and allocated once belongs to no slope: counted from the end of the first round on
    idle_growth, loaded_growth = slope(idle[1:]), slope(loaded)
    workers = {
        name: round(statistics.median(_gains(name, early, loaded)), 2) for name in loaded[-1].processes
    }  # fmt: skip
    within = max(idle_growth, loaded_growth, sum(workers.values())) <= GROWTH_TARGET_MIB
    return Soak(
        queries=queries,
        failed=failed,
        idle=tuple(idle),
        early=tuple(early),
        loaded=tuple(loaded),
        idle_growth_mib=round(idle_growth, 2),
        loaded_growth_mib=round(loaded_growth, 2),
        worker_growth_mib=workers,
        seconds=round(seconds, 1),
        reached=within and not failed and max(idle[0].total_mib, idle[-1].total_mib) <= IDLE_TARGET_MIB,
    )


def slope(points: Sequence[Point]) -> float:
    """MiB in 100 queries, by least squares; 0 for fewer than two points."""
    if len(points) < 2:
        return 0.0
    found = statistics.linear_regression([one.queries for one in points], [one.total_mib for one in points])
    return float(found.slope) * 100


def _gains(name: str, early: Sequence[Point], loaded: Sequence[Point]) -> list[float]:
    return [
        (late.processes.get(name, 0) - soon.processes.get(name, 0)) / (late.queries - soon.queries) * 100
        for soon, late in zip(early, loaded, strict=True)
        if late.queries > soon.queries
    ] or [0.0]


def table(found: Soak) -> str:
    names = list(dict.fromkeys(name for one in (*found.idle, *found.loaded) for name in one.processes))
    lines = [f"{'queries':>8}  {'':<8}{'all':>8}" + "".join(f"{name:>13}" for name in names)]
    for label, points in (("idle", found.idle), ("early", found.early), ("loaded", found.loaded)):
        for one in points:
            held = "".join(f"{one.processes[name]:>13.1f}" if name in one.processes else f"{'':>13}" for name in names)
            lines.append(f"{one.queries:>8}  {label:<8}{one.total_mib:>8.1f}{held}")
    lines.append(
        "MiB of PSS; idle: nothing loaded; early, loaded: all stages loaded, after a part of a round, at its end"
    )
    lines.append(
        f"growth in 100 queries: idle {found.idle_growth_mib:+.2f} MiB, loaded {found.loaded_growth_mib:+.2f} MiB;"
        " within a round: " + ", ".join(f"{name} {one:+.2f}" for name, one in found.worker_growth_mib.items())
    )
    for kind, message in found.failed.items():
        lines.append(f"failed: {kind}: {message}")
    lines.append(
        f"{found.queries} queries in {found.seconds:.0f} s; targets: growth <= {GROWTH_TARGET_MIB:g} MiB in 100"
        f" queries, idle <= {IDLE_TARGET_MIB:g} MiB before the first and after the last"
    )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns 0 when the targets are reached, 1 when not, or the exit status of the error."""
    parser = argparse.ArgumentParser(prog="assistant bench soak", description="Growth over many queries.")
    parser.add_argument("--queries", type=int, default=500, help="in all (default 500)")
    parser.add_argument("--every", type=int, default=100, help="queries of a round (default 100)")
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="KEY=VALUE", help="a setting")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    args = parser.parse_args(argv)
    with terminable():
        return judge(lambda: measure(max(1, args.queries), max(1, args.every), args.sets), table, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
