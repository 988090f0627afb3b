"""How much computing an answer of the LLM may take: from its urgency and the pressure on the machine. Pure.

Imports `errors`, `machine`, `messages` and `pressure`. One table says it all; `effort` reads it.

What belongs to a loaded engine (model, threads, CPUs) follows the level alone: a change of it loads the engine anew,
and one query in the background must not do that to the next one. Urgency acts through what each request carries:
graph, duty, chunk, length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from assistant.errors import BusyNow
from assistant.machine import Cpu
from assistant.memory_orchestrator.pressure import CALM_S, LEVELS, RELIEF
from assistant.messages import Level, LlmVariant, Urgency

Model = Literal["configured", "small", "w4"]
"""The one of `stages.llm.model`, the one of `stages.llm.small_model`, or the first one's variant with 4-bit weights."""

SMALLER_FROM: Level = "high"
"""The level from which fewer bytes of weights are taken where there are any."""
_SHORTEST_CHUNK = 8
"""Tokens. Fewer cost as much: MNN computes whole rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """What the user wants when nothing presses."""

    prefill_chunk: int
    """A multiple of 8."""
    max_new_tokens: int
    threads: int
    cpus: tuple[Cpu, ...] = ()
    """Those that the LLM's worker is kept to; empty = it is not kept to any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Available:
    """What could be taken instead."""

    emergency: bool = False
    """Whether the model has a graph that leaves layers out."""
    small: bool = False
    """Whether `stages.llm.small_model` can be used."""
    w4: bool = False
    """Whether the model's variant with 4-bit weights is installed, and smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    model: Model
    variant: LlmVariant
    threads: int
    cpus: tuple[int, ...]
    """Numbers of the CPUs that the worker is kept to; empty = not to any."""
    prefill_chunk: int
    duty: float
    """Share of the time in which it may compute, 0 < duty <= 1."""
    max_new_tokens: int


@dataclass(frozen=True, slots=True)
class _Row:
    variant: LlmVariant
    duty: float
    chunk: int | None
    """The most; None = as configured."""
    answer: float
    """Share of `max_new_tokens`."""


TABLE: Mapping[tuple[Level, Urgency], _Row | None] = MappingProxyType(
    {
        # who must not wait longer gets all that there is; where that has become little, fewer layers are faster
        ("normal", "critical"): _Row("full", 1, None, 1),
        ("elevated", "critical"): _Row("full", 1, None, 1),
        ("high", "critical"): _Row("emergency", 1, None, 1),
        ("critical", "critical"): _Row("emergency", 1, None, 1),
        # pauses let a hot processor cool down, short pieces let others in and keep the workspace small
        ("normal", "normal"): _Row("full", 1, None, 1),
        ("elevated", "normal"): _Row("full", 0.9, 64, 0.75),
        ("high", "normal"): _Row("full", 0.7, 32, 0.5),
        ("critical", "normal"): _Row("emergency", 0.5, 16, 0.33),
        # nobody waits for it: at least half of the time is left to others, and worse words would be for nothing
        ("normal", "background"): _Row("full", 0.5, 32, 1),
        ("elevated", "background"): _Row("full", 0.4, 32, 0.75),
        ("high", "background"): _Row("full", 0.3, 16, 0.5),
        ("critical", "background"): None,
    }
)
"""By level and urgency; None = refused."""


def check_admitted(urgency: Urgency, level: Level) -> None:
    """Raises `BusyNow` for work in the background while the pressure is critical."""
    _row(urgency, level)


def _row(urgency: Urgency, level: Level) -> _Row:
    row = TABLE[level, urgency]
    if row is None:
        raise BusyNow(
            "the machine is pressed hard (memory, heat or supply), and this was asked for in the background; ask again"
            " later, or with more urgency",
            retry_after_ms=round(CALM_S * 1000),
        )
    return row


def effort(urgency: Urgency, level: Level, configured: Configured, available: Available) -> Effort:
    """Raises what `check_admitted` raises."""
    row = _row(urgency, level)
    threads = RELIEF[level].thread_count(configured.threads)
    chunk = configured.prefill_chunk if row.chunk is None else min(row.chunk, configured.prefill_chunk)
    return Effort(
        model=_model(level, available),
        variant=row.variant if available.emergency else "full",
        threads=threads,
        cpus=_cpus(configured, threads),
        prefill_chunk=max(_SHORTEST_CHUNK, chunk),
        duty=row.duty,
        max_new_tokens=max(1, int(configured.max_new_tokens * row.answer)),
    )


def _model(level: Level, available: Available) -> Model:
    """What the user chose for hard times goes before what happens to be there."""
    if LEVELS.index(level) < LEVELS.index(SMALLER_FROM):
        return "configured"
    return "small" if available.small else "w4" if available.w4 else "configured"


def _cpus(configured: Configured, threads: int) -> tuple[int, ...]:
    """With fewer threads than usual as many cores, the fastest: the others may sleep, or hear and speak."""
    cores: dict[tuple[int, int, int], list[Cpu]] = {}
    for cpu in configured.cpus:
        cores.setdefault(cpu.core, []).append(cpu)
    kept = sorted(cores.values(), key=lambda members: (-members[0].capacity, members[0].number))
    if threads < configured.threads:
        kept = kept[:threads]
    return tuple(sorted(cpu.number for members in kept for cpu in members))
