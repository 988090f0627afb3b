"""Puts the parts of a model into `llm.mnn.weight` in order, and says in `llm_config.json` where they lie.

Imports `llm_plan`, `mnn_weights` and `vocabulary`. Decides nothing: the plan has.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from assistant.model_store import vocabulary
from assistant.model_store.llm_plan import Plan
from assistant.model_store.mnn_graph import GraphParts, MatrixAt
from assistant.model_store.mnn_weights import WeightWriter, rope_tables, unpermute
from assistant.model_store.tensor_source import TensorSource


def _write_head(writer: WeightWriter, gguf: TensorSource, plan: Plan, whole: MatrixAt | None) -> list[MatrixAt]:
    if whole is not None and plan.slices == 1:
        return [whole]
    tensor, packing = gguf.tensors[f"{plan.head}.weight"], plan.packings[plan.head]
    # Multiples of 16 rows keep each slice clear of MNN's packing of output channels.
    step = -(-tensor.rows // (16 * plan.slices)) * 16
    starts = range(0, tensor.rows, step)
    return [writer.matrix(tensor, packing, first=at, rows=min(step, tensor.rows - at)) for at in starts]


def _write_layer(writer: WeightWriter, gguf: TensorSource, plan: Plan, layer: int) -> dict[str, MatrixAt]:
    shape, written = plan.shape, {}
    for name in shape.matrices(layer):
        turn = shape.head_dim if shape.permuted and name.endswith(("attn_q", "attn_k")) else 0
        bias = None
        if f"{name}.bias" in gguf.tensors:
            bias = writer.vector(f"{name}.bias")
            if turn:
                bias = unpermute(bias.view(np.uint8).reshape(-1, 4), turn).view(np.float32).reshape(-1)
        tensor = gguf.tensors[f"{name}.weight"]
        written[name] = writer.matrix(tensor, plan.packings[name], head_dim=turn, bias=bias)
    return written


def write_weights(
    path: Path, gguf: TensorSource, plan: Plan, moved: Callable[[int], None]
) -> tuple[GraphParts, MatrixAt]:
    """Returns where everything lies, and the word table."""
    shape = plan.shape
    with path.open("xb", buffering=0) as file:
        writer = WeightWriter(gguf, file.fileno(), moved)
        cos, sin = (writer.floats(table) for table in rope_tables(shape, writer.rope_factors()))
        words = writer.matrix(gguf.tensors["token_embd.weight"], plan.packings["token_embd"])
        head = _write_head(writer, gguf, plan, words if shape.tied else None)
        norms = {"output_norm": writer.norm("output_norm.weight")}
        matrices: dict[str, MatrixAt] = {}
        head_norms: dict[str, list[float]] = {}
        for layer in range(shape.layers):
            for kind in ("attn_norm", "ffn_norm"):
                norms[f"blk.{layer}.{kind}"] = writer.norm(f"blk.{layer}.{kind}.weight")
            for name in (f"blk.{layer}.{kind}" for kind in shape.head_norms):
                head_norms[name] = writer.vector(f"{name}.weight").tolist()
            matrices |= _write_layer(writer, gguf, plan, layer)
        os.fsync(file.fileno())
    parts = GraphParts(matrices=matrices, norms=norms, head_norms=head_norms, rope_cos=cos, rope_sin=sin, head=head)
    return parts, words


def word_table(words: MatrixAt) -> dict[str, Any]:
    """MNN's `tie_embeddings`: where the rows of the word table lie. In use for untied models as well."""
    return {
        "weight_offset": words.offset + words.header,
        "alpha_offset": words.offset + words.packed,
        "alpha_size": words.alphas,
        "quant_bit": words.packing.bits,
        "quant_block": words.packing.block,
        "alpha_dtype": "fp16" if words.packing.half else "fp32",
    }


def llm_config(plan: Plan, words: MatrixAt, facts: vocabulary.LlmFacts) -> dict[str, Any]:
    tokenizer = plan.tokenizer
    eos, bos = (tokenizer.text_of(i) for i in (tokenizer.eos_id, tokenizer.bos_id))
    return {
        "model_type": plan.shape.architecture,
        "hidden_size": plan.shape.hidden,
        "layer_nums": plan.shape.layers,
        "attention_mask": "float",
        "attention_type": "full",
        "is_mrope": False,
        "max_position_embeddings": plan.shape.max_position,
        "tie_embeddings": word_table(words),
        "jinja": {"chat_template": tokenizer.chat_template, "eos": eos, "bos": bos},
        "assistant": msgspec.to_builtins(facts),
    }
