"""Where a Piper voice can be cut. Imports `errors` and `voice_wires`; onnx inside the functions that need it.

A voice is a VITS network: text encoder, durations and flow give one latent frame per 256 samples or so; the decoder
(a HiFi-GAN) turns frames into samples and sees only a few frames to each side. Cut between the two, the decoder can
work in short windows: the first sound comes early, and memory does not grow with the sentence. Most of what it sees of
its neighbours it sees in its first stage, before most of the work: that stage is cut off once more ("decoder"), and the
rest ("upsampler"), which gives 32 samples or so for each step of it, throws little away at the edges of a window.

The flow has a short sight, too. What comes before it draws each frame from the normal distribution that the text
encoder gives for its phoneme: `mean + noise * exp(log_scale)`, each phoneme for as many frames as its duration says.
Cut there as well, that much is left to plain numpy, and nothing of the network sees a whole sentence of frames.

VITS: Kim et al. 2021, https://arxiv.org/abs/2106.06103; HiFi-GAN: Kong et al. 2020, https://arxiv.org/abs/2010.05646
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import ModelDamaged, ModelMissing, ModelUnsupported
from assistant.model_store.voice_wires import Sight, Wires, sight

DECODER_PREFIX = "/dec/"
"""Names of the decoder's nodes, as PyTorch's exporter derives them from the module's name in VITS."""


Shapes = dict[str, list[int | str]]
"""By name of a tensor; a word stands for a length that varies."""


class Part(NamedTuple):
    """A piece of the network that works in windows."""

    model: Any
    """onnx ModelProto: what the part before gives, float32 (1, channels, steps), and the vector of the speaker, if it
    takes one -> the same of other channels, `sight.rate` times the steps. Samples are in -1..1."""
    sight: Sight


class Halves(NamedTuple):
    """A voice of which what goes in windows is cut off."""

    encoder: Any
    """onnx ModelProto: the voice's inputs -> the latent frames, and the vector of the speaker, if any."""
    decoder: Part
    upsampler: Part


class Thirds(NamedTuple):
    """The same, of which only what goes over phonemes does not."""

    encoder: Any
    """onnx ModelProto: the voice's inputs and the noise of the lengths -> means, log_scales, durations, and the vector
    of the speaker, if any."""
    flow: Part
    """Takes a mask, too, after what was drawn: (1, 1, frames) of ones."""
    decoder: Part
    upsampler: Part


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
    middle = find_middle(graph.node, cuts)
    extractor = _extractor(model, _decoder_shapes(graph, cuts, middle))
    return Halves(
        extractor.extract_model([item.name for item in graph.input], cuts),
        *_decoder_parts(extractor, graph, cuts, middle),
    )


def cut_in_three(model: Any) -> Thirds:
    """Raises `ModelUnsupported` for a network without the parts of a Piper voice."""
    graph = model.graph
    cuts = _decoder_cuts(graph)
    prior, middle = find_prior(graph.node, cuts[0]), find_middle(graph.node, cuts)
    channels, vectors = _channels(graph, cuts[0]), cuts[1:]
    shapes: Shapes = {
        prior.length_noise: [1, 2, "phonemes"],
        prior.means: [1, channels, "phonemes"],
        prior.log_scales: [1, channels, "phonemes"],
        prior.durations: [1, 1, "phonemes"],
        prior.drawn: [1, channels, "frames"],
        prior.mask: [1, 1, "frames"],
    }
    extractor = _extractor(model, shapes | _decoder_shapes(graph, cuts, middle))
    given = [*(item.name for item in graph.input), prior.length_noise]
    return Thirds(
        extractor.extract_model(given, [prior.means, prior.log_scales, prior.durations, *vectors]),
        _part(extractor, graph, [prior.drawn, prior.mask, *vectors], cuts[0]),
        *_decoder_parts(extractor, graph, cuts, middle),
    )


def find_middle(nodes: Iterable[Any], cuts: list[str]) -> str:
    """What the decoder has after its first stage: all that goes into the second transposed convolution.

    Raises `ModelUnsupported`.
    """
    known = Wires(nodes)
    stages = [node for node in known.of_kind("ConvTranspose") if known.depends(node.input[0], cuts[0])]
    if len(stages) < 2:
        raise ModelUnsupported(
            "this ONNX network is no Piper voice: its decoder has not two stages that could be parted"
        )
    return known.before(stages[1].input[0], "LeakyRelu")


def find_prior(nodes: Iterable[Any], latent: str) -> Prior:
    """What surrounds the flow whose result is `latent`, found by its formula. Raises `ModelUnsupported`."""
    known = Wires(nodes)
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


def _decoder_cuts(graph: Any) -> list[str]:
    cuts = find_cuts(graph.node, (tensor.name for tensor in graph.initializer))
    if not cuts or [item.name for item in graph.output][:1] != ["output"]:
        raise ModelUnsupported("this ONNX network is no Piper voice: it has no decoder that could be cut off")
    return cuts


def _decoder_shapes(graph: Any, cuts: list[str], middle: str) -> Shapes:
    vectors: Shapes = {name: [1, "vector", 1] for name in cuts[1:]}
    return {cuts[0]: [1, _channels(graph, cuts[0]), "frames"], middle: [1, "width", "steps"], **vectors}


def _decoder_parts(extractor: Any, graph: Any, cuts: list[str], middle: str) -> tuple[Part, Part]:
    return _part(extractor, graph, cuts, middle), _part(extractor, graph, [middle], graph.output[0].name)


def _part(extractor: Any, graph: Any, given: list[str], result: str) -> Part:
    kernels = {tensor.name: tensor.dims[-1] for tensor in graph.initializer if tensor.dims}
    model = extractor.extract_model(given, [result])
    if {item.name for item in graph.input}.intersection(name for node in model.graph.node for name in node.input):
        raise ModelUnsupported(f"this ONNX network is no Piper voice: {result} depends on more than {', '.join(given)}")
    return Part(model, sight(model.graph.node, kernels, given[0], result))


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
