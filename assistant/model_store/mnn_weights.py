"""Writes `llm.mnn.weight`: matrices, norms and rotary tables, streamed from a GGUF file. Imports `quant_blocks`.

No header, no alignment: the graph holds the offset of each piece. A matrix is its header, its integers, its scales and
its bias; since all four sizes are known beforehand, integers and scales are written to their places as they come, and
the memory needed is that of one chunk of rows whatever the size of the matrix.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from assistant.errors import ModelDamaged
from assistant.model_store.gguf import TensorInfo
from assistant.model_store.llm_shape import LlmShape
from assistant.model_store.mnn_graph import MatrixAt, wide
from assistant.model_store.quant_blocks import Packing, dequantise, repack
from assistant.model_store.tensor_source import TensorSource

CHUNK = 2 << 20
"""Bytes of source per step."""


def _header(rows: int, columns: int, bits: int) -> bytes:
    """Number of dimensions, sizes, and the code book, which must be the plain ascending one."""
    sizes = struct.pack("<II" if wide(rows, columns) else "<HH", rows, columns)
    half = 1 << (bits - 1)
    codes = np.arange(-half, half, dtype=np.int8).tobytes()
    return b"\x02" + sizes + bytes([len(codes) & 0xFF]) + codes  # 256 codes are written as 0


def unpermute(rows: NDArray[np.uint8], head_dim: int) -> NDArray[np.uint8]:
    """Rows of whole heads from the interleaved rotation's order to the rotate-half order, [n, row_bytes] both.

    The inverse of `permute` in llama.cpp's `convert_hf_to_gguf.py`. Works on bytes, as blocks run along a row.
    """
    return rows.reshape(-1, head_dim // 2, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


class WeightWriter:
    """Appends to an open file. `moved(n)` is told after each chunk how many bytes of source it took."""

    def __init__(self, gguf: TensorSource, fd: int, moved: Callable[[int], None]) -> None:
        self._gguf = gguf
        self._fd = fd
        self._moved = moved
        self.size = 0

    def _write(self, data: bytes | memoryview, at: int) -> None:
        view = memoryview(data).cast("B")
        while view:
            done = os.pwrite(self._fd, view, at)
            view, at = view[done:], at + done

    def floats(self, values: NDArray[np.float32]) -> int:
        """Writes plain float32 values and returns their offset."""
        offset = self.size
        self._write(np.ascontiguousarray(values, "<f4").data, offset)
        self.size += values.nbytes
        return offset

    def vector(self, name: str) -> NDArray[np.float32]:
        """A tensor of one row as float32 [columns]. Raises `ModelDamaged` for values that are not finite."""
        tensor = self._gguf.tensors[name]
        values: NDArray[np.float32] = dequantise(self._gguf.read(tensor), tensor.format.name)[0]
        self._check(tensor, values)
        self._moved(tensor.nbytes)
        return values

    def rope_factors(self) -> NDArray[np.float32] | None:
        """What divides the rotary frequencies, [head_dim / 2]. Raises `ModelDamaged` when it cannot."""
        if "rope_freqs.weight" not in self._gguf.tensors:
            return None
        factors = self.vector("rope_freqs.weight")
        if (factors <= 0).any():
            raise ModelDamaged(f"{self._gguf.path}: rope_freqs.weight holds factors that are not positive")
        return factors

    def norm(self, name: str) -> int:
        """Gamma, then a beta of zeros, which MNN wants even where RMSNorm has none."""
        gamma = self.vector(name)
        return self.floats(np.concatenate([gamma, np.zeros_like(gamma)]))

    def matrix(
        self,
        tensor: TensorInfo,
        packing: Packing,
        *,
        first: int = 0,
        rows: int | None = None,
        head_dim: int = 0,
        bias: NDArray[np.float32] | None = None,
    ) -> MatrixAt:
        """Rows `first ..` of a tensor as one packed matrix; `head_dim` > 0 undoes the permutation of q and k."""
        count = tensor.rows if rows is None else rows
        header = _header(count, tensor.columns, packing.bits)
        row_packed = tensor.columns * packing.bits // 8
        row_alphas = tensor.columns // packing.block * packing.alphas * packing.alpha_dtype.itemsize
        at = MatrixAt(
            rows=count,
            columns=tensor.columns,
            packing=packing,
            offset=self.size,
            header=len(header),
            packed=len(header) + count * row_packed,
            alphas=count * row_alphas,
            bias=0 if bias is None else 4 * count,
        )
        self._write(header, at.offset)
        packed_at, alphas_at = at.offset + at.header, at.offset + at.packed
        for raw in self._chunks(tensor, first, count, head_dim):
            packed, alphas = repack(raw, tensor.format.name, packing)
            self._check(tensor, alphas)
            self._write(np.ascontiguousarray(packed).data, packed_at)
            self._write(np.ascontiguousarray(alphas).data, alphas_at)
            packed_at, alphas_at = packed_at + packed.nbytes, alphas_at + alphas.nbytes
            self._moved(raw.nbytes)
        self.size = at.offset + at.packed + at.alphas
        if bias is not None:
            self.floats(bias)
        return at

    def _chunks(self, tensor: TensorInfo, first: int, count: int, head_dim: int) -> Iterator[NDArray[np.uint8]]:
        step = max(1, CHUNK // tensor.row_bytes)
        if head_dim:
            step = max(head_dim, step - step % head_dim)
        for at in range(first, first + count, step):
            raw = self._gguf.read(tensor, at, min(step, first + count - at))
            yield unpermute(raw, head_dim) if head_dim else raw

    def _check(self, tensor: TensorInfo, values: NDArray[np.floating]) -> None:
        if not np.isfinite(values).all():
            raise ModelDamaged(f"{self._gguf.path}: {tensor.name} holds weights that are no numbers; fetch it again")


def rope_tables(shape: LlmShape, freq_factors: NDArray[np.float32] | None) -> tuple[NDArray[np.float32], ...]:
    """cos and sin of `position * base ** (-2 i / head_dim)`, float32 [max_position, head_dim / 2] each.

    RoFormer (Su et al. 2021), eq. 15; angles in float64. `freq_factors` [head_dim / 2] divides the frequencies (Llama
    3's long-context scaling), `rope_factor` the positions.
    """
    powers = np.arange(0, shape.head_dim, 2, dtype=np.float64) / shape.head_dim
    frequencies = shape.rope_base**-powers / shape.rope_factor
    if freq_factors is not None:
        frequencies = frequencies / freq_factors.astype(np.float64)
    angles = np.arange(shape.max_position, dtype=np.float64)[:, None] * frequencies
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
