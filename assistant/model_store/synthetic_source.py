"""A model of random weights that is made while it is read: a `TensorSource` without a file. Imports the `synthetic_*`.

The same rows always have the same bytes, however they are asked for, so a table that is read whole and in slices is one
table. Nothing is kept: a model of a gigabyte costs a few MiB of memory and no disk.
"""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from assistant.model_store.choices import Block
from assistant.model_store.gguf import TensorInfo
from assistant.model_store.gguf_types import FORMATS, WIDE_BLOCKS, BlockFormat
from assistant.model_store.llm_shape import LlmShape
from assistant.model_store.synthetic_gguf import TYPE_NUMBER, Tensor, model_metadata, model_tensors, random_rows
from assistant.model_store.synthetic_shapes import BLOCK, WEIGHTS, pre_tokenizer_of, spec_of
from assistant.model_store.synthetic_vocabulary import tokenizer_keys

_GROUP_BYTES = 256 << 10
"""About so many bytes of rows come from one seed."""


class SyntheticSource:
    """Random weights of a shape, in 4-bit blocks of `block` where the rows are a multiple of it, of 32 elsewhere."""

    def __init__(self, name: str, shape: LlmShape, block: Block = BLOCK) -> None:
        spec = spec_of(name, shape)
        self._block = block
        self.path = Path(f"random weights of {name}")
        metadata = model_metadata(spec, tokenizer_keys(shape.vocab, pre_tokenizer_of(name)))
        self.metadata = {key: v.encode() if isinstance(v, str) else v for key, v in metadata.items()}
        tensors = model_tensors(spec, shape.vocab)
        self._vectors = {t.name: np.frombuffer(t.data, np.uint8) for t in tensors if t.data is not None}
        self.tensors = {t.name: TensorInfo(t.name, self._format(t), t.columns, t.rows, 0) for t in tensors}

    def _format(self, tensor: Tensor) -> BlockFormat:
        if tensor.form == WEIGHTS and self._block in WIDE_BLOCKS and tensor.columns % self._block == 0:
            return WIDE_BLOCKS[self._block]
        return FORMATS[TYPE_NUMBER[tensor.form]]

    @property
    def sha256(self) -> str:
        """Stands for the digest that a file would have: equal for equal weights."""
        return hashlib.sha256(f"{self.path} {self._block} 1".encode()).hexdigest()

    def read(self, tensor: TensorInfo, first: int = 0, rows: int | None = None) -> NDArray[np.uint8]:
        """Raw blocks of some rows, uint8 [rows, row_bytes]."""
        end = tensor.rows if rows is None else first + rows
        if tensor.name in self._vectors:
            return self._vectors[tensor.name].reshape(tensor.rows, -1)[first:end]
        size = max(1, _GROUP_BYTES // tensor.row_bytes)
        out = np.empty((end - first, tensor.row_bytes), np.uint8)
        for group in range(first // size, -(-end // size)):
            begin = group * size
            low, high = max(first, begin), min(end, begin + size)
            out[low - first : high - first] = self._group(tensor, group, size)[low - begin : high - begin]
        return out

    def _group(self, tensor: TensorInfo, group: int, size: int) -> NDArray[np.uint8]:
        rng = np.random.Generator(np.random.SFC64([zlib.crc32(tensor.name.encode()), group]))
        return random_rows(tensor.format, size, tensor.columns, rng)
