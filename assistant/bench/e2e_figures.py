"""What the runs of `bench e2e` amount to: medians, ratios and targets. Pure.

Ratios compare the same recordings: those that our side answered with the LLM, and those that it handled by a local
command, each with what the naive way took for them. A recording that failed anywhere is in no figure.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from assistant.bench.e2e_runs import Taken
from assistant.bench.load import percentile

TARGETS = {
    "cold_p50": 0.25,
    "cold_p95": 0.35,
    "warm_p50": 0.15,
    "warm_to_naive_warm": 0.5,
    "local_cold_p50": 0.15,
    "peak": 1.0,
}
SEQUENTIAL_PEAK = 0.8
"""When a budget leaves room for one stage at a time; it is the only target then."""


class Spread(msgspec.Struct, frozen=True):
    p50: float
    p95: float


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds over the queries of one kind, in one state."""

    queries: int
    first_audio_ms: Spread
    """From the end of speech, the endpointing silence not counted."""
    with_silence_ms: Spread
    silence_ms: float
    """Median; 0 for the naive way, which is handed the recording when speech ends."""
    peak_mib: float | None
    """PSS of all its processes, the most there was; None = nobody looked."""
    tokens_per_s: float
    """Median; 0 = unknown."""
    stages: dict[str, Spread]


class Naive(msgspec.Struct, frozen=True, kw_only=True):
    cold: Side
    warm: Side


class Local(msgspec.Struct, frozen=True, kw_only=True):
    """Queries that a local command has handled, without the LLM; and what the naive way, which has none, took."""

    cold: Side
    warm: Side
    naive_cold: Side


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """At a pause: recognised, and answered, before it was known that nobody goes on."""

    attempts: int
    hits: int
    """Nobody went on."""
    answers: int
    """Of the hits, those with an answer begun when it was known."""
    hit_rate: float | None


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    side: str
    code: str


class E2e(msgspec.Struct, frozen=True, kw_only=True):
    queries: int
    cold: Side
    warm: Side
    local: Local
    naive: Naive
    ratio: dict[str, float | None]
    """None = it was not measured."""
    mode: str
    throttled: bool
    pressed: tuple[str, ...]
    """Why."""
    speculation: Speculation
    failed: tuple[Failed, ...]
    """In no figure."""
    targets: dict[str, bool | None]
    limits: dict[str, float]
    reached: bool


Measured = Mapping[str, Sequence[Taken]]
"""By side ("ours cold", "ours warm", "naive cold", "naive warm"): one for each recording, in the same order."""


def judged(timed: Measured, observed: Measured, *, budget: bool = False) -> E2e:
    """`observed`: runs whose memory was looked at. `budget`: ours had one of its own."""
    kinds = kinds_of(timed)
    answered, handled = ([kind == wanted for kind in kinds] for wanted in ("answered", "handled"))
    peaks = {
        side: max((one.peak_mib for one in runs if one.outcome != "failed"), default=0.0)
        for side, runs in observed.items()
    }
    sides = {name: side(_those(runs, answered), peaks.get(name, 0.0)) for name, runs in timed.items()}
    local = Local(
        cold=side(_those(timed["ours cold"], handled)),
        warm=side(_those(timed["ours warm"], handled)),
        naive_cold=side(_those(timed["naive cold"], handled)),
    )
    naive = Naive(cold=sides["naive cold"], warm=sides["naive warm"])
    ours = [one for name in ("ours cold", "ours warm") for one in timed[name]]
    watched = [one for runs in observed.values() for one in runs]
    ratio = ratios(sides["ours cold"], sides["ours warm"], local, naive)
    mode = next((one.mode for one in ours if one.mode), "")
    limits = {"peak": SEQUENTIAL_PEAK if mode == "sequential" else TARGETS["peak"]} if budget else TARGETS
    targets = {name: None if (found := ratio[name]) is None else found <= limit for name, limit in limits.items()}
    pressed = tuple(dict.fromkeys(reason for one in [*ours, *watched] for reason in one.pressed))
    return E2e(
        queries=len(kinds), cold=sides["ours cold"], warm=sides["ours warm"], local=local, naive=naive, ratio=ratio,
        mode=mode, throttled=bool(pressed), pressed=pressed,
        speculation=_guesses(ours),
        failed=tuple(
            Failed(file=one.file, side=name, code=one.code)
            for pass_ in (timed, observed) for name, runs in pass_.items() for one in runs if one.outcome == "failed"
        ),
        targets=targets, limits=dict(limits), reached=True in targets.values() and False not in targets.values(),
    )  # fmt: skip


def _guesses(runs: Sequence[Taken]) -> Speculation:
    hits = [hit for one in runs for hit in one.speculations]
    return Speculation(
        attempts=len(hits),
        hits=sum(hits),
        answers=sum(one.drafts for one in runs),
        hit_rate=round(sum(hits) / len(hits), 3) if hits else None,
    )


def kinds_of(timed: Measured) -> list[str]:
    """For each recording: answered | handled, by our side with nothing loaded; failed, if any side failed."""
    return [
        "failed" if any(one.outcome == "failed" for one in each) else ours.outcome
        for ours, *each in zip(timed["ours cold"], *timed.values(), strict=True)
    ]


def _those(runs: Sequence[Taken], wanted: Sequence[bool]) -> list[Taken]:
    return [one for one, take in zip(runs, wanted, strict=True) if take]


def side(runs: Sequence[Taken], peak_mib: float = 0.0) -> Side:
    names = list(dict.fromkeys(name for one in runs for name in one.stages))
    return Side(
        queries=len(runs),
        first_audio_ms=spread([one.first_audio_ms for one in runs]),
        with_silence_ms=spread([one.with_silence_ms for one in runs]),
        silence_ms=_median([one.silence_ms for one in runs]),
        peak_mib=peak_mib or None,
        tokens_per_s=_median([one.tokens_per_s for one in runs if one.tokens_per_s]),
        stages={name: spread([one.stages[name] for one in runs if name in one.stages]) for name in names},
    )


def spread(values: Sequence[float]) -> Spread:
    """Zeros of none."""
    return Spread(p50=_median(values), p95=round(percentile(values, 95), 1))


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 1) if values else 0.0


def ratios(cold: Side, warm: Side, local: Local, naive: Naive) -> dict[str, float | None]:
    base = naive.cold.first_audio_ms
    return {
        "cold_p50": _ratio(cold.first_audio_ms.p50, base.p50, cold.queries),
        "cold_p95": _ratio(cold.first_audio_ms.p95, base.p95, cold.queries),
        "warm_p50": _ratio(warm.first_audio_ms.p50, base.p50, warm.queries),
        "warm_to_naive_warm": _ratio(warm.first_audio_ms.p50, naive.warm.first_audio_ms.p50, warm.queries),
        "local_cold_p50": _ratio(
            local.cold.first_audio_ms.p50, local.naive_cold.first_audio_ms.p50, local.cold.queries
        ),
        "peak": _ratio(cold.peak_mib or 0.0, naive.cold.peak_mib or 0.0, int(cold.peak_mib is not None)),
        "warm_peak": _ratio(warm.peak_mib or 0.0, naive.warm.peak_mib or 0.0, int(warm.peak_mib is not None)),
    }


def _ratio(ours: float, theirs: float, queries: int) -> float | None:
    return round(ours / theirs, 4) if queries and theirs else None
