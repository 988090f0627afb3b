"""Where a Piper voice can be cut in two. Imports `errors`; onnx inside the functions that need it.

A voice is a VITS network: text encoder, durations and flow give one latent frame per 256 samples or so; the decoder
(a HiFi-GAN) turns frames into samples and sees only a few frames to each side. Cut between the two, the decoder can
work in short windows: the first sound comes early, and memory does not grow with the sentence.

VITS: Kim et al. 2021, https://arxiv.org/abs/2106.06103; HiFi-GAN: Kong et al. 2020, https://arxiv.org/abs/2010.05646
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import ModelDamaged, ModelMissing, ModelUnsupported

DECODER_PREFIX = "/dec/"
"""Names of the decoder's nodes, as PyTorch's exporter derives them from the module's name in VITS."""


class Halves(NamedTuple):
    encoder: Any
    """onnx ModelProto: the voice's inputs -> the cut tensors."""
    decoder: Any
    """onnx ModelProto: the cut tensors -> samples, float32 in -1..1."""
    cuts: tuple[str, ...]
    """The latent frames, shape (1, channels, frames), first; a voice of several speakers adds its speaker vector."""
    samples_per_frame: int


def read_voice(path: Path) -> Any:
    """The onnx ModelProto in the file. Raises `ModelMissing`, `ModelDamaged`."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if not path.is_file():
        raise ModelMissing(f"{path} is not there; fetch the voice with `assistant models fetch`")
    try:
        model = onnx.load(str(path))
    except (DecodeError, onnx.checker.ValidationError) as error:
        raise ModelDamaged(f"{path} is no ONNX file, or not a whole one ({error}); fetch it again") from None
    if not model.graph.node:
        raise ModelDamaged(f"{path} holds no network; fetch it again")
    return model


def find_cuts(nodes: Iterable[Any], weights: Iterable[str]) -> list[str]:
    """What the decoder's nodes take from outside, in the order of use; weights do not count."""
    decoder = [node for node in nodes if node.name.startswith(DECODER_PREFIX)]
    inside = {name for node in decoder for name in node.output} | set(weights)
    return list(dict.fromkeys(name for node in decoder for name in node.input if name and name not in inside))


def cut(model: Any) -> Halves:
    """Cuts a voice. Raises `ModelUnsupported` for a network without the parts of a Piper voice."""
    import onnx
    from onnx.utils import Extractor

    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    cuts = find_cuts(graph.node, weights)
    if not cuts or [item.name for item in graph.output][:1] != ["output"]:
        raise ModelUnsupported("this ONNX network is no Piper voice: it has no decoder that could be cut off")
    shapes = {cuts[0]: [1, _channels(graph, weights, cuts[0]), "frames"]}
    known = [info for info in graph.value_info if info.name not in cuts]
    del graph.value_info[:]
    graph.value_info.extend(known)
    for name in cuts:
        info = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shapes.get(name, [1, "vector", 1]))
        graph.value_info.append(info)
    extractor = Extractor(model)
    return Halves(
        encoder=extractor.extract_model([item.name for item in graph.input], cuts),
        decoder=extractor.extract_model(cuts, [graph.output[0].name]),
        cuts=tuple(cuts),
        samples_per_frame=_samples_per_frame(graph.node),
    )


def _channels(graph: Any, weights: dict[str, Any], frames: str) -> int:
    """Height of a latent frame: the second dimension of the convolution that takes it, (out, in, kernel)."""
    for node in graph.node:
        if node.op_type == "Conv" and node.input[0] == frames and node.input[1] in weights:
            return int(weights[node.input[1]].dims[1])
    raise ModelUnsupported("this ONNX network is no Piper voice: its decoder does not begin with a convolution")


def _samples_per_frame(nodes: Iterable[Any]) -> int:
    """The decoder's transposed convolutions multiply the rate, each by its stride."""
    strides = [
        attribute.ints[0]
        for node in nodes
        if node.op_type == "ConvTranspose" and node.name.startswith(DECODER_PREFIX)
        for attribute in node.attribute
        if attribute.name == "strides"
    ]
    return int(prod(strides))
