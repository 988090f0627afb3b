"""What a stage will hold before it was ever loaded, and the same corrected by what was measured. Pure.

    peak = weights * factor + workspace + KV slots * pool

The factors were measured on the embedded models by `assistant ask --json` and `bench llm-start`. A measured peak of the
same model, engine and settings replaces weights and workspace; the KV slots are always promised whole, since the next
question may be a long one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from assistant.memory_orchestrator.policy import Need
from assistant.memory_orchestrator.probe import MIB, Usage
from assistant.messages import KvHome

KV_POOL: dict[KvHome, float] = {"memory": 1.05, "disk": 1.05, "heap": 1.15}
"""What a key-value cache takes per byte of it: with a copy of one layer at a time where it grows, and with what MNN's
heap keeps of the first few tokens' room (growing there would take 2.2: see `stages.mnn_reserve`)."""
_KV_STEP = 64
"""Tokens by which MNN makes room; its values come in blocks of as many."""
HEADROOM = 1.05
"""On a measured peak: the next query may be a little longer."""
_CREDIBLE = 4
"""A measured peak of so many guesses was not measured on this model, whoever wrote it down; believed, it would keep the
stage from ever being loaded and measured again."""


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
    prepared: Usage = field(default_factory=lambda: Usage(30 * MIB, 15 * MIB))
    """A process that has imported the engine and loaded nothing."""


SHAPES: dict[str, Shape] = {
    # whisper's first load converts to int8; later ones hold two thirds of this
    "whisper": Shape(2.0, 0.0, 40 * MIB, 20 * MIB, Usage(15 * MIB, 5 * MIB)),
    "vosk": Shape(2.0, 0.0, 80 * MIB, 30 * MIB),
    # templates and encoder together, with as many names as may be registered; the word table is mapped
    "classifier": Shape(0.0, 0.0, 54 * MIB, 25 * MIB, Usage(25 * MIB, 12 * MIB)),
    "templates": Shape(0.0, 0.0, 30 * MIB, 5 * MIB, Usage(18 * MIB, 3 * MIB)),
    # the first load lays the weights out anew (its peak is one slice of the head); scales widen to fp32
    "mnn": Shape(0.0, 1.5, 110 * MIB, 10 * MIB, Usage(15 * MIB, 5 * MIB)),
    # the first load optimises the network in a process of its own
    "piper": Shape(2.5, 0.0, 110 * MIB, 60 * MIB, Usage(25 * MIB, 14 * MIB)),
    # weights widen to 32 bits
    "piper-mnn": Shape(1.4, 0.0, 80 * MIB, 20 * MIB, Usage(18 * MIB, 8 * MIB)),
    # the work is done elsewhere: an interpreter and a socket
    "wyoming": Shape(0.0, 0.0, 13 * MIB, 3 * MIB, Usage(12 * MIB, 2 * MIB)),
    "openai": Shape(0.0, 0.0, 17 * MIB, 4 * MIB, Usage(15 * MIB, 3 * MIB)),
}


def slot_tokens(context_tokens: int) -> int:
    """Tokens that MNN makes room for by the time that `context_tokens` are in the cache."""
    return -(-(context_tokens + _KV_STEP) // _KV_STEP) * _KV_STEP


def kv_bytes(shape: Mapping[str, Any], context_tokens: int, slots: int, bytes_per_value: int = 4) -> int:
    """Bytes of the key-value cache: 2 (K and V) * layers * kv_heads * head_dim * bytes * tokens * slots."""
    if not shape:
        return 0
    per_token = 2 * int(shape["layers"]) * int(shape["kv_heads"]) * int(shape["head_dim"]) * bytes_per_value
    return per_token * context_tokens * slots


class Cache(NamedTuple):
    """The keys and values that a model is given with some settings."""

    context_tokens: int
    """As many as the model can use of those that were set."""
    token_bytes: int
    bytes: int
    """Of all slots when they are full."""
    files: int
    """That MNN keeps open for them."""


def cache_of(shape: Mapping[str, Any] | None, context_tokens: int, slots: int) -> Cache:
    """`shape`: of the model's manifest; a model without one has no cache that could be told."""
    shape = shape or {}
    context = min(context_tokens, int(shape.get("max_position", context_tokens)))
    full = kv_bytes(shape, slot_tokens(context), slots)
    return Cache(context, kv_bytes(shape, 1, 1), full, 2 * int(shape.get("layers", 0)) * slots)


def estimate(
    stage: str,
    engine: str,
    weight_bytes: int,
    kv: int = 0,
    measured: Usage | None = None,
    kv_home: KvHome = "memory",
) -> Need:
    """The peak that `stage` will hold, in bytes.

    `measured`: an earlier peak of the same model and settings, less what its key-value cache took (`without_kv`).
    """
    shape = SHAPES[engine]
    anon = weight_bytes * shape.anon_per_weight + shape.anon_fixed
    file = weight_bytes * shape.file_per_weight + shape.file_fixed
    if measured is not None and 0 < measured.total <= (anon + file) * _CREDIBLE:
        anon, file = measured.anon * HEADROOM, measured.file * HEADROOM
    promised = kv * KV_POOL[kv_home]
    if kv_home == "disk":  # all but the copy
        return Need(stage=stage, anon=int(anon + promised - kv), file=int(file + kv), kv=kv)
    return Need(stage=stage, anon=int(anon + promised), file=int(file), kv=kv)


def prepared(stage: str, engine: str) -> Need:
    """What the process of `stage` holds once its engine is imported, in bytes."""
    usage = SHAPES[engine].prepared
    return Need(stage=stage, anon=usage.anon, file=usage.file)


def without_kv(peak: Usage, kv_used: int, kv_home: KvHome = "memory") -> Usage:
    """A measured peak less what a cache of `kv_used` bytes took of it; of shared memory the kernel tells how much."""
    if kv_home == "memory":
        copied = int(peak.shm * (KV_POOL["memory"] - 1))
        return Usage(anon=max(0, peak.anon - peak.shm - copied), file=peak.file)
    if kv_home == "disk":
        return Usage(anon=peak.anon, file=max(0, peak.file - kv_used))
    return Usage(anon=max(0, peak.anon - int(kv_used * KV_POOL["heap"])), file=peak.file)
