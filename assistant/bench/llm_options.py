"""What the sections of `assistant bench llm` are given. Imports `llm_model`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from assistant.bench.llm_model import BIG_SHAPE, Chosen, choose

W4, W8 = "-w4", "-w8"
"""Endings of the names of variants with all matrices in 4 and in 8 bits."""
DEFAULT_LIMITS = (2048, 1200, 900, 700, 500)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    model: str = "embedded"
    """A name, a folder, or "embedded": what all but the heavy sections look at."""
    shape: str = BIG_SHAPE
    """Of the synthetic model for the heavy ones; empty = `model` for them, too."""
    rounds: int = 3
    limits_mib: tuple[int, ...] = DEFAULT_LIMITS
    below_mib: int = 160
    """A limit at which the ledger must refuse."""
    llama_cpp_python: Path | None = None
    plot: Path | None = None

    def small(self) -> Chosen:
        return choose(model=self.model)

    def big(self) -> Chosen:
        return choose(shape=self.shape) if self.shape else self.small()
