"""What a GGUF file of the llama or qwen family is: its shape, and that its tensors are what that shape demands.

Imports `errors` and `tensor_source`. Everything that the converter cannot do is refused here, before a byte is written.
Key and tensor names: the GGUF specification and llama.cpp's `gguf-py/gguf/constants.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from assistant.errors import ModelDamaged, ModelUnsupported
from assistant.model_store.gguf import StringArray, TensorInfo
from assistant.model_store.tensor_source import TensorSource

ARCHITECTURES = ("llama", "qwen2", "qwen3")
MAX_POSITIONS = 8192
"""Positions in the rotary tables: 2 MiB for heads of 64. Eight times the context that a 2 GB machine affords."""
_LIMITS = {"layers": 512, "hidden": 1 << 16, "heads": 1024, "kv_heads": 1024, "head_dim": 1024, "ffn": 1 << 18}


class LlmShape(msgspec.Struct, frozen=True, kw_only=True):
    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    max_position: int
    """Rows of the rotary tables: the model's context, at most `MAX_POSITIONS`."""
    tied: bool
    """The word table is also the head."""
    norm_epsilon: float
    rope_base: float
    rope_factor: float
    """Linear position scaling; 1 = none."""

    @property
    def permuted(self) -> bool:
        """llama files keep the rows of q and k in the order of the interleaved rotation; qwen files do not."""
        return self.architecture == "llama"

    @property
    def head_norms(self) -> tuple[str, ...]:
        """Qwen3 normalises each head of q and of k before the rotation."""
        return ("attn_q_norm", "attn_k_norm") if self.architecture == "qwen3" else ()

    def summary(self) -> dict[str, int | bool]:
        keys = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "max_position", "tied")
        return {key: getattr(self, key) for key in keys}

    def matrices(self, layer: int) -> dict[str, tuple[int, int]]:
        """Tensor name without `.weight` -> (rows, columns)."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = {
            "attn_q": (q, self.hidden),
            "attn_k": (kv, self.hidden),
            "attn_v": (kv, self.hidden),
            "attn_output": (self.hidden, q),
            "ffn_gate": (self.ffn, self.hidden),
            "ffn_up": (self.ffn, self.hidden),
            "ffn_down": (self.hidden, self.ffn),
        }
        return {f"blk.{layer}.{name}": shape for name, shape in shapes.items()}


class _Keys:
    """Metadata of one architecture, checked for type."""

    def __init__(self, gguf: TensorSource, architecture: str) -> None:
        self._gguf = gguf
        self._prefix = architecture

    def get(self, key: str, default: Any = None) -> Any:
        return self._gguf.metadata.get(f"{self._prefix}.{key}", default)

    def damaged(self, key: str, what: str) -> ModelDamaged:
        return ModelDamaged(f"{self._gguf.path}: {self._prefix}.{key} {what}")

    def whole(self, key: str, most: int, default: int | None = None) -> int:
        value = self.get(key, default)
        if value is None:
            raise self.damaged(key, "is missing")
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelUnsupported(f"{self._gguf.path}: {self._prefix}.{key} is not one number for all layers")
        if not 1 <= value <= most:
            raise self.damaged(key, f"is {value}")
        return value

    def real(self, key: str, default: float, low: float, high: float) -> float:
        value = self.get(key, default)
        if not isinstance(value, int | float) or not low <= value <= high:
            raise self.damaged(key, f"is {value!r}")
        return float(value)

    def refuse(self, key: str, allowed: object) -> None:
        value = self.get(key)
        if value is not None and value != allowed:
            raise ModelUnsupported(
                f"{self._gguf.path}: {self._prefix}.{key} is {value!r}; only {allowed!r} can be converted"
            )


def _rope_factor(keys: _Keys) -> float:
    kind = keys.get("rope.scaling.type", b"none")
    if kind == b"linear":
        return keys.real("rope.scaling.factor", 1.0, 1.0, 1024.0)
    keys.refuse("rope.scaling.type", b"none")
    return keys.real("rope.scale_linear", 1.0, 1.0, 1024.0)


def read_shape(gguf: TensorSource) -> LlmShape:
    """Raises `ModelUnsupported` for another architecture or a variant of it, `ModelDamaged` for what makes no sense."""
    name = gguf.metadata.get("general.architecture", b"")
    architecture = name.decode("utf-8", "replace") if isinstance(name, bytes) else repr(name)
    if architecture not in ARCHITECTURES:
        raise ModelUnsupported(
            f"{gguf.path}: the architecture is {architecture[:40]!r}; {', '.join(ARCHITECTURES)} can be converted"
        )
    keys = _Keys(gguf, architecture)
    heads = keys.whole("attention.head_count", _LIMITS["heads"])
    hidden = keys.whole("embedding_length", _LIMITS["hidden"])
    head_dim = keys.whole("attention.key_length", _LIMITS["head_dim"], max(1, hidden // heads))
    tokens = gguf.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, StringArray) or not len(tokens):
        raise ModelDamaged(f"{gguf.path}: it has no vocabulary (tokenizer.ggml.tokens)")
    for key, allowed in {
        "attention.value_length": head_dim,
        "rope.dimension_count": head_dim,
        "expert_count": 0,
        "attention.sliding_window": 0,
        "logit_scale": 1.0,
    }.items():
        keys.refuse(key, allowed)
    shape = LlmShape(
        architecture=architecture,
        layers=keys.whole("block_count", _LIMITS["layers"]),
        hidden=hidden,
        heads=heads,
        kv_heads=keys.whole("attention.head_count_kv", _LIMITS["kv_heads"], heads),
        head_dim=head_dim,
        ffn=keys.whole("feed_forward_length", _LIMITS["ffn"]),
        vocab=len(tokens),
        max_position=min(keys.whole("context_length", 1 << 31, 2048), MAX_POSITIONS),
        tied="output.weight" not in gguf.tensors,
        norm_epsilon=keys.real("attention.layer_norm_rms_epsilon", 1e-5, 0.0, 1.0),
        rope_base=keys.real("rope.freq_base", 10000.0, 1.0, 1e12),
        rope_factor=_rope_factor(keys),
    )
    if shape.heads % shape.kv_heads or shape.head_dim % 2:
        raise ModelDamaged(f"{gguf.path}: {heads} heads of {head_dim} on {shape.kv_heads} key-value heads cannot be")
    if shape.head_dim % 8 or shape.hidden % 8 or shape.ffn % 8:
        raise ModelUnsupported(f"{gguf.path}: head, hidden and feed-forward sizes must be multiples of 8")
    _check_tensors(gguf, shape)
    return shape


def _check_tensors(gguf: TensorSource, shape: LlmShape) -> None:
    """Every tensor that the graph needs is there in its size, and none that the graph would leave out."""
    wanted = {"token_embd.weight": (shape.vocab, shape.hidden), "output_norm.weight": (1, shape.hidden)}
    optional = {"output.weight": (shape.vocab, shape.hidden), "rope_freqs.weight": (1, shape.head_dim // 2)}
    for layer in range(shape.layers):
        for name in ("attn_norm", "ffn_norm"):
            wanted[f"blk.{layer}.{name}.weight"] = (1, shape.hidden)
        for name in shape.head_norms:
            wanted[f"blk.{layer}.{name}.weight"] = (1, shape.head_dim)
        for name, (rows, columns) in shape.matrices(layer).items():
            wanted[f"{name}.weight"] = (rows, columns)
            if "attn" in name:
                optional[f"{name}.bias"] = (1, rows)
    for name, size in {**wanted, **optional}.items():
        tensor = gguf.tensors.get(name)
        if tensor is None and name in wanted:
            raise ModelDamaged(f"{gguf.path}: the tensor {name} is missing")
        if tensor is not None and (tensor.rows, tensor.columns) != size:
            raise ModelDamaged(f"{gguf.path}: {name} is {tensor.rows} x {tensor.columns}, not {size[0]} x {size[1]}")
    _check_kinds(gguf, {**wanted, **optional})


def _check_kinds(gguf: TensorSource, known: dict[str, tuple[int, int]]) -> None:
    for name, tensor in gguf.tensors.items():
        if name not in known and not name.endswith(".attn_rot_embd.weight"):
            raise ModelUnsupported(
                f"{gguf.path}: the tensor {name[:80]!r} is none that the converter knows for this architecture"
            )
        if _is_vector(tensor) and tensor.format.weights > 1:
            raise ModelUnsupported(f"{gguf.path}: {name[:80]} is a quantised vector")


def _is_vector(tensor: TensorInfo) -> bool:
    return tensor.rows == 1
