"""Piper on onnxruntime: text -> audio, window by window. The only importer of piper; imported by the worker alone.

The network is cut between flow and decoder (see `model_store.voice_graph`), so the first sound of a sentence waits for
the text encoder and a third of a second of decoding, and memory does not grow with the sentence: a voice that is asked
for 14 s of speech holds 80 MiB of anonymous memory instead of 420. The samples are those of the uncut network.

Uses piper's phonemizer, its phoneme ids and its configuration; not its `synthesize`, which decodes whole sentences.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state
from piper import PiperConfig, PiperVoice
from piper.config import PhonemeType

from assistant.errors import ConfigError, ModelDamaged, ModelMissing, ModelUnsupported
from assistant.messages import TtsAudio, TtsRequest
from assistant.model_store.derived import Derived, Found, Free
from assistant.sentences import SentenceSplitter
from assistant.stages import tts_piper_cache
from assistant.stages.base import EngineConfig, EngineInfo

FIRST_WINDOW = 32
"""Frames (of 256 samples at 22,050 Hz: 0.37 s) that are decoded before the first sound."""

WINDOW = 64
"""Frames decoded at once from then on; what bounds memory and the delay of a cancel."""

CONTEXT = 10
"""Frames to each side that a window needs to give the samples of a full decode (8e-7 off; 8 frames: 1.4e-3)."""

MAX_CHARS = 200
"""Text per run of the encoder."""

MAX_PHONEMES = 320
"""The same, for text that is longer spoken than written ("999,999,999")."""

PEAK = 0.75
"""Loudness of the calibration text after gain; leaves room for the loudest syllable of any other."""

_CALIBRATION = "1 2 3 4 5 6 7 8 9 10."
_ORT_ERRORS: tuple[type[Exception], ...] = tuple(
    kind for kind in vars(onnxruntime_pybind11_state).values() if isinstance(kind, type) and issubclass(kind, Exception)
)

Floats = NDArray[np.float32]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """None = as the voice's own configuration says."""

    speaker_id: int | None = None
    length_scale: float | None = None
    """More is slower."""
    noise_scale: float | None = None
    noise_w_scale: float | None = None
    gain: float | None = None
    """Factor on the samples; None = measured once per voice."""


