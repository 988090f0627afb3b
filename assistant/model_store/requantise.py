"""Weights brought to other integers: fewer bits by least squared error, or the same values in more. Imports numpy.

Both in MNN's layout (see `quant_blocks`). 4 bits are asymmetric: a block's 16 levels lie where its own weights do, and
are placed by alternating two steps, each of which can only lessen the squared error: the nearest level for each weight,
and the best line through levels and weights (Lloyd 1982; the line is ordinary least squares). From which range this
starts matters, since it ends in the next valley; so it starts from several.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_STARTS = (0.0, 0.03, 0.08)
"""Shares of a block's range that are given up at either end: outliers cost the others accuracy."""
_ROUNDS = 3
"""Of the two steps after the best start. On a real word table: squared error 16 % below that of the plain range."""
_SLAB = 1 << 15
"""Weights at a time, so that everything in between stays in the processor's cache."""


def quantise8(values: Floats, block: int) -> tuple[Bytes, Floats]:
    """Symmetric 8 bits with scale = max |w| / 127 per block, as ggml's Q8_0 but with a float32 scale.

    [rows, columns] -> bytes [rows, blocks, block] and scales [rows, blocks].
    """
    blocks = values.reshape(values.shape[0], -1, block)
    scale = np.abs(blocks).max(axis=-1) / np.float32(127)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    return (np.rint(blocks * inverse[..., None]) + 128).astype(np.uint8), scale


def quantise4(values: Floats, block: int) -> tuple[Bytes, Floats]:
    """Asymmetric 4 bits: [rows, columns] -> bytes [rows * columns / 2] and pairs (value of code 0, scale), flat.

    Pairs that are not finite come from weights that are not.
    """
    blocks = values.reshape(-1, block)
    levels, pairs = np.empty(blocks.shape, np.uint8), np.empty((len(blocks), 2), np.float32)
    step = max(1, _SLAB // block)
    for at in range(0, len(blocks), step):
        levels[at : at + step], pairs[at : at + step] = _best(blocks[at : at + step])
    flat = levels.reshape(-1)
    packed: Bytes = (flat[0::2] << np.uint8(4)) | flat[1::2]
    return packed, pairs.reshape(-1)


def _best(blocks: Floats) -> tuple[Bytes, Floats]:
    """Levels 0..15 [n, block] and (value of code 0, scale) [n, 2] of the start that ended best."""
    least = blocks.min(axis=1, keepdims=True)
    above = blocks - least  # smaller numbers, so that sums of products lose nothing
    span = above.max(axis=1, keepdims=True)
    mean = above.mean(axis=1)
    scale, offset, saved = np.zeros_like(mean), mean, np.full_like(mean, -1)
    for share in _STARTS:
        found = _line(above, mean, _nearest(above, share * span, (1 - 2 * share) / 15 * span))
        better = found[2] > saved
        scale, offset, saved = (
            np.where(better, new, old) for new, old in zip(found, (scale, offset, saved), strict=True)
        )
    for _ in range(_ROUNDS):
        levels = _nearest(above, offset[:, None], scale[:, None])
        scale, offset, _ = _line(above, mean, levels)
    return levels.astype(np.uint8), np.stack([least[:, 0] + offset + 8 * scale, scale], axis=1)


def _nearest(values: Floats, offset: Floats, scale: Floats) -> Floats:
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    levels = (values - offset) * inverse
    np.rint(levels, out=levels)
    return np.clip(levels, 0, 15, out=levels)


def _line(values: Floats, mean: Floats, levels: Floats) -> tuple[Floats, Floats, Floats]:
    """Scale and offset of the line through levels and values of each row, and the squared error that it saves.

    The squared error about the mean is the same for all lines of a row, so the one that saves most is the best.
    """
    size = np.float32(values.shape[1])
    middle = levels.mean(axis=1)
    square = np.einsum("ij,ij->i", levels, levels) / size - middle * middle
    product = np.einsum("ij,ij->i", levels, values) / size - middle * mean
    scale = np.divide(product, square, out=np.zeros_like(product), where=square > 0)
    return scale, mean - scale * middle, scale * product


def widened(packed: Bytes) -> Bytes:
    """4-bit integers in MNN's order -> the same codes in 8 bits, [..., n] -> [..., 2 n]."""
    out = np.empty((*packed.shape[:-1], 2 * packed.shape[-1]), np.uint8)
    out[..., 0::2] = (packed >> 4) + np.uint8(120)
    out[..., 1::2] = (packed & 15) + np.uint8(120)
    return out
