"""Whether a daemon keeps its promise inside real memory cgroups: mixed queries at several limits, no OOM kill.

    assistant bench limits [--limits 2048,1024,512,min] [--queries 200] [--set k=v]... [--json]

Needs root. Each limit gets a fresh cgroup with a fresh daemon in it; the queries come from outside, through the ZeroMQ
client. Weights are laid out beforehand and dropped from the page cache, so that their pages are charged to the cgroup.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from assistant import page_cache, paths
from assistant.bench import mix
from assistant.bench.cgroups import MemoryCgroup
from assistant.bench.daemons import OwnDaemon, terminable
from assistant.bench.limits_least import Probe, least_limit
from assistant.bench.observer import LedgerLog, gone
from assistant.bench.output import judge, say_aside
from assistant.errors import EngineFailed, UsageError

MIB = 1 << 20
_SAMPLE_S, _LEDGER_S = 0.05, 0.01
_NO_EVICTION = ("keep-alive", "leak", "command", "replaced")


class AtLimit(msgspec.Struct, frozen=True, kw_only=True):
    """One limit. MiB and milliseconds."""

    limit_mib: int
    queries: int
    answered: int
    failed: dict[str, int]
    """By the code of their error."""
    exit_codes: tuple[int, ...]
    """Of those that failed."""
    first_failure: str
    mode: str
    margin_mib: float
    peak_pss_mib: float
    """Of all processes, from the ledger."""
    peak_pss_anon_mib: float
    peak_cgroup_anon_mib: float
    """What the kernel charged, sampled every 50 ms."""
    peak_cached_mib: float
    max_usage_mib: float
    """With page cache, which fills a cgroup up to its limit: no measure of anything."""
    allowed_mib: float
    """limit - margin: what the high-water marks are held against."""
    p50_ms: float
    p95_ms: float
    evictions: int
    """Stages that were sent away while a query ran, for another one or for the budget, by the daemon's own word."""
    workers_gone: int
    """Workers that the ledger named and names no longer: evicted, at the end of their keep-alive, replaced, or dead.
    One that came and went within 10 ms is missed."""
    oom_kills: int
    kept: bool
    """No OOM kill, all answered, all high-water marks within what is allowed."""


