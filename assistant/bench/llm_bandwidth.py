"""How near decoding comes to what memory allows: tok/s ÷ (bandwidth ÷ bytes touched per token). Section `bandwidth`.

The bytes are the pages of MNN's laid-out weights that the worker touches while it decodes, as the kernel notes them
(`clear_refs`, `Referenced`): layers, head and scales, without the word table, which is not mapped.
"""

from __future__ import annotations

import asyncio
import re
import statistics

import msgspec

from assistant.bench.llm_model import Chosen
from assistant.bench.llm_options import Options
from assistant.bench.llm_runs import asking, fitted, forget_references, mapped, mib, once
from assistant.bench.output import say_aside
from assistant.bench.read_bandwidth import last_cache, read_bandwidth
from assistant.stages.fork_client import ForkServer

_TOKENS, _NEW = 64, 24
_FORGET_AT, _LOOK_AT = 4, 12
"""Tokens of the answer between which the touched pages are counted."""
_WEIGHTS = re.compile(r"\.static(?: \(deleted\))?$")


class Distance(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    threads: int
    touched_mib: float
    """Per token."""
    mapped_mib: float
    """All of the laid-out weights that are in the worker's memory."""
    limit_tps: float
    """Bandwidth over bytes per token."""
    decode_tps: float
    share: float
    """Of the limit. More than 1 means that a cache holds a part of the weights."""
    fits_cache: bool
    """Whether the last cache level could hold all that a token touches: then the limit says little."""


class Bandwidth(msgspec.Struct, frozen=True, kw_only=True):
    read_gb_s: float
    """10^9 bytes per second, with as many threads as the model uses."""
    buffer_mib: float
    cache_mib: float
    models: tuple[Distance, ...]
    reached: bool
    """All was measured; there is no target."""


def measure(options: Options) -> Bandwidth:
    chosen = {one.name: one for one in (options.small(), options.big())}
    found, best, size = [], 0.0, 0
    for one in chosen.values():
        say_aside(f"{one.name}: pages touched per token, and read bandwidth before and after")
        threads = one.spec(context_tokens=_TOKENS + _NEW, prefill_chunk=128).threads
        before, size = read_bandwidth(threads)
        touched, resident, tps = asyncio.run(_decoded(one, options.rounds))
        bandwidth = max(before, read_bandwidth(threads)[0])
        best = max(best, bandwidth)
        found.append(distance(one.name, threads, touched, resident, tps, bandwidth, last_cache()))
    return Bandwidth(
        read_gb_s=round(best / 1e9, 2),
        buffer_mib=mib(size),
        cache_mib=mib(last_cache()),
        models=tuple(found),
        reached=all(one.touched_mib and one.decode_tps for one in found),
    )


def distance(
    name: str, threads: int, touched: int, resident: int, tps: float, bandwidth: float, cache: int
) -> Distance:
    """`touched` and `resident` in bytes, `bandwidth` in bytes per second."""
    limit = bandwidth / touched if touched else 0.0
    return Distance(
        model=name,
        threads=threads,
        touched_mib=mib(touched),
        mapped_mib=mib(resident),
        limit_tps=round(limit, 1),
        decode_tps=round(tps, 2),
        share=round(tps / limit, 3) if limit else 0.0,
        fits_cache=touched <= cache,
    )


async def _decoded(chosen: Chosen, rounds: int) -> tuple[int, int, float]:
    """Bytes touched per token, bytes resident, and tok/s: medians, the last of runs in which nobody looks."""
    spec = chosen.spec(context_tokens=_TOKENS + _NEW, prefill_chunk=128)
    touched, resident, forgotten = list[int](), list[int](), False

    def token(pid: int, number: int) -> None:
        nonlocal forgotten
        if number >= _FORGET_AT and not forgotten:
            forgotten = True
            if not forget_references(pid):
                touched.append(mapped(pid, _WEIGHTS)["Rss"])  # the kernel does not note it: all that is there
        elif number >= _LOOK_AT and not resident:
            found = mapped(pid, _WEIGHTS)
            resident.append(found["Rss"])
            if not touched:
                touched.append(found["Referenced"])

    server = ForkServer()
    server.start()
    try:
        request = asking(await fitted(spec, server, _TOKENS), _NEW)
        await once(spec, server, request, token=token)
        speeds = [(await once(spec, server, request)).decode_tps for _ in range(rounds)]
    finally:
        await server.close()
    return (touched or [0])[0], (resident or [0])[0], statistics.median(speeds)


def table(found: Bandwidth) -> str:
    lines = [
        f"read bandwidth {found.read_gb_s:.1f} GB/s ({found.buffer_mib:.0f} MiB, summed by numpy; the last cache level"
        f" holds {found.cache_mib:.0f} MiB)",
        f"{'model':<28}{'MiB per token':>14}{'mapped MiB':>12}{'limit tok/s':>13}{'tok/s':>8}{'of the limit':>14}",
    ]
    for one in found.models:
        note = "  (fits the cache)" if one.fits_cache else ""
        lines.append(
            f"{one.model:<28}{one.touched_mib:>14.1f}{one.mapped_mib:>12.1f}{one.limit_tps:>13.1f}{one.decode_tps:>8.1f}"
            f"{one.share:>14.0%}{note}"
        )
    return "\n".join(lines)
