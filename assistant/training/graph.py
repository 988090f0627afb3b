"""The encoder as an ONNX graph, node by node. Imports `bert`; onnx at use.

Batch 1 and no padding, so there is no mask: [1, T, 384] (word and position vectors summed, before the first
normalisation) -> [1, 384], the mean over T. Written by hand, as it is short, rather than traced: MNN gets plain
MatMul, LayerNormalization, Softmax and Erf, and nothing else to trip over.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from assistant.training.bert import EPSILON, HEADS, LAYERS, WIDTH, Encoder

OPSET = 17


class _Builder:
    def __init__(self) -> None:
        from onnx import helper, numpy_helper

        self._helper, self._numpy = helper, numpy_helper
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def constant(self, value: Any) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(self._numpy.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        name = out or f"v{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(kind, list(inputs), [name], name=f"{kind}_{name}", **attributes))
        return name


def build(encoder: Encoder) -> Any:
    """An onnx ModelProto with the encoder's present weights."""
    from onnx import TensorProto, helper

    made = _Builder()
    state = {name: value.detach().numpy() for name, value in encoder.state_dict().items()}

    def linear(x: str, name: str) -> str:
        product = made.node("MatMul", x, made.constant(state[f"{name}.weight"].T.astype(np.float32)))
        return made.node("Add", product, made.constant(state[f"{name}.bias"]))

    def norm(x: str, name: str) -> str:
        scale, shift = (made.constant(state[f"{name}.{part}"]) for part in ("weight", "bias"))
        return made.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=EPSILON)

    split = made.constant(np.array([1, -1, HEADS, WIDTH // HEADS], np.int64))
    joined = made.constant(np.array([1, -1, WIDTH], np.int64))
    scale = made.constant(np.array(1 / math.sqrt(WIDTH // HEADS), np.float32))
    root, one, half = (made.constant(np.array(value, np.float32)) for value in (math.sqrt(2), 1.0, 0.5))

    def attention(x: str, layer: str) -> str:
        query, key, value = (
            made.node("Transpose", made.node("Reshape", linear(x, f"{layer}.{part}"), split), perm=order)
            for part, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
        )
        odds = made.node("Softmax", made.node("Mul", made.node("MatMul", query, key), scale), axis=-1)
        seen = made.node("Transpose", made.node("MatMul", odds, value), perm=[0, 2, 1, 3])
        return linear(made.node("Reshape", seen, joined), f"{layer}.out")

    def gelu(x: str) -> str:
        bell = made.node("Add", made.node("Erf", made.node("Div", x, root)), one)
        return made.node("Mul", made.node("Mul", x, bell), half)

    x = norm("input", "norm")
    for number in range(LAYERS):
        layer = f"layers.{number}"
        x = norm(made.node("Add", x, attention(x, layer)), f"{layer}.norm")
        inner = linear(gelu(linear(x, f"{layer}.up")), f"{layer}.down")
        x = norm(made.node("Add", x, inner), f"{layer}.norm_out")
    made.node("ReduceMean", x, out="output", axes=[1], keepdims=0)

    graph = helper.make_graph(
        made.nodes,
        "intents",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, "T", WIDTH])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, WIDTH])],
        made.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