class PiperTts:
    """`TtsRequest` -> `TtsAudio` per window. Text without a letter or digit gives no audio and no error."""

    def __init__(self, config: EngineConfig, free: Free | None = None) -> None:
        """`free`: for tests, the bytes that the cache's disk is said to have. Raises `ConfigError`."""
        self._config = config
        self._free = free
        self._derived = ""
        self._exceptional = False
        try:
            self._options = msgspec.convert(dict(config.options), Options)
        except msgspec.ValidationError as error:
            raise ConfigError(f"options of the piper engine: {error}") from None
        self._encoder: Any = None
        self._decoder: Any = None
        self._voice: Any = None
        self._gain = 1.0

    @property
    def info(self) -> EngineInfo:
        rate = self._voice.config.sample_rate if self._voice else None
        return EngineInfo(
            name="piper",
            model=self._config.model,
            sample_rate=rate,
            streaming=True,
            derived=self._derived,
            exceptional=self._exceptional,
        )

    def load(self) -> None:
        """Raises `ModelMissing`, `ModelDamaged`, `ModelUnsupported`; `EngineFailed` when a cache cannot be made."""
        onnx = self._config.model_dir / f"{self._config.model}.onnx"
        if not onnx.is_file():
            raise ModelMissing(f"{onnx} is not there; fetch it with `assistant models fetch {self._config.model}`")
        voice = read_config(onnx.with_name(onnx.name + ".json"))
        cache = tts_piper_cache.cache_of(self._config, onnx, onnxruntime.__version__, self._free)
        found = self._open(onnx, cache)
        self._voice = PiperVoice(session=self._encoder, config=voice)
        try:
            self._voice.phonemize("a")  # starts espeak-ng, 3 ms
        except (RuntimeError, ValueError) as error:
            raise ModelUnsupported(f"espeak-ng has no voice {voice.espeak_voice!r}: {error}") from None
        self._gain = self._options.gain or self._calibrated(found.path / tts_piper_cache.GAIN)

    def run(self, request: TtsRequest) -> Iterator[TtsAudio]:
        rate = int(self._voice.config.sample_rate)
        for phonemes in self._phonemes(request.text):
            for samples in self._synthesize(phonemes):
                pcm = np.clip(samples * (self._gain * 32767.0), -32768, 32767).astype("<i2")
                yield TtsAudio(pcm=pcm.tobytes(), sample_rate=rate)

    def close(self) -> None:
        self._encoder = self._decoder = self._voice = None

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
            self._encoder = _session(folder / "encoder.onnx", self._config.threads)
            self._decoder = _session(folder / "decoder.onnx", self._config.threads)
        except _ORT_ERRORS:
            return False
        return True

    def _calibrated(self, path: Path) -> float:
        """The gain that brings this voice to the usual loudness; measured at its first start, then remembered."""
        try:
            known = float(json.loads(path.read_bytes())["gain"])
            if 0.05 < known < 50:
                return known
        except (OSError, ValueError, KeyError, TypeError):
            pass  # none yet, or not ours: measure
        still = np.array([0.0, self._voice.config.length_scale, 0.0], np.float32)
        parts = [part for ids in self._phonemes(_CALIBRATION) for part in self._synthesize(ids, still)]
        peak = float(max((np.abs(part).max() for part in parts), default=0.0))
        gain = PEAK / peak if peak > 0.02 else 1.0
        try:
            temporary = path.with_suffix(f".{os.getpid()}.part")
            temporary.write_text(json.dumps({"gain": gain}))
            temporary.replace(path)
        except OSError:
            return gain  # a full disk costs the next start 0.2 s
        return gain

    def _phonemes(self, text: str) -> Iterator[list[str]]:
        """Phonemes per run of the encoder: a sentence, or a part of a long one."""
        splitter = SentenceSplitter(clause_first=False, max_chars=MAX_CHARS)
        for piece in [*splitter.feed(_clean(text)), *splitter.flush()]:
            if not any(map(str.isalnum, piece)):
                continue
            for sentence in self._voice.phonemize(piece):
                yield from (part for part in cut_phonemes(sentence) if any(map(str.isalnum, part)))

    def _synthesize(self, phonemes: list[str], scales: Floats | None = None) -> Iterator[Floats]:
        """Raw samples in -1..1, window by window."""
        latent, *vectors = self._encoder.run(None, self._inputs(phonemes, scales))
        names = [item.name for item in self._decoder.get_inputs()]
        frames, begin, size = latent.shape[-1], 0, FIRST_WINDOW
        while begin < frames:
            end = frames if frames - begin < size + CONTEXT else begin + size  # no crumb at the end
            left, right = max(0, begin - CONTEXT), min(frames, end + CONTEXT)
            window = np.ascontiguousarray(latent[..., left:right])
            samples = self._decoder.run(None, dict(zip(names, [window, *vectors], strict=True)))[0].reshape(-1)
            per_frame = samples.size // (right - left)
            yield samples[(begin - left) * per_frame : (end - left) * per_frame]
            begin, size = end, WINDOW

    def _inputs(self, phonemes: list[str], scales: Floats | None) -> dict[str, Any]:
        ids = np.array([self._voice.phonemes_to_ids(phonemes)], np.int64)
        voice, mine = self._voice.config, self._options
        if scales is None:
            wanted = (
                voice.noise_scale if mine.noise_scale is None else mine.noise_scale,
                voice.length_scale if mine.length_scale is None else mine.length_scale,
                voice.noise_w_scale if mine.noise_w_scale is None else mine.noise_w_scale,
            )
            scales = np.array(wanted, np.float32)
        inputs = {"input": ids, "input_lengths": np.array([ids.shape[1]], np.int64), "scales": scales}
        if voice.num_speakers > 1:
            speaker = voice.default_speaker_id if mine.speaker_id is None else mine.speaker_id
            inputs["sid"] = np.array([min(max(speaker, 0), voice.num_speakers - 1)], np.int64)
        return inputs


def read_config(path: Path) -> Any:
    """Piper's configuration of a voice. Raises `ModelMissing`, `ModelDamaged`, `ModelUnsupported`."""
    if not path.is_file():
        raise ModelMissing(f"{path} is not there; a Piper voice is a pair of files, so fetch it again")
    try:
        config = PiperConfig.from_dict(json.loads(path.read_bytes()))
        supported = config.phoneme_type in (PhonemeType.ESPEAK, PhonemeType.TEXT)
        if int(config.sample_rate) < 1 or not config.phoneme_id_map["^"] or not config.phoneme_id_map["$"]:
            raise ValueError("no sample rate or no phoneme table")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelDamaged(f"{path} is not the configuration of a Piper voice ({error}); fetch it again") from None
    if not supported:
        raise ModelUnsupported(f"{path} wants {config.phoneme_type.value} phonemes, which need downloads at run time")
    return config


def cut_phonemes(phonemes: list[str], longest: int = MAX_PHONEMES) -> Iterator[list[str]]:
    """Parts of at most `longest` phonemes, cut between words where there is a gap in the second half."""
    while len(phonemes) > longest:
        gaps = [at for at in range(longest // 2, longest) if phonemes[at] == " "]
        at = gaps[-1] if gaps else longest
        yield phonemes[:at]
        phonemes = phonemes[at:]
    yield phonemes


def _clean(text: str) -> str:
    """What C strings and piper's own markup cannot take: lone surrogates, NUL, [[raw phonemes]]."""
    return text.encode("utf-8", "ignore").decode().replace("\0", " ").replace("[[", " ").replace("]]", " ")


def _session(path: Path, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads shall not burn a core
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # it was done at build time
    options.enable_mem_pattern = False  # patterns are kept per length: memory that grows with every new sentence
    options.enable_mem_reuse = False  # planning it takes 0.55 of 0.65 s; the arena reuses memory all the same
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
