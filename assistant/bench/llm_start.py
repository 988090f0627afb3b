"""How long the LLM worker takes from the fork to the first logits, with a warm weight cache.

    assistant bench llm-start [--runs 9] [--json]

The prompt is one short question, so the figure holds the fork, the imports, the mapping of the weights, and the
prefill of about 40 tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence

import msgspec

from assistant import config as settings
from assistant.bench.output import judge
from assistant.daemon_specs import stage_spec
from assistant.memory_orchestrator.probe import MIB, Probe
from assistant.messages import LlmRequest, Progress, Stage, Turn
from assistant.model_store.store import ModelStore
from assistant.stages.fork_client import ForkServer
from assistant.stages.process import Worker
from assistant.stages.registry import engine_path
from assistant.stages.spec import StageSpec

TARGET_MS = 150


class LlmStart(msgspec.Struct, frozen=True, kw_only=True):
    """Medians of the warm runs, in milliseconds and MiB of PSS."""

    runs: int
    cold_ms: float
    """The first run: builds the cache when there is none yet."""
    fork_and_import_ms: float
    load_ms: float
    first_logits_ms: float
    """From the fork on: the figure that has a target."""
    anon_mib: float
    file_mib: float
    reached: bool


async def measure(runs: int) -> LlmStart:
    """Raises `ModelError` when the model is not there, `StageError` when its worker fails."""
    spec = stage_spec(Stage.LLM, settings.load(), ModelStore.default())
    server = ForkServer()
    server.start()
    try:
        cold = await _once(spec, server)
        found = [await _once(spec, server) for _ in range(runs)]
    finally:
        await server.close()
    medians = [statistics.median(column) for column in zip(*found, strict=True)]
    return LlmStart(
        runs=runs,
        cold_ms=round(cold[2], 1),
        fork_and_import_ms=round(medians[0], 1),
        load_ms=round(medians[1], 1),
        first_logits_ms=round(medians[2], 1),
        anon_mib=round(medians[3], 1),
        file_mib=round(medians[4], 1),
        reached=medians[2] <= TARGET_MS,
    )


async def _once(spec: StageSpec, server: ForkServer) -> tuple[float, float, float, float, float]:
    started = time.perf_counter()
    worker = Worker(Stage.LLM, server)
    try:
        await worker.prepare(engine_path(spec.stage, spec.engine), spec.start_timeout_s)
        prepared = time.perf_counter()
        await worker.load(spec.engine_config(spec.threads), spec.start_timeout_s)
        loaded = time.perf_counter()
        request = LlmRequest(turns=(Turn(role="user", content="What is the capital of France?"),), max_new_tokens=1)
        first = 0.0
        async for out in worker.run(request, spec.step_timeout_s):
            if not first and isinstance(out, Progress) and out.done == out.total:
                first = time.perf_counter()
        usage = Probe().usage(worker.pid)
    finally:
        await worker.stop()
    return (
        (prepared - started) * 1000,
        (loaded - prepared) * 1000,
        (first - started) * 1000,
        usage.anon / MIB,
        usage.file / MIB,
    )


def table(found: LlmStart) -> str:
    return (
        f"fork and import {found.fork_and_import_ms:.0f} ms, load {found.load_ms:.0f} ms,"
        f" first logits {found.first_logits_ms:.0f} ms after the fork (target {TARGET_MS} ms)\n"
        f"{found.anon_mib:.0f} MiB anonymous, {found.file_mib:.0f} MiB mapped;"
        f" first run {found.cold_ms:.0f} ms; medians of {found.runs}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns 0 when the target is reached, 1 when not, or the exit status of the error."""
    parser = argparse.ArgumentParser(prog="assistant bench llm-start", description="From fork to first logits.")
    parser.add_argument("--runs", type=int, default=9, help="measured runs (default 9)")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    args = parser.parse_args(argv)
    return judge(lambda: asyncio.run(measure(max(1, args.runs))), table, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
