"""A network of convolutions along time as one of convolutions over planes of height 1. Imports nothing of ours.

Onnxruntime keeps the fast layout of its convolutions, blocks of channels, for images alone; a sound that is an image of
height 1 gets it, too. The numbers are the same, and the network takes and gives what it did.
"""

from __future__ import annotations

from typing import Any

_CONVOLUTIONS = ("Conv", "ConvTranspose")
_EACH_BY_ITSELF = ("Add", "Div", "LeakyRelu", "Mul", "Tanh")
_AXIS = "planes_axis"
_HEIGHT = 2
"""The axis that is put in: (1, channels, 1, steps)."""


def in_planes(model: Any) -> Any:
    """Of an onnx ModelProto, which stays as it is. Weights are shared by one convolution each."""
    import onnx

    new = onnx.ModelProto()
    new.CopyFrom(model)
    graph = new.graph
    graph.initializer.append(onnx.helper.make_tensor(_AXIS, onnx.TensorProto.INT64, [1], [_HEIGHT]))
    nodes = _Rewriting(graph).nodes(list(graph.node), [item.name for item in graph.output])
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    return new


class _Rewriting:
    def __init__(self, graph: Any) -> None:
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self._planes: dict[str, str] = {}
        """Names of tensors as planes, by their names as they were."""
        self._lines = {item.name for item in graph.input} | set(self._weights)
        """Names of tensors that are there as they were."""
        self._done: list[Any] = []

    def nodes(self, nodes: list[Any], outputs: list[str]) -> list[Any]:
        for node in nodes:
            if node.op_type in _CONVOLUTIONS:
                self._widen(node)
                self._over_planes(node, node.input[:1])
            elif node.op_type in _EACH_BY_ITSELF and not any(map(self._has_axes, node.input)):
                self._over_planes(node, [name for name in node.input if name not in self._weights])
            else:
                for name in node.input:
                    self._need_lines(name)
                self._done.append(node)
                self._lines.update(node.output)
        for name in outputs:
            self._need_lines(name)
        return self._done

    def _has_axes(self, name: str) -> bool:
        return name in self._weights and len(self._weights[name].dims) > 1

    def _widen(self, node: Any) -> None:
        """A kernel (out, in, k) becomes (out, in, 1, k)."""
        weight = self._weights[node.input[1]]
        if len(weight.dims) == 3:
            weight.dims.insert(_HEIGHT, 1)
        neutral = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 0}
        for attribute in node.attribute:
            if attribute.name in neutral:
                attribute.ints.insert(0, neutral[attribute.name])
            elif attribute.name == "pads":
                before, after = attribute.ints
                attribute.ints[:] = [0, before, 0, after]

    def _over_planes(self, node: Any, taken: list[str]) -> None:
        import onnx

        for name in taken:
            if name not in self._planes:
                self._planes[name] = f"{name}_planes"
                self._done.append(onnx.helper.make_node("Unsqueeze", [name, _AXIS], [self._planes[name]]))
        for place, name in enumerate(node.input):
            if name in taken:
                node.input[place] = self._planes[name]
        for place, name in enumerate(node.output):
            self._planes[name] = node.output[place] = f"{name}_planes"
        self._done.append(node)

    def _need_lines(self, name: str) -> None:
        import onnx

        if name in self._planes and name not in self._lines:
            self._done.append(onnx.helper.make_node("Squeeze", [self._planes[name], _AXIS], [name]))
            self._lines.add(name)
