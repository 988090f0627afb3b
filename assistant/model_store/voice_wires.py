"""How the nodes of an ONNX graph hang together, and how far its output sees. Imports `errors`; never onnx.

Nodes and weights are duck-typed: onnx's NodeProto and TensorProto.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from fractions import Fraction
from math import ceil, prod
from typing import Annotated, Any, NamedTuple

import msgspec

from assistant.errors import ModelUnsupported


class Wires:
    """Who makes a tensor, and who takes it. Raises `KeyError` for what is not there."""

    def __init__(self, nodes: Iterable[Any]) -> None:
        self._nodes = list(nodes)
        self._makers = {name: node for node in self._nodes for name in node.output}

    def of_kind(self, kind: str) -> list[Any]:
        return [node for node in self._nodes if node.op_type == kind]

    def takers(self, name: str, kind: str) -> list[Any]:
        return [node for node in self.of_kind(kind) if name in node.input]

    def maker(self, name: str, kind: str) -> Any:
        node = self._makers[name]
        if node.op_type != kind:
            raise KeyError(name)
        return node

    def above(self, name: str, kind: str) -> Any:
        """The nearest node of that kind that `name` is computed from by multiplications alone."""
        node = self._makers[name]
        if node.op_type == kind:
            return node
        if node.op_type == "Mul":
            for each in node.input:
                with suppress(KeyError):
                    return self.above(each, kind)
        raise KeyError(name)

    def per_phoneme(self, frames: str) -> str:
        """The tensor that was spread over frames: transposed, multiplied by the alignment, transposed back."""
        spread = self.maker(self.maker(frames, "Transpose").input[0], "MatMul")
        return str(self.maker(spread.input[1], "Transpose").input[0])

    def depends(self, name: str, on: str) -> bool:
        """Whether `name` is computed from `on`."""
        seen, waiting = set(), [name]
        while waiting:
            one = waiting.pop()
            if one == on:
                return True
            if one not in seen and one in self._makers:
                seen.add(one)
                waiting += self._makers[one].input
        return False

    def before(self, name: str, kind: str) -> str:
        """What a node of that kind made `name` of; `name` itself when none did."""
        node = self._makers.get(name)
        return str(node.input[0]) if node is not None and node.op_type == kind else name


class Sight(msgspec.Struct, frozen=True):
    """Of a network along the time axis, in steps of what it takes. Written down as it is."""

    reach: Annotated[int, msgspec.Meta(ge=0)]
    """Steps to each side that a stretch needs, to come out as it would among all the others."""
    rate: Annotated[int, msgspec.Meta(ge=1)]
    """Steps that it gives for each."""


class _Seen(NamedTuple):
    left: Fraction
    right: Fraction
    rate: int

    def plus(self, left: int, right: int, stride: int = 1, upsampled: int = 1) -> _Seen:
        """Behind a convolution that sees so many steps of its input, divided by `stride`, and gives more of them."""
        each = self.rate * stride
        return _Seen(self.left + Fraction(left, each), self.right + Fraction(right, each), self.rate * upsampled)


def sight(nodes: Iterable[Any], kernels: Mapping[str, int], begin: str, end: str) -> Sight:
    """What `end` sees of `begin`. `kernels`: width of each weight along time, by its name.

    A convolution over k steps with dilation d and p steps of padding before sees p back and (k - 1) d - p ahead; a
    transposed one of stride s gives step o from the steps (o + p - k + 1) / s to (o + p) / s. Whatever else there is
    takes each step by itself. Raises `ModelUnsupported` for a convolution that leaves steps out.
    """
    seen = {begin: _Seen(Fraction(0), Fraction(0), 1)}
    for node in nodes:
        taken = [seen[name] for name in node.input if name in seen]
        if not taken or node.op_type == "Shape":
            continue
        both = _Seen(max(one.left for one in taken), max(one.right for one in taken), max(one.rate for one in taken))
        if node.op_type in ("Conv", "ConvTranspose"):
            both = _behind(node, kernels[node.input[1]], both)
        seen.update(dict.fromkeys(node.output, both))
    found = seen[end]
    return Sight(ceil(max(found.left, found.right)), found.rate)


def _behind(node: Any, kernel: int, before: _Seen) -> _Seen:
    given = {attribute.name: list(attribute.ints) for attribute in node.attribute}
    padding, stride = given.get("pads", [0])[0], prod(given.get("strides", [1]))
    width = (kernel - 1) * prod(given.get("dilations", [1]))
    if node.op_type == "ConvTranspose":
        return before.plus(width - padding, padding, stride, upsampled=stride)
    if stride != 1:
        raise ModelUnsupported(f"this ONNX network is no Piper voice: {node.name} leaves steps out")
    return before.plus(padding, width - padding)
