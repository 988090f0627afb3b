"""The decoder as MNN's graph in JSON: names, shapes and where each weight lies. Imports `llm_shape` and `quant_blocks`.

Knows nothing of files: `MatrixAt` and plain integers say where in `llm.mnn.weight` a thing begins. The form is the one
that MNN's runtime fuses its own exports into: activations in NC4HW4 with one row per token, a residual addition inside
each normalisation, rotate-half RoPE on whole q and k, an attention operator with its own key-value cache.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from assistant.model_store.llm_shape import LlmShape
from assistant.model_store.quant_blocks import Packing

Json = dict[str, Any]
_END = 1 << 30
"""As the end of a slice: everything that follows."""


class MatrixAt(msgspec.Struct, frozen=True, kw_only=True):
    """A packed matrix inside `llm.mnn.weight`."""

    rows: int
    columns: int
    packing: Packing
    offset: int
    header: int
    packed: int
    """Bytes of header and integers."""
    alphas: int
    """Bytes of scales."""
    bias: int
    """Bytes of bias; 0 = none."""


class GraphParts(msgspec.Struct, frozen=True, kw_only=True):
    """Where everything lies that the graph refers to."""

    matrices: dict[str, MatrixAt]
    """By GGUF name without `.weight`."""
    norms: dict[str, int]
    """Offsets of gamma and beta, float32 [2, hidden]."""
    head_norms: dict[str, list[float]] = {}
    """Gamma of the norms of q's and k's heads, [head_dim]: these lie in the graph itself, as MNN reads them there."""
    rope_cos: int
    rope_sin: int
    head: list[MatrixAt]
    """The head in slices of the vocabulary, in order."""


class _Graph:
    """Collects operators; tensors are known by name and become indices."""

    def __init__(self) -> None:
        self.ops: list[Json] = []
        self.names: list[str] = []
        self._index: dict[str, int] = {}

    def tensor(self, name: str) -> int:
        if name not in self._index:
            self._index[name] = len(self.names)
            self.names.append(name)
        return self._index[name]

    def add(
        self, kind: str, inputs: list[str], outputs: list[str], main_type: str, main: Json, layout: str = "NHWC"
    ) -> str:
        self.ops.append(
            {
                "name": outputs[0],
                "type": kind,
                "inputIndexes": [self.tensor(name) for name in inputs],
                "outputIndexes": [self.tensor(name) for name in outputs],
                "main_type": main_type,
                "main": main,
                "defaultDimentionFormat": layout,
            }
        )
        return outputs[0]

    def input(self, name: str, dims: list[int], dtype: str) -> str:
        return self.add("Input", [], [name], "Input", {"dims": dims, "dtype": dtype, "dformat": "NCHW"})

    def integers(self, name: str, dims: list[int], values: list[int]) -> str:
        blob = {"dims": dims, "dataFormat": "NCHW", "dataType": "DT_INT32", "int32s": values}
        return self.add("Const", [], [name], "Blob", blob)

    def table(self, name: str, dims: list[int], offset: int) -> str:
        size = 4 * dims[0] * dims[1]
        blob = {"dims": dims, "dataFormat": "NCHW", "dataType": "DT_FLOAT", "external": [offset, size]}
        return self.add("Const", [], [name], "Blob", blob)

    def reshape(self, source: str, name: str, dims: list[int], layout: str = "NCHW") -> str:
        return self.add("Reshape", [source], [name], "Reshape", {"dims": dims, "dimType": "NCHW"}, layout)

    def convert(self, source: str, name: str, before: str, after: str, layout: str) -> str:
        main = {"source": before, "dest": after}
        return self.add("ConvertTensor", [source], [name], "TensorConvertInfo", main, layout)

    def binary(self, kind: str, first: str, second: str, name: str, dtype: str, layout: str) -> str:
        main = {"opType": kind, "T": dtype, "activationType": 0}
        return self.add("BinaryOp", [first, second], [name], "BinaryOp", main, layout)

    def norm(self, inputs: list[str], outputs: list[str], shape: LlmShape, offset: int) -> str:
        size = 4 * shape.hidden
        main = {
            "axis": [-1],
            "epsilon": shape.norm_epsilon,
            "group": 1,
            "external": [offset, size, size],
            "useRMSNorm": True,
        }
        return self.add("LayerNorm", inputs, outputs, "LayerNorm", main, "NC4HW4")

    def linear(self, source: str, name: str, at: MatrixAt) -> str:
        main = {
            "common": _common(at),
            "quanParameter": _quantisation(at),
            "external": [at.offset, at.packed, at.alphas, at.bias, 0],
        }
        return self.add("Convolution", [source], [name], "Convolution2D", main)


def _common(at: MatrixAt) -> Json:
    ones = dict.fromkeys(("kernelX", "kernelY", "strideX", "strideY", "dilateX", "dilateY", "group"), 1)
    flags = dict.fromkeys(("relu", "relu6", "hasOutputShape"), False)
    return {**ones, "padX": 0, "padY": 0, "padMode": "CAFFE", "inputCount": at.columns, "outputCount": at.rows, **flags}


def _quantisation(at: MatrixAt) -> Json:
    packing = at.packing
    return {
        "type": 1,
        "useInt32": False,
        "quantScale": 1.0,
        "scaleIn": 0.0,
        "scaleOut": 0.0,
        "aMaxOrBits": packing.bits,
        "aMin": int(packing.asymmetric),
        "readType": at.rows * (at.columns // packing.block) if packing.asymmetric else 0,
        "has_scaleInt": False,
        "shapeInt32": wide(at.rows, at.columns),
        "weightSize": 0,
        "scaleStorage": "FP16" if packing.half else "FP32",
    }


def wide(rows: int, columns: int) -> bool:
    """Whether the header of a matrix holds its sizes as int32 instead of uint16."""
    return max(rows, columns) > 0xFFFF


def build(shape: LlmShape, parts: GraphParts, skip: Collection[int] = ()) -> Json:
    """The whole graph, or without the layers `skip`; numbers are plain Python ones, as the JSON reader checks no types.

    What is left keeps its names, its places in the weight file and its `layer_index`, so that MNN can lay one graph
    over the loaded weights of the other (`create_lora`), which finds them by the operators' names.
    """
    graph = _Graph()
    hidden = _inputs(graph, shape)
    _rope_tables(graph, shape, parts)
    delta = ""
    for layer in range(shape.layers):
        if layer not in skip:
            hidden, delta = _layer(graph, shape, parts, layer, hidden, delta)
    _head(graph, shape, parts, graph.binary("ADD", hidden, delta, "hidden_last", "DT_FLOAT", "NC4HW4"))
    return {
        "bizCode": "LLM",
        "extraInfo": {"version": "3.6.1"},
        "oplists": graph.ops,
        "outputName": ["logits"],
        "preferForwardType": "CPU",
        "sourceType": "ONNX",
        "tensorName": graph.names,
        "tensorNumber": len(graph.names),
        "usage": "INFERENCE",
    }


def _inputs(graph: _Graph, shape: LlmShape) -> str:
    graph.input("input_ids", [1, 1, shape.hidden], "DT_FLOAT")  # rows of the word table, in spite of the name
    graph.input("attention_mask", [1, 1, -1, -1], "DT_FLOAT")
    graph.input("position_ids", [1, -1], "DT_INT32")
    graph.input("logits_index", [1], "DT_INT32")
    graph.reshape("input_ids", "rows_in", [-1, shape.hidden, 1, 1])
    return graph.convert("rows_in", "hidden_0", "NCHW", "NC4HW4", "NCHW")


def _rope_tables(graph: _Graph, shape: LlmShape, parts: GraphParts) -> None:
    """`rope_cos` and `rope_sin`, [tokens, head_dim], from half tables of [max_position, head_dim / 2]."""
    graph.integers("axis_0", [], [0])
    graph.integers("last_position", [], [shape.max_position - 1])
    graph.reshape("position_ids", "positions_flat", [-1])
    # A position beyond the table would read outside it.
    graph.binary("MINIMUM", "positions_flat", "last_position", "positions", "DT_FLOAT", "NHWC")
    types = {"Taxis": "DT_INVALID", "Tindices": "DT_INVALID", "Tparams": "DT_INVALID"}
    for name, offset in (("cos", parts.rope_cos), ("sin", parts.rope_sin)):
        graph.table(f"{name}_table", [shape.max_position, shape.head_dim // 2], offset)
        graph.add("GatherV2", [f"{name}_table", "positions", "axis_0"], [f"{name}_half"], "GatherV2", types)
        graph.add("Concat", [f"{name}_half", f"{name}_half"], [f"rope_{name}"], "Axis", {"axis": -1})


def _rope(shape: LlmShape, parts: GraphParts, pre: str) -> Json:
    """The rotation of a layer's q and k, and before it the norm of each head where the model has one."""
    main: Json = {
        "rope_cut_head_dim": shape.head_dim,
        "num_head": shape.heads,
        "kv_num_head": shape.kv_heads,
        "head_dim": shape.head_dim,
    }
    norm = {"axis": [-1], "epsilon": shape.norm_epsilon, "group": 1, "useRMSNorm": True}
    for part in ("q", "k"):
        if gamma := parts.head_norms.get(f"{pre}.attn_{part}_norm"):
            main[f"{part}_norm"] = {**norm, "gamma": gamma}
    return main


