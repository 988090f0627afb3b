"""How tensor types store weights: ggml's `enum ggml_type` and `block_*`, and two of our own. Imports nothing of ours.

GGUF has no type whose 4-bit blocks are longer than 32 weights with a scale each; models of random weights need some.
"""

from __future__ import annotations

from typing import NamedTuple


class BlockFormat(NamedTuple):
    """How a tensor type stores a row: `bytes` for every `weights` weights."""

    name: str
    weights: int
    bytes: int


FORMATS: dict[int, BlockFormat] = {
    0: BlockFormat("F32", 1, 4),
    1: BlockFormat("F16", 1, 2),
    2: BlockFormat("Q4_0", 32, 18),
    3: BlockFormat("Q4_1", 32, 20),
    6: BlockFormat("Q5_0", 32, 22),
    7: BlockFormat("Q5_1", 32, 24),
    8: BlockFormat("Q8_0", 32, 34),
    12: BlockFormat("Q4_K", 256, 144),
    13: BlockFormat("Q5_K", 256, 176),
    14: BlockFormat("Q6_K", 256, 210),
    30: BlockFormat("BF16", 1, 2),
}
"""By ggml type number: what we can read."""

WIDE_BLOCKS: dict[int, BlockFormat] = {size: BlockFormat(f"M4_{size}", size, 2 + size // 2) for size in (64, 128)}
"""By weights of a block. No type of GGUF: a float16 scale, then 4-bit integers in MNN's own order, low ones last."""

OTHER_TYPES = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
    19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64",
    28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip
"""By ggml type number: what exists besides, for the message that refuses it."""
