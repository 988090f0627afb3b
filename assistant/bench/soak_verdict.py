"""What a soak has found, and whether that is good enough. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

import msgspec

from assistant.bench.load import Spread, Target, spread
from assistant.bench.soak_actors import Did
from assistant.bench.soak_faults import Fault, by_design, explained
from assistant.bench.soak_rest import DAEMON, FORK_SERVER, Rest

REST_MIB_PER_HOUR = 6.0
"""With nothing loaded, all processes together."""
WORKER_MIB_PER_100 = 2.0
"""A loaded worker, in 100 queries."""
NOISE_MIB = 1.0
"""Growth between two readings, or in a whole run, that is not told from noise."""
SLOWER, LEAST_MS = 1.5, 5.0
"""The last third of the run against the first, medians of what was asked alone, each taken for `LEAST_MS` at least:
under load, times depend on who else asks."""
LEAST_ANSWERED = 0.5
"""Of the queries; the rest are busy, cancelled, or met a fault."""
EXTRA_FDS, EXTRA_THREADS = 1.0, 1.0
_WARM, _WARM_QUERIES = 0.2, 50
"""Of the run, and queries in any case: what is allocated once belongs to no slope."""
_FEWEST_PAIRS, _FEWEST_TIMES = 3, 5
_EXAMPLES, _SLOWEST = 20, 8

Points = Sequence[tuple[float, float]]


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    first: Spread
    """ms, in the first third of the run."""
    last: Spread
    samples: int


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    by_design: dict[str, int]
    """By code: `busy`, what was cancelled, what needs a speaker."""
    explained: dict[str, int]
    """A fault was made that has this error."""
    unexplained: dict[str, int]
    examples: tuple[str, ...]
    """Of those."""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Anonymous memory of a stage between two readings of the same process."""

    mib_per_100: float
    """In 100 queries of all kinds, by Theil-Sen."""
    apart: float
    """Queries between two readings, median."""


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    rest_readings: int
    """With nothing loaded, after the first part of the run."""
    rest_mib_per_hour: float | None
    """Anonymous PSS of all with nothing loaded: median of the slopes between all pairs of readings (Theil-Sen); None:
    too few."""
    rest_pss_mib_per_hour: float | None
    """The same with mapped files; not judged."""
    process_mib_per_hour: dict[str, float | None]
    """The same of the anonymous memory of the daemon and of its fork servers."""
    workers: dict[str, Growth]
    """By stage, of those of which there are enough readings."""
    fds: dict[str, float]
    """What the median of the last third has more than that of the first, with nothing loaded."""
    threads: dict[str, float]
    balance_faults: tuple[str, ...]
    errors: Errors
    latency: dict[str, Latency]
    """Under load; not judged."""
    alone_ms: dict[str, tuple[float, float]]
    """By kind, what was asked alone: medians of the first and of the last third of the run. Too few: not there."""
    slowest: tuple[str, ...]
    """Queries: how long, where the time went, and which faults they met."""
    answered: float
    """Share of the queries."""


def theil_sen(lives: Iterable[Points]) -> float | None:
    """The median slope of all pairs of points of the same life (Theil 1950, Sen 1968); None for too few pairs."""
    slopes = [(later - sooner) / (end - begin) for (begin, sooner), (end, later) in _pairs(lives)]
    return statistics.median(slopes) if len(slopes) >= _FEWEST_PAIRS else None


def _pairs(lives: Iterable[Points]) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    return [pair for life in lives for pair in combinations(life, 2) if pair[1][0] > pair[0][0]]


def findings(rests: Sequence[Rest], did: Sequence[Did], faults: Sequence[Fault], seconds: float) -> Findings:
    idle = [one for one in rests if one.unloaded]
    warm = [one for one in idle if one.at_s >= _WARM * seconds and one.queries >= _WARM_QUERIES]
    queries = [one for one in did if one.query]
    return Findings(
        rest_readings=len(warm),
        rest_mib_per_hour=_rounded(theil_sen([[(one.at_s / 3600, one.anon_mib) for one in warm]])),
        rest_pss_mib_per_hour=_rounded(theil_sen([[(one.at_s / 3600, one.pss_mib) for one in warm]])),
        process_mib_per_hour={
            name: _rounded(theil_sen(_lives(warm, name, lambda one: one.at_s / 3600))) for name in (DAEMON, FORK_SERVER)
        },
        workers={name: found for name in _stages(rests) if (found := _worker(rests, name)) is not None},
        fds=_more(warm, lambda rest, name: rest.processes[name].fds),
        threads=_more(warm, lambda rest, name: rest.processes[name].threads),
        balance_faults=tuple(f"at {one.at_s:.0f} s: {what}" for one in rests for what in one.faults),
        errors=_errors(did, faults),
        latency=_latency(did, seconds),
        alone_ms=_alone(rests),
        slowest=_slowest(queries, faults),
        answered=round(sum(not one.code for one in queries) / len(queries), 3) if queries else 0.0,
    )


def _stages(rests: Sequence[Rest]) -> list[str]:
    return sorted({name for one in rests for name in one.processes} - {DAEMON, FORK_SERVER})


def _lives(rests: Sequence[Rest], name: str, when: Callable[[Rest], float]) -> list[list[tuple[float, float]]]:
    """The anonymous memory of each process that had this name, over time."""
    lives: dict[int, list[tuple[float, float]]] = {}
    for one in rests:
        if (process := one.processes.get(name)) is not None:
            lives.setdefault(process.pid, []).append((when(one), process.own_mib))
    return list(lives.values())


