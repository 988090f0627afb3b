"""Piper on MNN: text -> audio, window by window. Imports MNN and numpy; imported by the worker alone.

The network is in three parts (see `model_store.voice_graph`). The encoder reads a sentence of phonemes; from there on
everything goes in windows of frames: drawing them (which is numpy's), the flow, the decoder. The first sound waits for
the encoder and one window of each, and memory is the same for two seconds of speech and for twenty. Only the
encoder's own memory grows, with the phonemes, of which there are at most `piper_voice.MAX_PHONEMES` at a time.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import MNN.expr as mnn
import MNN.nn
import msgspec
import numpy as np
from numpy.typing import NDArray

from assistant.errors import ModelDamaged, ModelMissing
from assistant.messages import TtsAudio, TtsRequest
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.piper_speech import CONTEXT, FIRST_WINDOW, WINDOW, Floats, Order, Speech, options_of, windows
from assistant.stages.piper_voice import read_voice

log = logging.getLogger(__name__)

FLOW_CONTEXT = 32
"""Frames to each side that the flow sees: 4 couplings of 4 convolutions over 5 frames."""

FLOW_WINDOW = 192
"""Frames that the flow makes at once, after those that the first sound needs. Its context is computed and thrown
away, so a window of three times the context wastes a quarter."""

_PARTS = ("encoder", "flow", "decoder")


class _Wiring(msgspec.Struct, frozen=True):
    inputs: list[str]
    outputs: list[str]


class _Converted(msgspec.Struct, frozen=True):
    """What the converter wrote down."""

    samples_per_frame: int
    parts: dict[str, _Wiring]


class PiperMnnTts:
    """`TtsRequest` -> `TtsAudio` per window. Text without a letter or digit gives no audio and no error."""

    def __init__(self, config: EngineConfig) -> None:
        """Raises `ConfigError`."""
        self._config = config
        self._options = options_of(config)
        self._parts: dict[str, Any] = {}
        self._per_frame = 0
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
        converted = _read_converted(folder / "voice.json")
        self._per_frame = converted.samples_per_frame
        self._parts = {
            part: _opened(folder / f"{part}.mnn", converted.parts[part], self._config.threads) for part in _PARTS
        }
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
        flow = _Flow(self._parts["flow"], drawn, vectors)
        for begin, end, left, right in windows(drawn.frames, FIRST_WINDOW, WINDOW, CONTEXT):
            (samples,) = _run(self._parts["decoder"], [flow.frames(left, right), *vectors])
            samples = samples.reshape(-1)
            if not np.isfinite(samples).all():
                raise ModelDamaged(f"the voice {self._config.model!r} computes no numbers; fetch it again")
            yield samples[(begin - left) * self._per_frame : (end - left) * self._per_frame]


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

    def next(self, begin: int, end: int) -> Floats:
        at = self._phoneme[begin:end]
        means = self._means[:, :, at]
        if not self._noise:
            return means
        spread = np.exp(self._log_scales[:, :, at]) * np.float32(self._noise)
        return means + self._random.standard_normal(means.shape, np.float32) * spread


class _Ahead(NamedTuple):
    """A stretch of frames from `begin` on."""

    begin: int
    frames: Floats

    def then(self, more: Floats, keep_from: int) -> _Ahead:
        begin = min(keep_from, self.begin + self.frames.shape[2])
        return _Ahead(begin, np.concatenate([self.frames[:, :, begin - self.begin :], more], axis=2))

    def part(self, left: int, right: int) -> Floats:
        return self.frames[:, :, left - self.begin : right - self.begin]

    @property
    def end(self) -> int:
        return self.begin + int(self.frames.shape[2])


class _Flow:
    """Latent frames on demand, asked for from left to right."""

    def __init__(self, part: Any, drawn: _Drawn, vectors: list[Floats]) -> None:
        self._part = part
        self._drawn = drawn
        self._vectors = vectors
        nothing = drawn.next(0, 0)
        self._inputs, self._outputs = _Ahead(0, nothing), _Ahead(0, nothing)
        self._windows = windows(drawn.frames, FIRST_WINDOW + CONTEXT, FLOW_WINDOW, FLOW_CONTEXT)

    def frames(self, left: int, right: int) -> Floats:
        while self._outputs.end < right:
            begin, end, first, last = next(self._windows)
            self._inputs = self._inputs.then(self._drawn.next(self._inputs.end, last), first)
            mask = np.ones((1, 1, last - first), np.float32)
            (latent,) = _run(self._part, [self._inputs.part(first, last), mask, *self._vectors])
            self._outputs = self._outputs.then(latent[:, :, begin - first : end - first], left)
        return self._outputs.part(left, right)


def _read_converted(path: Path) -> _Converted:
    try:
        found = msgspec.convert(json.loads(path.read_bytes())["mnn"], _Converted)
        if found.samples_per_frame < 1 or not set(_PARTS) <= set(found.parts):
            raise ValueError("parts of the network are missing")
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise ModelDamaged(f"{path} does not describe a converted voice ({error}); fetch it again") from None
    return found


def _opened(path: Path, wiring: _Wiring, threads: int) -> Any:
    """`rearrange`: weights are laid out for computing at once, and only so; otherwise MNN does it at the first run, and
    keeps both forms (35 MiB)."""
    if not path.is_file():
        raise ModelMissing(f"{path} is not there; fetch the voice with `assistant models fetch`")
    try:
        part = MNN.nn.load_module_from_file(
            str(path), wiring.inputs, wiring.outputs, rearrange=True, thread_num=threads
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
