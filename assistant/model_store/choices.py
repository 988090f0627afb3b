"""What is chosen for the conversion of an LLM: bits and blocks of its weights, and what its emergency graph leaves out.

The emergency graph is a second graph over the same weights with some layers left out: faster, and worse. The first
layers of a transformer and the last ones are vital, and those in the middle repeat much of each other's work (Men et
al. 2024, "ShortGPT"; Gromov et al. 2024, "The Unreasonable Ineffectiveness of the Deeper Layers"). The catalog names
the layers that were found by measurement for a model; others follow a rule. Imports `errors`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from assistant.errors import UsageError

EMERGENCY_GRAPH = "llm.emergency.mnn"
LEAST_LAYERS = 8
"""A model of fewer layers has none to spare, and gets no emergency graph."""
VITAL = 2
"""Layers at either end that are never left out."""
Bits = Literal[4, 8]
Block = Literal[32, 64, 128]
"""MNN holds three float32 for each block of 4-bit weights: 7 bits a weight in blocks of 32, 5.5 in 64, 4.75 in 128."""


class Choices(msgspec.Struct, frozen=True):
    bits: Bits | None = None
    """Every matrix in so many bits; None = the source's own where MNN can carry them, 8 otherwise."""
    emergency_skip: tuple[int, ...] | None = None
    """None = `default_skip`; empty = no emergency graph."""
    block: Block | None = None
    """With 4 bits alone: weights along a row that share a scale. None = the source's blocks where they have 4 bits."""

    def arguments(self) -> list[str]:
        """As arguments of the converter's command."""
        numbers = [f"--{name}={n}" for name, n in (("bits", self.bits), ("block", self.block)) if n is not None]
        if self.emergency_skip is None:
            return numbers
        return [*numbers, f"--emergency-skip={','.join(map(str, self.emergency_skip))}"]

    def skipped(self, layers: int) -> list[int]:
        """The layers that the emergency graph leaves out, in order; empty = there is none.

        Raises `ValueError` with words for a layer that the model does not have, or cannot do without.
        """
        if self.emergency_skip is None:
            return default_skip(layers)
        wrong = [layer for layer in self.emergency_skip if not VITAL <= layer < layers - VITAL]
        if wrong or len(set(self.emergency_skip)) != len(self.emergency_skip):
            raise ValueError(
                f"layers {list(self.emergency_skip)} cannot be left out:"
                f" each once, and from {VITAL} to {layers - VITAL - 1}"
            )
        return sorted(self.emergency_skip)


OWN = Choices()
"""What a user chooses who chooses nothing."""


def checked(bits: int | None, block: int | None = None, emergency_skip: Iterable[int] | None = None) -> Choices:
    """Raises `UsageError` for what is no choice."""
    known: dict[int | None, Bits | None] = {None: None, 4: 4, 8: 8}
    if bits not in known:
        raise UsageError(f"{bits} bits: a matrix can have 4 or 8")
    size = checked_block(block)
    if wrong := block_problem(bits, size):
        raise UsageError(wrong)
    return Choices(known[bits], None if emergency_skip is None else tuple(emergency_skip), size)


def checked_block(block: int | None) -> Block | None:
    """Raises `UsageError` for a size that is no choice."""
    known: dict[int | None, Block | None] = {None: None, 32: 32, 64: 64, 128: 128}
    if block not in known:
        raise UsageError(f"blocks of {block} weights: they can have 32, 64 or 128")
    return known[block]


def block_problem(bits: int | None, block: int | None) -> str:
    """What is wrong with the two together, in words; "" for nothing."""
    return "a size of blocks goes with 4 bits alone" if block is not None and bits != 4 else ""


def default_skip(layers: int) -> list[int]:
    """A quarter of the layers, in one run in the middle; none for a small model.

    One run, because a layer copes with the output of a layer a little below it, and a gap here and there makes it cope
    everywhere: with 7 of the embedded model's 30 layers left out, perplexity on a text rises from 20 to 40 for the run
    in the middle, to 277 for every third layer, to 804 for a run towards the end.
    """
    if layers < LEAST_LAYERS:
        return []
    wanted = layers // 4
    first = (layers - wanted + 1) // 2
    return list(range(first, first + wanted))
