"""Random models, any shape, type and size: what is in them, and GGUF files of them. Imports `gguf_types`.

Blocks are random bytes with sane scales, so every bit of every layout is in use, and the weights have about the size
that keeps a network's activations near 1. Streams: a file of a gigabyte costs a few MiB of memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from assistant.model_store.gguf_types import FORMATS, BlockFormat

TYPE_NUMBER = {form.name: number for number, form in FORMATS.items()}
_SCALE = {"Q4_0": 0.2, "Q4_1": 0.2, "Q5_0": 0.1, "Q5_1": 0.1, "Q8_0": 0.012}
_CHUNK_ROWS = 4096


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are a model of a few hundred thousand weights whose rows fit every block."""

    architecture: str = "llama"
    layers: int = 2
    hidden: int = 256
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 0
    """0 = hidden / heads."""
    ffn: int = 512
    tied: bool = True
    bias: bool = False
    qk_norm: bool = False
    """Qwen3's norms of each head of q and k."""
    rope_freqs: bool = False
    weights: str = "Q4_0"
    """Type of all matrices."""
    head: str = ""
    """Type of the word table and the head; empty = `weights`."""
    context: int = 128
    extra: dict[str, Any] = {}
    """More metadata."""

    @property
    def head_size(self) -> int:
        return self.head_dim or self.hidden // self.heads


def _half(values: NDArray[Any]) -> NDArray[np.uint8]:
    return values.astype("<f2").view(np.uint8).reshape(*values.shape, 2)


def random_rows(kind: BlockFormat, rows: int, columns: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Random weights of about 1 / sqrt(columns), uint8 [rows, row_bytes]."""
    form, size = kind.name, 1 / np.sqrt(columns)
    if kind.weights == 1:
        values = rng.normal(0, size, (rows, columns)).astype("<f4")
        if form == "F32":
            return values.view(np.uint8)
        return values.astype("<f2").view(np.uint8) if form == "F16" else bf16(values)
    blocks = rng.integers(0, 256, (rows, columns // kind.weights, kind.bytes), dtype=np.uint8)
    scale = rng.uniform(0.5, 1.5, blocks.shape[:2]) * size
    if form == "Q6_K":
        blocks[:, :, 192:208] = rng.integers(-60, 60, blocks[:, :, 192:208].shape, dtype=np.int8).view(np.uint8)
        blocks[:, :, 208:] = _half(scale / 700)
    elif form in ("Q4_K", "Q5_K"):
        levels = 16 if form == "Q4_K" else 32
        blocks[:, :, 0:2] = _half(scale / (8 * levels))
        blocks[:, :, 2:4] = _half(scale / 16)
    else:
        blocks[:, :, 0:2] = _half(scale * _SCALE.get(form, _SCALE["Q4_0"]))
        if form in ("Q4_1", "Q5_1"):
            blocks[:, :, 2:4] = _half(-scale * rng.uniform(1, 2, scale.shape))
    return blocks.reshape(rows, -1)


def bf16(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    return (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8)


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def value(item: Any) -> bytes:
    """A metadata value with its type in front."""
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str | bytes):
        return struct.pack("<I", 8) + string(item)
    if all(isinstance(x, int) for x in item):
        return struct.pack("<IIQ", 9, 5, len(item)) + np.array(item, "<i4").tobytes()
    return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(string(x) for x in item)


class Tensor(msgspec.Struct, frozen=True):
    name: str
    form: str
    rows: int
    columns: int
    data: bytes | None = None
    """None = random."""


def write(path: Path, metadata: Mapping[str, Any], tensors: Iterable[Tensor], seed: int = 0) -> Path:
    """Streams the tensors to the file, aligned to 32 bytes."""
    rng, table, tensors = np.random.default_rng(seed), b"", list(tensors)
    at = 0
    for t in tensors:
        dims = [t.columns] if t.rows == 1 else [t.columns, t.rows]
        table += string(t.name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, TYPE_NUMBER[t.form], at)
        form = FORMATS[TYPE_NUMBER[t.form]]
        at += -(-t.rows * (t.columns // form.weights * form.bytes) // 32) * 32
    keys = b"".join(string(key) + value(item) for key, item in metadata.items())
    with path.open("wb") as file:
        file.write(struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata)) + keys + table)
        for t in tensors:
            file.write(bytes(-file.tell() % 32))
            if t.data is not None:
                file.write(t.data)
                continue
            kind = FORMATS[TYPE_NUMBER[t.form]]
            for first in range(0, t.rows, _CHUNK_ROWS):
                file.write(random_rows(kind, min(_CHUNK_ROWS, t.rows - first), t.columns, rng).tobytes())
        file.write(bytes(-file.tell() % 32))
    return path


def model_tensors(spec: ModelSpec, vocab: int) -> list[Tensor]:
    head, rng = spec.head or spec.weights, np.random.default_rng(1)
    q, kv = spec.heads * spec.head_size, spec.kv_heads * spec.head_size

    def vector(name: str, size: int, centre: float = 1.0) -> Tensor:
        return Tensor(name, "F32", 1, size, rng.normal(centre, 0.1, size).astype("<f4").tobytes())

    out = [Tensor("token_embd.weight", head, vocab, spec.hidden), vector("output_norm.weight", spec.hidden)]
    if not spec.tied:
        out.append(Tensor("output.weight", head, vocab, spec.hidden))
    if spec.rope_freqs:
        out.append(vector("rope_freqs.weight", spec.head_size // 2, 3.0))
    shapes = {
        "attn_q": (q, spec.hidden), "attn_k": (kv, spec.hidden), "attn_v": (kv, spec.hidden),
        "attn_output": (spec.hidden, q), "ffn_gate": (spec.ffn, spec.hidden),
        "ffn_up": (spec.ffn, spec.hidden), "ffn_down": (spec.hidden, spec.ffn),
    }  # fmt: skip
    for layer in range(spec.layers):
        out += [vector(f"blk.{layer}.{name}.weight", spec.hidden) for name in ("attn_norm", "ffn_norm")]
        out += [Tensor(f"blk.{layer}.{name}.weight", spec.weights, *shape) for name, shape in shapes.items()]
        if spec.qk_norm:
            out += [vector(f"blk.{layer}.{n}.weight", spec.head_size) for n in ("attn_q_norm", "attn_k_norm")]
        if spec.bias:
            out += [vector(f"blk.{layer}.{n}.bias", shapes[n][0], 0.0) for n in ("attn_q", "attn_k", "attn_v")]
    return out


def model_metadata(spec: ModelSpec, tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    arch = spec.architecture
    return {
        "general.architecture": arch,
        f"{arch}.block_count": spec.layers,
        f"{arch}.context_length": spec.context,
        f"{arch}.embedding_length": spec.hidden,
        f"{arch}.feed_forward_length": spec.ffn,
        f"{arch}.attention.head_count": spec.heads,
        f"{arch}.attention.head_count_kv": spec.kv_heads,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{arch}.rope.freq_base": 10000.0,
        **({f"{arch}.attention.{part}_length": spec.head_dim for part in ("key", "value")} if spec.head_dim else {}),
        **tokenizer,
        **spec.extra,
    }


def write_model(path: Path, spec: ModelSpec, tokenizer: Mapping[str, Any], seed: int = 0) -> Path:
    """`tokenizer`: its `tokenizer.ggml.*` keys."""
    vocab = len(tokenizer["tokenizer.ggml.tokens"])
    return write(path, model_metadata(spec, tokenizer), model_tensors(spec, vocab), seed)