def _worker(rests: Sequence[Rest], name: str) -> Growth | None:
    """The first reading of a life is left out where more follow: buffers have not met the longest text."""
    lives = [life[1:] if len(life) > 2 else life for life in _lives(rests, name, lambda one: float(one.queries))]
    slope = theil_sen(lives)
    if slope is None:
        return None
    apart = statistics.median(later[0] - sooner[0] for sooner, later in _pairs(lives))
    return Growth(mib_per_100=round(slope * 100, 2), apart=apart)


def _rounded(slope: float | None) -> float | None:
    return None if slope is None else round(slope, 2)


def _more(idle: Sequence[Rest], count: Callable[[Rest, str], int]) -> dict[str, float]:
    third = -(-len(idle) // 3)
    found = {}
    for name in (DAEMON, FORK_SERVER):
        counts = [count(one, name) for one in idle if name in one.processes]
        if counts:
            found[name] = float(statistics.median(counts[-third:]) - statistics.median(counts[:third]))
    return found


def _errors(did: Sequence[Did], faults: Sequence[Fault]) -> Errors:
    failed = [one for one in did if one.code]
    meant = [one for one in failed if by_design(one)]
    ours = [one for one in failed if not by_design(one) and explained(one, faults)]
    others = [one for one in failed if not by_design(one) and not explained(one, faults)]
    return Errors(
        by_design=_codes(meant),
        explained=_codes(ours),
        unexplained=_codes(others),
        examples=tuple(f"{one.kind}: {one.code}: {one.message}" for one in others[:_EXAMPLES]),
    )


def _codes(did: Sequence[Did]) -> dict[str, int]:
    return dict(sorted(Counter(one.code for one in did).items()))


def _latency(did: Sequence[Did], seconds: float) -> dict[str, Latency]:
    """Of what went well."""
    start = min((one.begin for one in did), default=0.0)
    found = {}
    for kind in sorted({one.kind for one in did if not one.code}):
        well = [one for one in did if one.kind == kind and not one.code]
        first = [one.ms for one in well if one.begin - start < seconds / 3]
        last = [one.ms for one in well if one.begin - start >= seconds * 2 / 3]
        found[kind] = Latency(first=spread(first), last=spread(last), samples=len(well))
    return found


def _alone(rests: Sequence[Rest]) -> dict[str, tuple[float, float]]:
    found = {}
    for kind in sorted({kind for one in rests for kind in one.alone_ms}):
        times = [one.alone_ms[kind] for one in rests if kind in one.alone_ms]
        third = len(times) // 3
        if third >= _FEWEST_TIMES:
            found[kind] = (round(statistics.median(times[:third]), 1), round(statistics.median(times[-third:]), 1))
    return found


def _slowest(queries: Sequence[Did], faults: Sequence[Fault]) -> tuple[str, ...]:
    found = []
    for one in sorted(queries, key=lambda query: query.begin - query.end)[:_SLOWEST]:
        met = ", ".join(
            f"{fault.kind} {fault.stage or ''}".strip() + f" after {fault.begin - one.begin:.1f} s"
            for fault in faults
            if fault.begin < one.end and fault.end > one.begin
        )
        found.append(f"{one.ms / 1000:.1f} s {one.kind} {one.code}({one.parts}) {met}".strip())
    return tuple(found)


def targets_of(found: Findings, seconds: float, others: Sequence[tuple[str, int]]) -> tuple[Target, ...]:
    """`others`: what must not have happened, and how often it did."""
    per_hour = max(REST_MIB_PER_HOUR, NOISE_MIB / (seconds / 3600))
    slopes = {"all": found.rest_mib_per_hour, **found.process_mib_per_hour}
    few = max(0, _FEWEST_PAIRS - found.rest_readings)
    slower = {kind: max(LEAST_MS, last) / max(LEAST_MS, first) for kind, (first, last) in found.alone_ms.items()}
    return (
        _most("readings at rest that are missing (run longer)", few, 0),
        *(
            _most(f"growth at rest, {name}, MiB an hour", one, per_hour)
            for name, one in slopes.items()
            if one is not None
        ),
        *(
            _most(
                f"growth of a worker, {name}, MiB in 100 queries",
                one.mib_per_100,
                max(WORKER_MIB_PER_100, NOISE_MIB / one.apart * 100),
            )
            for name, one in found.workers.items()
        ),
        *(_most(f"more file descriptors, {name}", one, EXTRA_FDS) for name, one in found.fds.items()),
        *(_most(f"more threads, {name}", one, EXTRA_THREADS) for name, one in found.threads.items()),
        _most("ledger out of balance at rest", len(found.balance_faults), 0),
        _most("errors that no fault explains", sum(found.errors.unexplained.values()), 0),
        *(_most(f"slower at the end, {kind}, alone, by", one, SLOWER) for kind, one in slower.items()),
        _most("queries not answered, share", round(1 - found.answered, 3), 1 - LEAST_ANSWERED),
        *(_most(what, often, 0) for what, often in others),
    )


def _most(what: str, value: float, limit: float) -> Target:
    return Target(what=what, value=round(value, 2), limit=round(limit, 2), met=value <= limit)
