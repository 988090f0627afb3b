"""The numerical reference: a GGUF model's forward pass in numpy, float32, on dequantised weights. Imports `gguf`.

Slow and plain on purpose, and independent of the converter where that matters: it takes llama's q and k as the file
stores them, with the interleaved rotation, instead of reordering them. Used by tests and benchmarks alone.

Formulas: RMSNorm, Zhang & Sennrich 2019, eq. 4. RoPE, Su et al. 2021, eq. 34 (interleaved pairs), or GPT-NeoX's
rotate-half variant. Grouped-query attention, Ainslie et al. 2023. SwiGLU, Shazeer 2020, eq. 6. Norms of q's and k's
heads (Qwen3): Henry et al. 2020, with RMSNorm.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from assistant.closing import Closing
from assistant.model_store.gguf import GgufFile
from assistant.model_store.llm_shape import read_shape
from assistant.model_store.quant_blocks import dequantise

Floats = NDArray[np.float32]


def _softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return out


class NumpyLlm(Closing):
    """Holds all weights as float32: four bytes per parameter. One conversation at a time."""

    def __init__(self, gguf: Path, skip: Collection[int] = ()) -> None:
        """`skip`: layers to leave out. Raises `ModelMissing`, `ModelDamaged`, `ModelUnsupported`."""
        self._file = GgufFile(gguf)
        self.shape = read_shape(self._file)
        self._layers = [layer for layer in range(self.shape.layers) if layer not in skip]
        self._weights: dict[str, Floats] = {}
        self._keys: list[Floats] = []
        self._values: list[Floats] = []
        self.reset()
        powers = np.arange(0, self.shape.head_dim, 2, dtype=np.float64) / self.shape.head_dim
        self._frequencies = self.shape.rope_base**-powers / self.shape.rope_factor
        if "rope_freqs.weight" in self._file.tensors:
            self._frequencies /= self._weight("rope_freqs.weight")[0]

    @property
    def position(self) -> int:
        """Tokens in the key-value cache."""
        return len(self._keys[self._layers[0]])

    def reset(self) -> None:
        """Forgets the conversation."""
        empty = np.zeros((0, self.shape.kv_heads, self.shape.head_dim), np.float32)
        self._keys = [empty] * self.shape.layers
        self._values = [empty] * self.shape.layers

    def forward(self, ids: list[int]) -> Floats:
        """Appends tokens to the conversation; logits after each of them, float32 [len(ids), vocab]."""
        rotation = self._rotation(len(ids))
        hidden = self._words(ids)
        for layer in self._layers:
            pre = f"blk.{layer}"
            hidden = hidden + self._attention(layer, self._norm(hidden, f"{pre}.attn_norm"), rotation)
            normed = self._norm(hidden, f"{pre}.ffn_norm")
            gate = self._linear(normed, f"{pre}.ffn_gate")
            with np.errstate(over="ignore"):  # exp of a large negative gate: silu is 0 there
                silu = gate / (1 + np.exp(-gate))
            hidden = hidden + self._linear(silu * self._linear(normed, f"{pre}.ffn_up"), f"{pre}.ffn_down")
        head = "token_embd" if self.shape.tied else "output"
        return self._linear(self._norm(hidden, "output_norm"), head)

    def _attention(self, layer: int, normed: Floats, rotation: tuple[Floats, Floats]) -> Floats:
        shape, pre, count = self.shape, f"blk.{layer}", len(normed)
        q = self._linear(normed, f"{pre}.attn_q").reshape(count, shape.heads, shape.head_dim)
        k = self._linear(normed, f"{pre}.attn_k").reshape(count, shape.kv_heads, shape.head_dim)
        if shape.head_norms:
            q, k = self._norm(q, f"{pre}.attn_q_norm"), self._norm(k, f"{pre}.attn_k_norm")
        v = self._linear(normed, f"{pre}.attn_v").reshape(count, shape.kv_heads, shape.head_dim)
        self._keys[layer] = np.concatenate([self._keys[layer], self._rotate(k, *rotation)])
        self._values[layer] = np.concatenate([self._values[layer], v])
        groups = shape.heads // shape.kv_heads
        keys, values = self._keys[layer].repeat(groups, axis=1), self._values[layer].repeat(groups, axis=1)
        scores = np.einsum("qhd,khd->hqk", self._rotate(q, *rotation), keys) / np.float32(np.sqrt(shape.head_dim))
        before = len(keys) - count
        future = np.arange(len(keys))[None, :] > np.arange(before, before + count)[:, None]
        scores[:, future] = -np.inf
        mixed = np.einsum("hqk,khd->qhd", _softmax(scores), values).reshape(count, shape.heads * shape.head_dim)
        return self._linear(mixed, f"{pre}.attn_output")

    def _rotation(self, count: int) -> tuple[Floats, Floats]:
        """cos and sin of the next positions, [count, 1, head_dim / 2]."""
        positions = np.arange(self.position, self.position + count, dtype=np.float64)
        angles = positions[:, None, None] * self._frequencies
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def _rotate(self, x: Floats, cos: Floats, sin: Floats) -> Floats:
        """[count, heads, head_dim]: pairs (2i, 2i + 1) for llama's order of rows, (i, i + head_dim / 2) for others."""
        out = np.empty_like(x)
        half = self.shape.head_dim // 2
        first, second = (
            (np.s_[..., 0::2], np.s_[..., 1::2]) if self.shape.permuted else (np.s_[..., :half], np.s_[..., half:])
        )
        out[first] = x[first] * cos - x[second] * sin
        out[second] = x[first] * sin + x[second] * cos
        return out

    def _norm(self, x: Floats, name: str) -> Floats:
        scale = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(self.shape.norm_epsilon))
        out: Floats = x * scale * self._weight(f"{name}.weight")[0]
        return out

    def _linear(self, x: Floats, name: str) -> Floats:
        out: Floats = x @ self._weight(f"{name}.weight").T
        if f"{name}.bias" in self._file.tensors:
            out = out + self._weight(f"{name}.bias")[0]
        return out

    def _words(self, ids: list[int]) -> Floats:
        tensor = self._file.tensors["token_embd.weight"]
        rows = [dequantise(self._file.read(tensor, token, 1), tensor.format.name) for token in ids]
        return np.concatenate(rows)

    def _weight(self, name: str) -> Floats:
        if name not in self._weights:
            tensor = self._file.tensors[name]
            self._weights[name] = dequantise(self._file.read(tensor), tensor.format.name)
        return self._weights[name]

    def close(self) -> None:
        self._file.close()
