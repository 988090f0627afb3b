"""Piper on MNN: text -> audio, window by window. Imports MNN and numpy; imported by the worker alone.

The network is in four parts (see `model_store.voice_graph`). The encoder reads a sentence of phonemes; from there on
everything goes in windows of frames: drawing them (which is numpy's), the flow, the decoder's two. The first sound
waits for the encoder and one window of each, and memory is the same for two seconds of speech and for twenty. Only the
encoder's own memory grows, with the phonemes, of which there are at most `piper_voice.MAX_PHONEMES` at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import MNN.expr as mnn
import MNN.nn
import msgspec
import numpy as np
from numpy.typing import NDArray

from assistant.errors import ModelDamaged, ModelMissing
from assistant.messages import TtsAudio, TtsRequest
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.piper_speech import Order, Speech, options_of
from assistant.stages.piper_voice import read_voice
from assistant.stages.piper_windows import DECODER_WINDOW, WINDOW, Chained, Floats, Link, Steps, Stretch, chain

FLOW_WINDOW = 256
"""Frames that the flow makes at once, as of `DECODER_WINDOW`; it sees further still."""

_CPU, _NORMAL = 0, 0
"""As MNN numbers them."""

_PARTS = ("encoder", "flow", "decoder", "upsampler")


class _Wiring(msgspec.Struct, frozen=True):
    inputs: list[str]
    outputs: list[str]
    reach: Annotated[int, msgspec.Meta(ge=0)]
    rate: Annotated[int, msgspec.Meta(ge=1)]


class _Converted(msgspec.Struct, frozen=True):
    """What the converter wrote down."""

    parts: dict[str, _Wiring]


class PiperMnnTts:
    """`TtsRequest` -> `TtsAudio` per window. Text without a letter or digit gives no audio and no error."""

    def __init__(self, config: EngineConfig) -> None:
        """Raises `ConfigError`."""
        self._config = config
        self._options = options_of(config)
        self._parts: dict[str, Any] = {}
        self._wiring: dict[str, _Wiring] = {}
        self._speech: Speech | None = None
        self._random = np.random.default_rng()

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            name="piper-mnn",
            model=self._config.model,
            sample_rate=self._speech.sample_rate if self._speech else None,
            streaming=True,
        )

    def load(self) -> None:
        """Raises `ModelMissing`, `ModelDamaged`, `ModelUnsupported`, `EngineFailed`."""
        folder = self._config.model_dir
        voice = read_voice(folder / "voice.json")
        self._wiring = _read_converted(folder / "voice.json").parts
        runtime = _runtime(self._config.threads)
        self._parts = {part: _opened(folder / f"{part}.mnn", self._wiring[part], runtime) for part in _PARTS}
        self._speech = Speech(voice, self._options, self._synthesize)
        self._speech.calibrate(self._config.cache_dir / f"gain-{self._config.digest or self._config.model}.json")

    def run(self, request: TtsRequest) -> Iterator[TtsAudio]:
        assert self._speech is not None
        return self._speech.run(request)

    def close(self) -> None:
        self._parts, self._speech = {}, None

    def _synthesize(self, order: Order) -> Iterator[Floats]:
        inputs = [order.ids, np.array([order.ids.shape[1]]), np.array(order.scales, np.float32)]
        if order.speaker is not None:
            inputs.append(np.array([order.speaker]))
        inputs.append(self._random.standard_normal((1, 2, order.ids.shape[1]), np.float32))
        means, log_scales, durations, *vectors = _run(self._parts["encoder"], inputs)
        drawn = _Drawn(means, log_scales, durations, order.scales.noise, self._random)
        for samples in self._windowed(drawn.steps, drawn.frames, vectors):
            if not np.isfinite(samples).all():
                raise ModelDamaged(f"the voice {self._config.model!r} computes no numbers; fetch it again")
            yield samples.reshape(-1)

    def _windowed(self, drawn: Steps, frames: int, vectors: list[Floats]) -> Chained:
        """Samples, (1, 1, n), window by window."""
        flow, decoder, upsampler = (self._wiring[part] for part in _PARTS[1:])
        links = (
            Link(
                lambda frames: _run(self._parts["flow"], [frames, np.ones_like(frames[:, :1]), *vectors])[0],
                flow.reach, flow.rate, FLOW_WINDOW,
            ),
            Link(
                lambda frames: _run(self._parts["decoder"], [frames, *vectors])[0],
                decoder.reach, decoder.rate, DECODER_WINDOW,
            ),
            Link(
                lambda steps: _run(self._parts["upsampler"], [steps])[0].reshape(1, 1, -1),
                upsampler.reach, upsampler.rate, WINDOW,
            ),
        )  # fmt: skip
        return chain(drawn, frames, links)


class _Drawn:
    """Frames drawn from what the encoder says of their phonemes, (1, channels, n); each is drawn once."""

    def __init__(
        self, means: Floats, log_scales: Floats, durations: Floats, noise: float, random: np.random.Generator
    ) -> None:
        counts = durations.reshape(-1).astype(np.int64)
        self._phoneme = np.repeat(np.arange(counts.size), counts)
        if not self._phoneme.size:
            self._phoneme = np.zeros(1, np.int64)  # no sound at all, which the network never says of anything
        self._means, self._log_scales, self._noise, self._random = means, log_scales, noise, random
        self.frames = self._phoneme.size
        self._made = Stretch(0, means[:, :, :0])

    def steps(self, begin: int, end: int) -> Floats:
        if end > self._made.end:
            self._made = self._made.then(self._draw(self._phoneme[self._made.end : end]), begin)
        return self._made.part(begin, end)

    def _draw(self, phonemes: NDArray[np.int64]) -> Floats:
        means = self._means[:, :, phonemes]
        if not self._noise:
            return means
        spread = np.exp(self._log_scales[:, :, phonemes]) * np.float32(self._noise)
        return means + self._random.standard_normal(means.shape, np.float32) * spread


def _read_converted(path: Path) -> _Converted:
    try:
        found = msgspec.convert(json.loads(path.read_bytes())["mnn"], _Converted)
        if not set(_PARTS) <= set(found.parts):
            raise ValueError("parts of the network are missing")
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise ModelDamaged(f"{path} does not describe a converted voice ({error}); fetch it again") from None
    return found


def _runtime(threads: int) -> Any:
    """`thread_num` of MNN's loader is not heeded: without this there are four threads, which spin on two cores and take
    twice the time of the CPU."""
    return MNN.nn.create_runtime_manager(
        ({"backend": _CPU, "numThread": threads, "precision": _NORMAL, "memory": _NORMAL},)
    )


def _opened(path: Path, wiring: _Wiring, runtime: Any) -> Any:
    """`rearrange`: weights are laid out for computing at once, and only so; otherwise MNN does it at the first run, and
    keeps both forms (35 MiB)."""
    if not path.is_file():
        raise ModelMissing(f"{path} is not there; fetch the voice with `assistant models fetch`")
    try:
        part = MNN.nn.load_module_from_file(
            str(path), wiring.inputs, wiring.outputs, rearrange=True, runtime_manager=runtime
        )
    except (RuntimeError, ValueError, TypeError, SystemError) as error:
        raise ModelDamaged(f"MNN cannot load {path} ({error.__cause__ or error}); fetch the voice again") from None
    if part is None:
        raise ModelDamaged(f"MNN cannot load {path}; fetch the voice again")
    return part


def _run(part: Any, inputs: list[NDArray[Any]]) -> list[Floats]:
    """Raises `ModelDamaged` when MNN computes nothing."""
    given = []
    for array in inputs:
        whole = np.issubdtype(array.dtype, np.integer)
        variable = mnn.placeholder(list(array.shape), mnn.NCHW, mnn.int if whole else mnn.float)
        variable.write(np.ascontiguousarray(array, np.int32 if whole else np.float32))
        given.append(variable)
    found = part.forward(given)
    if not found:
        raise ModelDamaged("MNN computed nothing of this voice; fetch it again")
    # its own layout of channels in groups of four is no array
    return [np.array(mnn.convert(one, mnn.NCHW).read(), np.float32).reshape(list(one.shape)) for one in found]