def _layer(graph: _Graph, shape: LlmShape, parts: GraphParts, layer: int, hidden: str, delta: str) -> tuple[str, str]:
    """One decoder layer; returns the residual stream and what is still to be added to it."""
    at, pre = parts.matrices, f"blk.{layer}"

    def normed(kind: str, hidden: str, delta: str) -> tuple[str, str]:
        name = f"{pre}.{kind}"
        if not delta:
            return hidden, graph.norm([hidden], [f"{name}.out"], shape, parts.norms[name])
        graph.norm([hidden, delta], [f"{name}.sum", f"{name}.out"], shape, parts.norms[name])
        return f"{name}.sum", f"{name}.out"

    def linear(kind: str, source: str) -> str:
        return graph.linear(source, f"{pre}.{kind}.out", at[f"{pre}.{kind}"])

    hidden, n = normed("attn_norm", hidden, delta)
    q, k = linear("attn_q", n), linear("attn_k", n)
    graph.add("RoPE", [q, k, "rope_cos", "rope_sin"], [f"{pre}.q", f"{pre}.k"], "RoPEParam", _rope(shape, parts, pre))
    v = linear("attn_v", n)
    attention = {
        "kv_cache": True,
        "layer_index": layer,
        "kv_shared_layer_index": -1,
        "output_c4": True,
        "attnScale": 0.0,  # 0 = 1 / sqrt(head_dim)
    }
    inputs = [f"{pre}.q", f"{pre}.k", v, "attention_mask"]
    graph.add("Attention", inputs, [f"{pre}.attention"], "AttentionParam", attention)
    hidden, n = normed("ffn_norm", hidden, linear("attn_output", f"{pre}.attention"))
    gate, up = linear("ffn_gate", n), linear("ffn_up", n)
    graph.binary("MUL_SILU", up, gate, f"{pre}.ffn", "DT_FLOAT", "NC4HW4")
    return hidden, linear("ffn_down", f"{pre}.ffn")


