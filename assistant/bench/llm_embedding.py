"""What it saves and costs to leave the word table on the disk. Section `embedding`.

MNN reads the rows of a prompt's tokens from the weight file, and has no setting for another way; so "without" is the
worker with the table read into memory beside it, as a loader without disk embedding would hold it. The cost is the time
to the first token when the page cache holds nothing of the file, against one that holds all of it.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import random
import statistics
import time
from pathlib import Path
from typing import Any

import msgspec

from assistant import page_cache
from assistant.bench.llm_options import Options
from assistant.bench.llm_runs import asking, fitted, mib, once
from assistant.bench.output import say_aside
from assistant.errors import ModelDamaged
from assistant.memory_orchestrator.probe import Probe
from assistant.stages.fork_client import ForkServer
from assistant.stages.spec import StageSpec

_TOKENS, _NEW, _ROWS = 40, 2, 200
_WEIGHTS = "llm.mnn.weight"


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Where the word table lies in the weight file. Bytes."""

    offset: int
    rows_bytes: int
    scales_bytes: int
    rows: int
    row_bytes: int
    float_bytes: int
    """Of all rows as 32-bit numbers."""


class Embedding(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    rows: int
    table_mib: float
    """Rows and scales as they are stored."""
    table_float_mib: float
    """The same as 32-bit numbers, which is what a loader holds that does not keep its table quantised."""
    with_mib: float
    """The worker's anonymous PSS, rows on the disk (measured peak)."""
    without_mib: float
    """The same with the rows in memory: what reading them took, measured, on top."""
    prompt_tokens: int
    warm_ms: float
    """To the first token."""
    cold_ms: float
    cost_ms: float
    """Median of the differences of each round."""
    row_warm_us: float
    """One row, read at random."""
    row_cold_us: float
    reached: bool
    """It takes less memory than the table in memory; there is no other target."""


def measure(options: Options) -> Embedding:
    chosen = options.small()
    spec = chosen.spec(context_tokens=_TOKENS + _NEW, prefill_chunk=128)
    table = table_of(spec.model_dir)
    say_aside(f"{chosen.name}: {_TOKENS} tokens, with a page cache that has the weight file and one that has not")
    anon, warm, cold = asyncio.run(_answered(spec, options.rounds))
    resident = held_by_rows(spec.model_dir, table)
    weights = spec.model_dir / _WEIGHTS
    return Embedding(
        model=chosen.name,
        rows=table.rows,
        table_mib=mib(table.rows_bytes + table.scales_bytes),
        table_float_mib=mib(table.float_bytes),
        with_mib=mib(anon),
        without_mib=mib(anon + resident),
        prompt_tokens=_TOKENS,
        warm_ms=round(statistics.median(warm), 1),
        cold_ms=round(statistics.median(cold), 1),
        cost_ms=round(statistics.median(one - other for one, other in zip(cold, warm, strict=True)), 1),
        row_warm_us=round(row_us(weights, table, cold=False), 1),
        row_cold_us=round(row_us(weights, table, cold=True), 1),
        reached=resident > 0,
    )


# --- the table ------------------------------------------------------------------------------------------------------
def _config(model_dir: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = msgspec.json.decode((model_dir / "llm_config.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        raise ModelDamaged(f"{model_dir}/llm_config.json cannot be read; run 'assistant models verify'") from None
    return found


def table_of(model_dir: Path) -> Table:
    """From what MNN is told of it: rows from `weight_offset` on, their scales behind them. Raises `ModelDamaged`."""
    config = _config(model_dir)
    told, rows = config["tie_embeddings"], int(config["assistant"]["shape"]["vocab"])
    size = told["alpha_offset"] - told["weight_offset"]
    return Table(
        offset=told["weight_offset"],
        rows_bytes=size,
        scales_bytes=told["alpha_size"],
        rows=rows,
        row_bytes=size // rows,
        float_bytes=rows * int(config["hidden_size"]) * 4,
    )


def held_by_rows(model_dir: Path, table: Table) -> int:
    """Bytes of anonymous memory that the rows take once they are read into it, measured on ourselves. MNN holds the
    scales in memory either way."""
    with mmap.mmap(-1, table.rows_bytes) as rows, (model_dir / _WEIGHTS).open("rb", buffering=0) as file:
        before = Probe().usage(os.getpid()).anon  # what is mapped anew reuses nothing that was freed before
        file.seek(table.offset)
        read = file.readinto(rows)
        held = Probe().usage(os.getpid()).anon - before
    return held if read == table.rows_bytes else 0


def row_us(weights: Path, table: Table, *, cold: bool) -> float:
    """Microseconds to read one row, the median of many at random places."""
    order, times = random.Random(1), list[float]()
    fd = os.open(weights, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for _ in range(_ROWS):
            at = table.offset + order.randrange(table.rows) * table.row_bytes
            if cold:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            else:
                os.pread(fd, table.row_bytes, at)
            began = time.perf_counter()
            os.pread(fd, table.row_bytes, at)
            times.append((time.perf_counter() - began) * 1e6)
    finally:
        os.close(fd)
    return statistics.median(times)


def warmed(weights: Path) -> None:
    """Has all of the file read into the page cache, a piece at a time."""
    with weights.open("rb") as file:
        while file.read(1 << 22):
            pass


# --- the worker -----------------------------------------------------------------------------------------------------
async def _answered(spec: StageSpec, rounds: int) -> tuple[int, list[float], list[float]]:
    """Anonymous bytes, and the times to the first token with a warm and with a cold page cache, in turns."""
    server, warm, cold = ForkServer(), list[float](), list[float]()
    server.start()
    try:
        request = asking(await fitted(spec, server, _TOKENS), _NEW)
        anon = (await once(spec, server, request, watched=True)).peak.anon

        def forget(pid: int) -> None:
            page_cache.forget(spec.model_dir)

        def know(pid: int) -> None:
            warmed(spec.model_dir / _WEIGHTS)

        for _ in range(rounds):
            warm.append((await once(spec, server, request, loaded=know)).first_token_ms)
            cold.append((await once(spec, server, request, loaded=forget)).first_token_ms)
    finally:
        await server.close()
    return anon, warm, cold


def table(found: Embedding) -> str:
    return (
        f"{found.model}: {found.rows} rows, {found.table_mib:.1f} MiB, {found.table_float_mib:.1f} as floats\n"
        f"anonymous memory: {found.with_mib:.1f} MiB with the rows on the disk, {found.without_mib:.1f} MiB without\n"
        f"first token of {found.prompt_tokens}: {found.warm_ms:.1f} ms with a warm page cache, {found.cold_ms:.1f} ms"
        f" with a cold one ({found.cost_ms:+.1f} ms)\n"
        f"one row: {found.row_warm_us:.1f} µs warm, {found.row_cold_us:.1f} µs cold"
    )
