"""Where a Piper voice can be cut in two, or in three. Imports `errors`; onnx inside the functions that need it.

A voice is a VITS network: text encoder, durations and flow give one latent frame per 256 samples or so; the decoder
(a HiFi-GAN) turns frames into samples and sees only a few frames to each side. Cut between the two, the decoder can
work in short windows: the first sound comes early, and memory does not grow with the sentence.

The flow has a short sight, too. What comes before it draws each frame from the normal distribution that the text
encoder gives for its phoneme: `mean + noise * exp(log_scale)`, each phoneme for as many frames as its duration says.
Cut there as well, that much is left to plain numpy, and nothing of the network sees a whole sentence of frames.

VITS: Kim et al. 2021, https://arxiv.org/abs/2106.06103; HiFi-GAN: Kong et al. 2020, https://arxiv.org/abs/2010.05646
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import ModelDamaged, ModelMissing, ModelUnsupported

DECODER_PREFIX = "/dec/"
"""Names of the decoder's nodes, as PyTorch's exporter derives them from the module's name in VITS."""


Shapes = dict[str, list[int | str]]
"""By name of a tensor; a word stands for a length that varies."""


class Halves(NamedTuple):
    encoder: Any
    """onnx ModelProto: the voice's inputs -> the cut tensors."""
    decoder: Any
    """onnx ModelProto: the cut tensors -> samples, float32 in -1..1."""
    cuts: tuple[str, ...]
    """The latent frames, shape (1, channels, frames), first; a voice of several speakers adds its speaker vector."""
    samples_per_frame: int


class Thirds(NamedTuple):
    encoder: Any
    """onnx ModelProto: the voice's inputs and the noise of the lengths -> means, log_scales, durations, and the vector
    of the speaker, if any."""
    flow: Any
    """onnx ModelProto: drawn, mask, and the vector, if any -> latent."""
    decoder: Any
    """onnx ModelProto: latent, and the vector, if any -> samples, float32 in -1..1."""
    samples_per_frame: int


class Prior(NamedTuple):
    """Names of tensors before and around the flow. P phonemes, T frames."""

    length_noise: str
    """(1, 2, P): standard normal; handed in, since MNN draws the same numbers for the same sentence at each run."""
    means: str
    """(1, channels, P)"""
    log_scales: str
    """(1, channels, P)"""
    durations: str
    """(1, 1, P): whole frames per phoneme."""
    drawn: str
    """(1, channels, T): what the flow takes."""
    mask: str
    """(1, 1, T): ones, for one sentence alone."""


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
    graph = model.graph
    cuts = _decoder_cuts(graph)
    shapes: Shapes = {cuts[0]: [1, _channels(graph, cuts[0]), "frames"]}
    extractor = _extractor(model, shapes | _vectors(cuts))
    return Halves(
        encoder=extractor.extract_model([item.name for item in graph.input], cuts),
        decoder=extractor.extract_model(cuts, [graph.output[0].name]),
        cuts=tuple(cuts),
        samples_per_frame=_samples_per_frame(graph.node),
    )


def cut_in_three(model: Any) -> Thirds:
    """Raises `ModelUnsupported` for a network without the parts of a Piper voice."""
    graph = model.graph
    cuts = _decoder_cuts(graph)
    prior = find_prior(graph.node, cuts[0])
    channels, vectors = _channels(graph, cuts[0]), cuts[1:]
    shapes: Shapes = {
        prior.length_noise: [1, 2, "phonemes"],
        prior.means: [1, channels, "phonemes"],
        prior.log_scales: [1, channels, "phonemes"],
        prior.durations: [1, 1, "phonemes"],
        prior.drawn: [1, channels, "frames"],
        prior.mask: [1, 1, "frames"],
        cuts[0]: [1, channels, "frames"],
    }
    extractor = _extractor(model, shapes | _vectors(cuts))
    given = [*(item.name for item in graph.input), prior.length_noise]
    return Thirds(
        encoder=extractor.extract_model(given, [prior.means, prior.log_scales, prior.durations, *vectors]),
        flow=extractor.extract_model([prior.drawn, prior.mask, *vectors], cuts[:1]),
        decoder=extractor.extract_model(cuts, [graph.output[0].name]),
        samples_per_frame=_samples_per_frame(graph.node),
    )


def find_prior(nodes: Iterable[Any], latent: str) -> Prior:
    """What surrounds the flow whose result is `latent`, found by its formula. Raises `ModelUnsupported`."""
    known = _Wires(nodes)
    try:
        frames, random, sum_ = next(
            (noise.input[0], noise.output[0], each)
            for noise in known.of_kind("RandomNormalLike")
            for each in known.takers(noise.input[0], "Add")
            if known.depends(each.output[0], noise.output[0])
        )
        (length_noise,) = (n.output[0] for n in known.of_kind("RandomNormalLike") if n.output[0] != random)
        spread = next(name for name in sum_.input if name != frames)
        (durations,) = known.of_kind("Ceil")
        masked = known.maker(latent, "Mul")
        return Prior(
            length_noise=length_noise,
            means=known.per_phoneme(frames),
            log_scales=known.per_phoneme(known.above(spread, "Exp").input[0]),
            durations=durations.output[0],
            drawn=sum_.output[0],
            mask=next(name for name in masked.input if not known.depends(name, sum_.output[0])),
        )
    except (StopIteration, ValueError, KeyError):
        raise ModelUnsupported("this ONNX network is no Piper voice: it has no flow that could be cut off") from None


class _Wires:
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


def _decoder_cuts(graph: Any) -> list[str]:
    cuts = find_cuts(graph.node, (tensor.name for tensor in graph.initializer))
    if not cuts or [item.name for item in graph.output][:1] != ["output"]:
        raise ModelUnsupported("this ONNX network is no Piper voice: it has no decoder that could be cut off")
    return cuts


def _vectors(cuts: list[str]) -> Shapes:
    return {name: [1, "vector", 1] for name in cuts[1:]}


def _extractor(model: Any, shapes: Shapes) -> Any:
    """Ready to cut at tensors, whose shapes it must be told."""
    import onnx
    from onnx.utils import Extractor

    graph = model.graph
    known = [info for info in graph.value_info if info.name not in shapes]
    del graph.value_info[:]
    graph.value_info.extend(known)
    graph.value_info.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()
    )
    return Extractor(model)


def _channels(graph: Any, frames: str) -> int:
    """Height of a latent frame: the second dimension of the convolution that takes it, (out, in, kernel)."""
    weights = {tensor.name: tensor for tensor in graph.initializer}
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
