"""Piper on onnxruntime: text -> audio, window by window. Imported by the worker alone.

The network is cut between flow and decoder, and within the decoder (see `model_store.voice_graph`), so the first sound
of a sentence waits for the text encoder and a third of a second of decoding, and memory does not grow with the
sentence: a voice that is asked for 14 s of speech holds 80 MiB of anonymous memory instead of 420. The samples are
those of the uncut network.

Text, phonemes, loudness and windows are in `piper_speech`, `piper_voice` and `piper_windows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state

from assistant.errors import ModelDamaged, ModelMissing
from assistant.messages import TtsAudio, TtsRequest
from assistant.model_store.cut_voice import PARTS, SIGHTS, Cut
from assistant.model_store.derived import Derived, Found, Free
from assistant.stages import tts_piper_cache
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.piper_speech import Order, Speech, options_of
from assistant.stages.piper_voice import read_voice
from assistant.stages.piper_windows import DECODER_WINDOW, WINDOW, Floats, Link, chain

_ORT_ERRORS: tuple[type[Exception], ...] = tuple(
    kind for kind in vars(onnxruntime_pybind11_state).values() if isinstance(kind, type) and issubclass(kind, Exception)
)
_UNUSABLE: tuple[type[Exception], ...] = (*_ORT_ERRORS, OSError, msgspec.DecodeError)


class PiperTts:
    """`TtsRequest` -> `TtsAudio` per window. Text without a letter or digit gives no audio and no error."""

    def __init__(self, config: EngineConfig, free: Free | None = None) -> None:
        """`free`: for tests, the bytes that the cache's disk is said to have. Raises `ConfigError`."""
        self._config = config
        self._free = free
        self._derived = ""
        self._exceptional = False
        self._options = options_of(config)
        self._sessions: dict[str, Any] = {}
        self._cut: Cut | None = None
        self._speech: Speech | None = None

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            name="piper",
            model=self._config.model,
            sample_rate=self._speech.sample_rate if self._speech else None,
            streaming=True,
            derived=self._derived,
            exceptional=self._exceptional,
        )

    def load(self) -> None:
        """Raises `ModelMissing`, `ModelDamaged`, `ModelUnsupported`; `EngineFailed` when a cache cannot be made."""
        onnx = self._config.model_dir / f"{self._config.model}.onnx"
        if not onnx.is_file():
            raise ModelMissing(f"{onnx} is not there; fetch it with `assistant models fetch {self._config.model}`")
        voice = read_voice(onnx.with_name(onnx.name + ".json"))
        cache = tts_piper_cache.cache_of(self._config, onnx, onnxruntime.__version__, self._free)
        found = self._open(onnx, cache)
        self._speech = Speech(voice, self._options, self._synthesize)
        self._speech.calibrate(found.path / tts_piper_cache.GAIN)

    def run(self, request: TtsRequest) -> Iterator[TtsAudio]:
        assert self._speech is not None
        return self._speech.run(request)

    def close(self) -> None:
        self._sessions, self._cut, self._speech = {}, None, None

    def _open(self, onnx: Path, cache: Derived) -> Found:
        """Opens the prepared files; makes them once when they are not there or not to be trusted."""
        if self._config.distrust_cache:
            cache.drop()
        found = cache.find()
        for _ in range(2):
            if found is None:
                found = tts_piper_cache.build(onnx, cache)
                self._exceptional = True
            check = found.check(full=self._config.distrust_cache)
            self._exceptional = self._exceptional or check.pending
            # nothing is spoken before the comparison has come out well
            opened = check.plausible and self._open_sessions(found.path)
            if check.good() and opened:
                found.note()
                self._derived = str(found.path)
                return found
            cache.drop(found)
            found = None
        raise ModelDamaged(
            f"the files in {cache.path} do not stay as they were written: check the disk; or onnxruntime was replaced"
            " while this ran: try again"
        )

    def _open_sessions(self, folder: Path) -> bool:
        try:
            self._sessions = {part: _session(folder / f"{part}.onnx", self._config.threads) for part in PARTS}
            self._cut = msgspec.json.decode((folder / SIGHTS).read_bytes(), type=Cut)
        except _UNUSABLE:
            return False
        return True

    def _synthesize(self, order: Order) -> Iterator[Floats]:
        assert self._cut is not None
        lengths = np.array([order.ids.shape[1]], np.int64)
        inputs = {"input": order.ids, "input_lengths": lengths, "scales": np.array(order.scales, np.float32)}
        if order.speaker is not None:
            inputs["sid"] = np.array([order.speaker], np.int64)
        latent, *vectors = self._sessions["encoder"].run(None, inputs)
        decoder, upsampler = self._cut.decoder, self._cut.upsampler
        links = (
            Link(
                lambda frames: _run(self._sessions["decoder"], [frames, *vectors]),
                decoder.reach, decoder.rate, DECODER_WINDOW,
            ),
            Link(
                lambda steps: _run(self._sessions["upsampler"], [steps]).reshape(1, 1, -1),
                upsampler.reach, upsampler.rate, WINDOW,
            ),
        )  # fmt: skip
        samples = chain(lambda begin, end: latent[..., begin:end], latent.shape[-1], links)
        return (window.reshape(-1) for window in samples)


def _run(session: Any, inputs: list[Floats]) -> Floats:
    names = [item.name for item in session.get_inputs()]
    found: Floats = session.run(None, dict(zip(names, map(np.ascontiguousarray, inputs), strict=True)))[0]
    return found


def _session(path: Path, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads shall not burn a core
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # it was done at build time
    options.enable_mem_pattern = False  # patterns are kept per length: memory that grows with every new sentence
    options.enable_mem_reuse = False  # planning it takes 0.55 of 0.65 s; the arena reuses memory all the same
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
