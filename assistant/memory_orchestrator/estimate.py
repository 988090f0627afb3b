"""What a stage will hold before it was ever loaded, and the same corrected by what was measured. Pure.

    peak = weights * factor + KV slots + workspace

The factors and workspaces were measured on the embedded models (docs/benchmarks.md); a measured peak of the same
model, engine and settings replaces the estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assistant.memory_orchestrator.policy import Need
from assistant.memory_orchestrator.probe import MIB, Usage

HEADROOM = 1.05
"""On a measured peak: the next query may be a little longer."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How an engine's memory follows from its files. Bytes."""

    anon_per_weight: float
    """Anonymous bytes per byte of model file."""
    file_per_weight: float
    """Mapped bytes per byte of model file."""
    anon_fixed: int
    """Interpreter, libraries, workspace."""
    file_fixed: int
    heavy: bool = True


SHAPES: dict[str, Shape] = {
    # whisper's first load converts to int8; later ones hold two thirds of this
    "whisper": Shape(2.0, 0.0, 40 * MIB, 20 * MIB),
    "vosk": Shape(2.0, 0.0, 80 * MIB, 30 * MIB),
    "templates": Shape(0.0, 0.0, 30 * MIB, 5 * MIB, heavy=False),
    # the first load lays the weights out anew (its peak is one slice of the head); scales widen to fp32
    "mnn": Shape(0.0, 1.5, 110 * MIB, 10 * MIB),
    # the first load optimises the network in a process of its own
    "piper": Shape(2.5, 0.0, 110 * MIB, 60 * MIB),
}


def kv_bytes(shape: Mapping[str, Any], context_tokens: int, slots: int, bytes_per_value: int = 4) -> int:
    """Bytes of the key-value cache: 2 (K and V) * layers * kv_heads * head_dim * bytes * tokens * slots."""
    if not shape:
        return 0
    per_token = 2 * int(shape["layers"]) * int(shape["kv_heads"]) * int(shape["head_dim"]) * bytes_per_value
    return per_token * context_tokens * slots


def estimate(stage: str, engine: str, weight_bytes: int, kv: int = 0, measured: Usage | None = None) -> Need:
    """The peak that `stage` will hold, in bytes; `measured` is an earlier peak of the same model and settings."""
    shape = SHAPES[engine]
    if measured is not None and measured.total > 0:
        return Need(
            stage=stage,
            anon=int(measured.anon * HEADROOM),
            file=int(measured.file * HEADROOM),
            kv=kv,
            heavy=shape.heavy,
        )
    return Need(
        stage=stage,
        anon=int(weight_bytes * shape.anon_per_weight) + shape.anon_fixed + kv,
        file=int(weight_bytes * shape.file_per_weight) + shape.file_fixed,
        kv=kv,
        heavy=shape.heavy,
    )