def _head(graph: _Graph, shape: LlmShape, parts: GraphParts, hidden: str) -> None:
    """Normalise the tokens from `logits_index` on, and multiply with the head."""
    graph.integers("slice_end", [1], [_END])
    graph.integers("slice_axis", [1], [0])
    graph.integers("slice_step", [1], [1])
    masks = dict.fromkeys(("beginMask", "endMask", "ellipsisMask", "newAxisMask", "shrinkAxisMask"), 0)
    main = {**masks, "Index": "DT_INVALID", "T": "DT_INVALID", "fromType": 1}
    inputs = [hidden, "logits_index", "slice_end", "slice_axis", "slice_step"]
    graph.add("StridedSlice", inputs, ["hidden_wanted"], "StridedSliceParam", main, "NC4HW4")
    n = graph.norm(["hidden_wanted"], ["output_norm.out"], shape, parts.norms["output_norm"])
    slices = [graph.linear(n, f"head_{i}", at) for i, at in enumerate(parts.head)]
    rows = slices[0]
    if len(slices) > 1:
        rows = graph.add("Concat", slices, ["head"], "Axis", {"axis": 1}, "NC4HW4")
    graph.convert(rows, "logits_rows", "NC4HW4", "NCHW", "NHWC")
    graph.reshape("logits_rows", "logits", [1, -1, shape.vocab], "NHWC")
