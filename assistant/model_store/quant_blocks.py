"""Quantised blocks: GGUF's read as numbers, or re-packed as MNN's without changing a weight. Imports `requantise`.

Both directions are written on their own, so that a test of one against the other proves something. ggml stores a block
of weights together with its scale; MNN stores all integers of a matrix first and all scales after them. MNN's weight is
`code * scale` (symmetric) or `code * scale + bias` (asymmetric), with code = stored unsigned integer - 8 (4 bits) or
- 128 (8 bits). ggml's layouts: `block_*` and `dequantize_row_*` in ggml's `ggml-common.h` and `ggml-quants.c`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assistant.model_store.requantise import quantise4, quantise8, widened

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


class Packing(NamedTuple):
    """How MNN stores a matrix."""

    bits: int
    block: int
    """Weights along a row that share a scale."""
    asymmetric: bool
    half: bool
    """Scales as float16. Only where that is exact; MNN's memory holds float32 either way."""
    exact: bool = True
    """False: the source has no such integers to carry over, so its weights are quantised here."""

    @property
    def alphas(self) -> int:
        """Numbers per block: `scale`, or `bias, scale`."""
        return 2 if self.asymmetric else 1

    @property
    def alpha_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float16 if self.half else np.float32)


def _blocks(raw: Bytes, size: int) -> Bytes:
    return raw.reshape(raw.shape[0], -1, size)


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte `at` of each block, as float32 [rows, blocks]."""
    return np.ascontiguousarray(blocks[:, :, at : at + 2]).view(np.float16)[:, :, 0].astype(np.float32)


def _pairs(low_high: Bytes) -> Bytes:
    """Chunks whose byte j holds weight j (low nibble) and weight j + n (high nibble) -> MNN's order.

    MNN's byte k holds weight 2k in its high nibble and 2k + 1 in its low one. [..., n] -> [..., n].
    """
    even, odd = low_high[..., 0::2], low_high[..., 1::2]
    return np.concatenate([(even << 4) | (odd & 0x0F), (even & 0xF0) | (odd >> 4)], axis=-1)


def _k_scales(scales: Bytes) -> tuple[Floats, Floats]:
    """The 12 bytes of a K-quant block -> 8 six-bit scales and 8 six-bit minima, float32 [rows, blocks, 8]."""
    first, second, third = scales[..., 0:4], scales[..., 4:8], scales[..., 8:12]
    scale = np.concatenate([first & 63, (third & 15) | (first >> 6 << 4)], axis=-1)
    least = np.concatenate([second & 63, (third >> 4) | (second >> 6 << 4)], axis=-1)
    return scale.astype(np.float32), least.astype(np.float32)


def _five_bits(qs: Bytes, qh: Bytes) -> Bytes:
    """Q5_0 and Q5_1: nibbles [.., 16] and high bits [.., 4] -> integers 0..31, [.., 32]."""
    high = np.unpackbits(qh, axis=-1, bitorder="little")
    out: Bytes = np.concatenate([qs & 15, qs >> 4], axis=-1) | (high << 4)
    return out


def _q5_k_integers(blocks: Bytes) -> Bytes:
    """Q5_K: integers 0..31, [rows, blocks, 8, 32]."""
    qs = blocks[:, :, 48:].reshape(*blocks.shape[:2], 4, 32)
    nibbles = np.stack([qs & 15, qs >> 4], axis=3).reshape(*blocks.shape[:2], 8, 32)
    high = (blocks[:, :, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    out: Bytes = nibbles | (high << 4)
    return out


def _q6_k_integers(blocks: Bytes) -> Bytes:
    """Q6_K: integers 0..63, [rows, blocks, 256]. Each half of 128 has 64 bytes of nibbles and 32 of high bits."""
    ql = blocks[:, :, :128].reshape(*blocks.shape[:2], 2, 64)
    qh = blocks[:, :, 128:192].reshape(*blocks.shape[:2], 2, 1, 32)
    nibbles = np.concatenate([ql & 15, ql >> 4], axis=-1).reshape(*blocks.shape[:2], 2, 4, 32)
    high = (qh >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
    out: Bytes = (nibbles | (high << 4)).reshape(*blocks.shape[:2], 256)
    return out


# --- GGUF -> numbers ------------------------------------------------------------------------------------------------
def _plain(raw: Bytes, dtype: str) -> Floats:
    return raw.view(dtype).astype(np.float32)


def _bf16(raw: Bytes) -> Floats:
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _of_q4(raw: Bytes, head: int) -> Floats:
    blocks = _blocks(raw, 16 + head)
    nibbles = np.concatenate([blocks[:, :, head:] & 15, blocks[:, :, head:] >> 4], axis=-1).astype(np.float32)
    scale = _half(blocks, 0)[:, :, None]
    return nibbles * scale + _half(blocks, 2)[:, :, None] if head == 4 else (nibbles - 8) * scale


def _of_q5(raw: Bytes, head: int) -> Floats:
    blocks = _blocks(raw, 20 + head)
    integers = _five_bits(blocks[:, :, head + 4 :], blocks[:, :, head : head + 4]).astype(np.float32)
    scale = _half(blocks, 0)[:, :, None]
    return integers * scale + _half(blocks, 2)[:, :, None] if head == 4 else (integers - 16) * scale


def _of_q8_0(raw: Bytes) -> Floats:
    blocks = _blocks(raw, 34)
    return blocks[:, :, 2:].view(np.int8).astype(np.float32) * _half(blocks, 0)[:, :, None]


def _of_k(raw: Bytes, size: int) -> Floats:
    """Q4_K and Q5_K: `d * scale * integer - dmin * least` for 8 sub-blocks of 32."""
    blocks = _blocks(raw, size)
    scale, least = _k_scales(blocks[:, :, 4:16])
    if size == 144:
        qs = blocks[:, :, 16:].reshape(*blocks.shape[:2], 4, 32)
        integers = np.stack([qs & 15, qs >> 4], axis=3).reshape(*blocks.shape[:2], 8, 32)
    else:
        integers = _q5_k_integers(blocks)
    scale, least = scale * _half(blocks, 0)[:, :, None], least * _half(blocks, 2)[:, :, None]
    return scale[..., None] * integers - least[..., None]


def _of_m4(raw: Bytes, size: int) -> Floats:
    blocks = _blocks(raw, 2 + size // 2)
    nibbles = np.stack([blocks[:, :, 2:] >> 4, blocks[:, :, 2:] & 15], axis=-1).astype(np.float32)
    return (nibbles - 8) * _half(blocks, 0)[:, :, None, None]


def _of_q6_k(raw: Bytes) -> Floats:
    blocks = _blocks(raw, 210)
    scale = blocks[:, :, 192:208].view(np.int8).astype(np.float32) * _half(blocks, 208)[:, :, None]
    integers = _q6_k_integers(blocks).astype(np.float32).reshape(*blocks.shape[:2], 16, 16)
    return (integers - 32) * scale[..., None]


_DEQUANTISE: dict[str, Callable[[Bytes], Floats]] = {
    "F32": lambda raw: _plain(raw, "<f4"),
    "F16": lambda raw: _plain(raw, "<f2"),
    "BF16": _bf16,
    "Q4_0": lambda raw: _of_q4(raw, 2),
    "Q4_1": lambda raw: _of_q4(raw, 4),
    "Q5_0": lambda raw: _of_q5(raw, 2),
    "Q5_1": lambda raw: _of_q5(raw, 4),
    "Q8_0": _of_q8_0,
    "Q4_K": lambda raw: _of_k(raw, 144),
    "Q5_K": lambda raw: _of_k(raw, 176),
    "Q6_K": _of_q6_k,
    "M4_64": lambda raw: _of_m4(raw, 64),
    "M4_128": lambda raw: _of_m4(raw, 128),
}


def dequantise(raw: Bytes, form: str) -> Floats:
    """Rows of a GGUF tensor, uint8 [rows, row_bytes] -> float32 [rows, columns]."""
    with np.errstate(invalid="ignore", over="ignore"):  # a damaged scale gives inf or nan, which the caller refuses
        return _DEQUANTISE[form](raw).reshape(raw.shape[0], -1)


# --- GGUF -> MNN ----------------------------------------------------------------------------------------------------
def packing_of(form: str, columns: int, bits: int | None = None, block: int | None = None) -> Packing | None:
    """How a matrix of this type is carried over, in 4 or 8 bits when asked for; 4 bits in blocks of `block`, or of 32.

    Where rows are no multiple of `block`, it is as if it had not been asked for. None when they fit no block at all
    (plain floats only).
    """
    wanted = block if block and columns % block == 0 else 32
    own = _PACKINGS.get(form)
    if own is not None and (bits is None or (own.bits, own.block) == (bits, wanted)):
        return own
    if own is not None and bits == 8 and own.bits == 4:
        return own._replace(bits=8)  # every level of 4 bits is one of 8
    size = next((size for size in (wanted, 16, 8) if columns % size == 0), None)
    if size is None:
        return None
    return Packing(4, size, True, False, exact=False) if bits == 4 else Packing(8, size, False, False, exact=False)


_PACKINGS = {
    "Q4_0": Packing(4, 32, False, True),
    "Q4_1": Packing(4, 32, True, False),  # m + 8d needs more than float16's 11 bits
    "Q5_0": Packing(8, 32, False, True),
    "Q5_1": Packing(8, 32, True, False),
    "Q8_0": Packing(8, 32, False, True),
    "Q4_K": Packing(4, 32, True, False),
    "Q5_K": Packing(8, 32, True, False),
    "Q6_K": Packing(8, 16, False, False),  # d * scale is a product of two numbers, 18 bits
    "M4_64": Packing(4, 64, False, True),
    "M4_128": Packing(4, 128, False, True),
}


def _affine(scale: Floats, of_zero: Floats, centre: int) -> Floats:
    """Pairs (value of code 0, scale) for weights `of_zero + scale * integer` whose code is integer - centre."""
    return np.stack([of_zero + centre * scale, scale], axis=-1)


def _pack_q4(raw: Bytes, head: int) -> tuple[Bytes, Floats]:
    blocks = _blocks(raw, 16 + head)
    scale = _half(blocks, 0)
    return _pairs(blocks[:, :, head:]), _affine(scale, _half(blocks, 2), 8) if head == 4 else scale


def _pack_q5(raw: Bytes, head: int) -> tuple[Bytes, Floats]:
    blocks = _blocks(raw, 20 + head)
    scale = _half(blocks, 0)
    integers = _five_bits(blocks[:, :, head + 4 :], blocks[:, :, head : head + 4])
    return integers + np.uint8(112), _affine(scale, _half(blocks, 2), 16) if head == 4 else scale


def _pack_q8_0(raw: Bytes) -> tuple[Bytes, Floats]:
    blocks = _blocks(raw, 34)
    return blocks[:, :, 2:] ^ np.uint8(0x80), _half(blocks, 0)


def _pack_k(raw: Bytes, size: int) -> tuple[Bytes, Floats]:
    blocks = _blocks(raw, size)
    scale, least = _k_scales(blocks[:, :, 4:16])
    scale, least = scale * _half(blocks, 0)[:, :, None], least * _half(blocks, 2)[:, :, None]
    if size == 144:
        return _pairs(blocks[:, :, 16:].reshape(*blocks.shape[:2], 4, 32)), _affine(scale, -least, 8)
    return _q5_k_integers(blocks) + np.uint8(112), _affine(scale, -least, 16)


def _pack_m4(raw: Bytes, size: int) -> tuple[Bytes, Floats]:
    blocks = _blocks(raw, 2 + size // 2)
    return blocks[:, :, 2:], _half(blocks, 0)


def _pack_q6_k(raw: Bytes) -> tuple[Bytes, Floats]:
    blocks = _blocks(raw, 210)
    scale = blocks[:, :, 192:208].view(np.int8).astype(np.float32) * _half(blocks, 208)[:, :, None]
    return _q6_k_integers(blocks) + np.uint8(96), scale


_REPACK: dict[str, Callable[[Bytes], tuple[Bytes, Floats]]] = {
    "Q4_0": lambda raw: _pack_q4(raw, 2),
    "Q4_1": lambda raw: _pack_q4(raw, 4),
    "Q5_0": lambda raw: _pack_q5(raw, 2),
    "Q5_1": lambda raw: _pack_q5(raw, 4),
    "Q8_0": _pack_q8_0,
    "Q4_K": lambda raw: _pack_k(raw, 144),
    "Q5_K": lambda raw: _pack_k(raw, 176),
    "Q6_K": _pack_q6_k,
    "M4_64": lambda raw: _pack_m4(raw, 64),
    "M4_128": lambda raw: _pack_m4(raw, 128),
}


def repack(raw: Bytes, form: str, packing: Packing) -> tuple[Bytes, NDArray[Any]]:
    """Rows of a GGUF tensor -> MNN's bytes [rows, columns * bits / 8] and scales [rows, columns / block * alphas].

    The scales come in `packing.alpha_dtype` and may be inf or nan when the file is damaged.
    """
    rows = raw.shape[0]
    with np.errstate(invalid="ignore", over="ignore"):
        if packing.exact:
            packed, alphas = _REPACK[form](raw)
            if packing.bits > _PACKINGS[form].bits:
                packed = widened(packed)
        else:
            quantise = quantise4 if packing.bits == 4 else quantise8
            packed, alphas = quantise(dequantise(raw, form), packing.block)
    return packed.reshape(rows, -1), alphas.reshape(rows, -1).astype(packing.alpha_dtype)