class Least(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest limit at which every kind of query is answered, and what happens below it."""

    limit_mib: int
    probes: dict[str, str]
    """What each limit that was tried gave: "answered", or the codes of the errors."""
    below: AtLimit
    refused: bool
    """8 MiB less is refused with `memory-never-fits` (exit code 5), and nobody is killed."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    at: tuple[AtLimit, ...]
    least: Least | None
    reached: bool


class _CgroupLog(threading.Thread):
    """High-water marks of what the kernel charges."""

    def __init__(self, group: MemoryCgroup) -> None:
        super().__init__(daemon=True)
        self._group, self._stop_now = group, threading.Event()
        self.anon = self.cached = 0

    def run(self) -> None:
        while not self._stop_now.is_set():
            self.anon, self.cached = max(self.anon, self._group.anon()), max(self.cached, self._group.cached())
            self._stop_now.wait(_SAMPLE_S)

    def stop(self) -> None:
        self._stop_now.set()
        self.join()


def run_at(limit_mib: int, asked: Sequence[mix.Asked], sets: Sequence[str]) -> AtLimit:
    """Asks all of `asked` of a daemon inside a cgroup of its own. Raises `UsageError` where there are none, or what
    kept it from starting."""
    for folder in (paths.cache_dir(), paths.models_dir()):  # so that who reads them next is charged for them
        page_cache.forget(folder)
    with MemoryCgroup(f"assistant-bench-{os.getpid()}", limit_mib * MIB) as group:
        with OwnDaemon(sets, procs=group.procs) as daemon:
            charged, ledger = _CgroupLog(group), LedgerLog(daemon.ledger(), _LEDGER_S)
            charged.start()
            try:
                with ledger:
                    told = _ask_all(daemon, asked)
            finally:
                charged.stop()
        return _judged(limit_mib, len(asked), told, ledger, charged, group)


def _ask_all(daemon: OwnDaemon, asked: Sequence[mix.Asked]) -> list[mix.Told]:
    told = []
    for number, one in enumerate(asked, 1):
        if number % 20 == 0:
            say_aside(f"query {number} of {len(asked)}")
        told.append(mix.ask(daemon.client, one, stream=True))  # its evictions are events
        if told[-1].code == "not-running":
            break  # it was killed: nobody is left to ask
    return told


def _judged(
    limit_mib: int, queries: int, told: list[mix.Told], ledger: LedgerLog, charged: _CgroupLog, group: MemoryCgroup
) -> AtLimit:
    last = ledger.views[-1]
    failed = [one for one in told if one.code]
    times = sorted(one.total_ms for one in told if not one.code)
    allowed = limit_mib * MIB - last.margin
    answered = len(times)
    kills = group.oom_kills()
    return AtLimit(
        limit_mib=limit_mib,
        queries=queries,
        answered=answered,
        failed=dict(Counter(one.code for one in failed)),
        exit_codes=tuple(sorted({one.exit_code for one in failed})),
        first_failure=f"{failed[0].kind}: {failed[0].message}" if failed else "",
        mode=Counter(one.mode for one in told).most_common(1)[0][0] if told else "",
        margin_mib=_mib(last.margin),
        peak_pss_mib=_mib(last.peak_total),
        peak_pss_anon_mib=_mib(last.peak_anon),
        peak_cgroup_anon_mib=_mib(charged.anon),
        peak_cached_mib=_mib(charged.cached),
        max_usage_mib=_mib(group.max_usage()),
        allowed_mib=_mib(allowed),
        p50_ms=round(statistics.median(times), 1) if times else 0,
        p95_ms=round(times[min(len(times) - 1, int(len(times) * 0.95))], 1) if times else 0,
        evictions=evictions(told),
        workers_gone=gone(ledger.views),
        oom_kills=kills,
        kept=kills == 0 and answered == queries and max(last.peak_total, charged.anon) <= allowed,
    )


def evictions(told: Iterable[mix.Told]) -> int:
    """How many stages had to go for another one or for the budget. What went for its keep-alive or its leak, by
    command or for its successor went for no want of room."""
    return sum(reason not in _NO_EVICTION for one in told for reason in one.evicted_for)


def _mib(size: int) -> float:
    return round(size / MIB, 1)


def measure(limits: Sequence[int | None], queries: int, sets: Sequence[str]) -> Limits:
    """`limits` in MiB; None = find the smallest. Raises `UsageError` without cgroups, `ModelError`, `StageError`."""
    with MemoryCgroup(f"assistant-bench-{os.getpid()}", 64 * MIB):
        pass  # a machine without cgroups says so before anybody waits
    recorded = mix.voices()
    kinds = list(mix.queries(len(mix.KINDS), recorded))
    asked = list(mix.queries(queries, recorded))
    with OwnDaemon(sets) as daemon:
        say_aside("weights are laid out, and measured once, without a limit")
        for told in _ask_all(daemon, [*kinds, *asked[: 2 * len(kinds)]]):
            if told.code:
                raise EngineFailed(f"without any limit, a {told.kind} already failed: {told.message}", code=told.code)
    at, least = [], None
    for limit in limits:
        if limit is None:
            say_aside("looking for the smallest limit")
            least, found = _least(kinds, asked, sets)
            at.append(found)
        else:
            say_aside(f"{limit} MiB: {queries} queries")
            at.append(run_at(limit, asked, sets))
    return Limits(
        at=tuple(at), least=least, reached=all(one.kept for one in at) and (least is None or least.refused)
    )  # fmt: skip


def _least(kinds: Sequence[mix.Asked], asked: Sequence[mix.Asked], sets: Sequence[str]) -> tuple[Least, AtLimit]:
    seen: dict[int, AtLimit] = {}

    def probe(limit: int, all_of_them: bool) -> Probe:
        say_aside(f"{limit} MiB{': ' + str(len(asked)) + ' queries' if all_of_them else '?'}")
        found = seen[limit] = run_at(limit, asked if all_of_them else kinds, sets)
        return Probe(answers=found.answered == found.queries, tells=", ".join(found.failed) or "answered")

    limit, probes = least_limit(probe)
    at, below = seen[limit], seen[limit - 8]
    refused = below.oom_kills == 0 and set(below.failed) == {"memory-never-fits"} and below.exit_codes == (5,)
    return Least(limit_mib=limit, probes=probes, below=below, refused=refused), at


def table(found: Limits) -> str:
    lines = [
        f"{'limit':>6}{'answered':>10}  {'mode':<11}{'margin':>7}{'allowed':>8}{'PSS':>7}{'anon':>7}{'charged':>8}"
        f"{'p50 ms':>8}{'p95 ms':>8}{'evictions':>10}{'gone':>6}{'OOM kills':>10}",
    ]
    for one in found.at:
        told = f"{one.answered}/{one.queries}"
        lines.append(
            f"{one.limit_mib:>6}{told:>10}  {one.mode:<11}{one.margin_mib:>7.0f}{one.allowed_mib:>8.0f}"
            f"{one.peak_pss_mib:>7.0f}{one.peak_pss_anon_mib:>7.0f}{one.peak_cgroup_anon_mib:>8.0f}"
            f"{one.p50_ms:>8.0f}{one.p95_ms:>8.0f}{one.evictions:>10}{one.workers_gone:>6}{one.oom_kills:>10}"
        )
        if one.failed:
            lines.append(f"       failed: {one.failed}; first: {one.first_failure}")
    lines.append("MiB. PSS, anon: high-water of all our processes; charged: anonymous memory by the kernel's count")
    lines.append(
        "evictions: stages sent away to make room while a query ran; gone: workers that ended, for whatever reason"
    )
    if found.least:
        below = found.least.below
        lines.append(
            f"smallest limit that answers every kind of query: {found.least.limit_mib} MiB; {below.limit_mib} MiB:"
            f" {below.failed or 'answered'}, exit {below.exit_codes}, {below.oom_kills} OOM kills;"
            f" {below.first_failure}"
        )
    lines.append("targets: no OOM kill, all answered, PSS and charged <= allowed (limit - margin)")
    return "\n".join(lines)


def _parsed_limits(text: str) -> list[int | None]:
    found: list[int | None] = []
    for one in text.split(","):
        if one != "min" and not (one.isascii() and one.isdigit() and int(one)):
            raise UsageError(f"--limits takes MiB and 'min', as in 1024,512,min; {one!r} is neither")
        found.append(None if one == "min" else int(one))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns 0 when the targets are reached, 1 when not, or the exit status of the error."""
    parser = argparse.ArgumentParser(prog="assistant bench limits", description="A daemon inside memory cgroups.")
    parser.add_argument("--limits", default="2048,1024,512,min", help="MiB, comma separated; 'min' finds the smallest")
    parser.add_argument("--queries", type=int, default=200, help="at each limit (default 200)")
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="KEY=VALUE", help="a setting")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    args = parser.parse_args(argv)
    with terminable():
        return judge(
            lambda: measure(_parsed_limits(args.limits), max(1, args.queries), args.sets), table, as_json=args.json
        )


if __name__ == "__main__":
    sys.exit(main())
