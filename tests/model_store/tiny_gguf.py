"""Small random GGUF models for tests: the benchmarks' writer under names that say so."""

from __future__ import annotations

from assistant.model_store.synthetic_gguf import (
    TYPE_NUMBER,
    Tensor,
    bf16,
    model_metadata,
    model_tensors,
    random_rows,
    string,
    value,
    write,
    write_model,
)
from assistant.model_store.synthetic_gguf import ModelSpec as Tiny

__all__ = [
    "TYPE_NUMBER",
    "Tensor",
    "Tiny",
    "bf16",
    "model_metadata",
    "model_tensors",
    "random_rows",
    "string",
    "value",
    "write",
    "write_model",
]
