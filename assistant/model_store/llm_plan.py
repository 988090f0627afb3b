"""Everything that a conversion decides before it writes: shape, tokenizer, packing of each matrix, slices of the head.

Imports `llm_shape`, `llm_tokenizer` and `quant_blocks`; reads the header of a GGUF file and writes nothing.
"""

from __future__ import annotations

import msgspec

from assistant.errors import ModelUnsupported
from assistant.model_store.choices import OWN, Bits, Choices
from assistant.model_store.gguf import TensorInfo
from assistant.model_store.llm_shape import LlmShape, read_shape
from assistant.model_store.llm_tokenizer import LlmTokenizer, read_tokenizer
from assistant.model_store.quant_blocks import Packing, packing_of
from assistant.model_store.tensor_source import TensorSource

SLICE_BYTES = 8 << 20
"""Integers in one slice of a head that is split."""
WHOLE_TIED_BYTES = 48 << 20
"""A tied head up to this size stays whole; its load peaks at about 150 MiB."""
MAX_SLICES = 16


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    shape: LlmShape
    tokenizer: LlmTokenizer
    packings: dict[str, Packing]
    """By tensor name without `.weight`."""
    slices: int
    requantised: list[str]
    """`name (type to n bits)` of each tensor whose weights will not be exactly the source's."""
    unblocked: list[str] = []
    """Tensors whose rows are no multiple of the chosen block."""
    bits: Bits | None = None
    """What every matrix is brought to; None = the source's own bits."""
    emergency_skip: list[int] = []
    """Layers that the emergency graph leaves out; empty = there is none."""

    @property
    def head(self) -> str:
        return "token_embd" if self.shape.tied else "output"


def head_slices_for(packed_bytes: int, tied: bool) -> int:
    """Into how many slices of the vocabulary a head of so many bytes is split.

    MNN re-orders one matrix at a time while it loads, and holds more than twice its size meanwhile, so the largest one
    makes the peak: usually the head (135 M parameters, 28 MB tied head: 92 MiB whole, 57 in 2 slices, 39 in 4). Slices
    of an untied head cost nothing. A tied one that is split lies on the disk twice, as the word table must be in one
    piece: worth it only where the peak would rival the memory of a small machine.
    """
    if tied and packed_bytes <= WHOLE_TIED_BYTES:
        return 1
    return min(MAX_SLICES, -(-packed_bytes // SLICE_BYTES))


def make_plan(gguf: TensorSource, head_slices: int | None, choices: Choices = OWN) -> Plan:
    """Raises `ModelUnsupported`, `ModelDamaged`; `ValueError` for layers that cannot be left out."""
    shape, tokenizer = read_shape(gguf), read_tokenizer(gguf)
    packings: dict[str, Packing] = {}
    requantised: list[str] = []
    unblocked: list[str] = []
    for tensor in gguf.tensors.values():
        name = tensor.name.removesuffix(".weight")
        if tensor.rows == 1 or name.endswith(".attn_rot_embd"):
            continue
        packing = packing_of(tensor.format.name, tensor.columns, choices.bits, choices.block)
        if packing is None:
            raise ModelUnsupported(
                f"{gguf.path}: {tensor.name} has rows of {tensor.columns} weights, not a multiple of 8"
            )
        packings[name] = packing
        if choices.block is not None and packing.block != choices.block:
            unblocked.append(tensor.name)
        if not packing.exact:
            blocks = f" in blocks of {packing.block}" if choices.block else ""
            requantised.append(f"{tensor.name} ({tensor.format.name} to {packing.bits} bits{blocks})")
    bits = packings["token_embd" if shape.tied else "output"].bits
    slices = head_slices or head_slices_for(shape.vocab * shape.hidden * bits // 8, shape.tied)
    slices = min(slices, max(1, shape.vocab // 16))
    return Plan(
        shape=shape,
        tokenizer=tokenizer,
        packings=packings,
        slices=slices,
        requantised=requantised,
        unblocked=unblocked,
        bits=choices.bits,
        emergency_skip=choices.skipped(shape.layers),
    )


def _stored_bytes(tensor: TensorInfo, packing: Packing) -> int:
    scales = tensor.columns // packing.block * packing.alphas * packing.alpha_dtype.itemsize
    return tensor.rows * (tensor.columns * packing.bits // 8 + scales)


def sizes(gguf: TensorSource, plan: Plan) -> tuple[int, int]:
    """Bytes of source that will be read, bytes that will be written."""
    twice = [plan.head] if plan.shape.tied and plan.slices > 1 else []
    matrices = [(gguf.tensors[f"{name}.weight"], plan.packings[name]) for name in [*plan.packings, *twice]]
    vectors = sum(t.nbytes for t in gguf.tensors.values() if t.rows == 1)
    tables = 4 * plan.shape.max_position * plan.shape.head_dim
    source = sum(tensor.nbytes for tensor, _ in matrices) + vectors
    return source, sum(_stored_bytes(*pair) for pair in matrices) + 2 * vectors + tables + (32 << 20)
