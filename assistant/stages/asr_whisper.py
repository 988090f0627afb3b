"""Whisper as an ASR engine on CTranslate2, int8. Imports ctranslate2 and numpy; imported by the worker alone.

Whisper hears windows, not streams: audio longer than one window is cut at its quietest points. What the model needs
and what it does wrong is in `whisper_text` (which is pure); features are in `whisper_features`.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from assistant.errors import EngineFailed, ModelDamaged, ModelUnsupported
from assistant.machine import share_one_heap
from assistant.messages import ASR_RATE, AsrRequest, Progress, Transcript
from assistant.model_store.derived import Free
from assistant.stages import whisper_text
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.whisper_features import FRAMES_PER_S, log_mel, samples_from
from assistant.stages.whisper_weights import Layout, cache_of, check_files, int8_copy

log = logging.getLogger(__name__)

MIN_WINDOW_S = 15.0
"""Shorter windows make whisper loop; 12 s was less accurate on commands (word error rate 0.24 against 0.21)."""
MAX_WINDOW_S = 30.0
"""What the model was trained on."""
MAX_PIECE_S, MIN_PIECE_S = 14.0, 6.0
"""Longer audio is cut into pieces that fill the smallest window: whisper sometimes stops after the first of several
sentences, and the shorter the piece, the less is lost."""
SPARSE_FROM_S, SPARSE_TOKENS_PER_S = 5.0, 1.6
"""A longer piece with fewer tokens than this was probably not heard to its end. People say about 3 a second."""
MIN_AUDIO_S = 0.1
DOUBTFUL_LOGPROB = (-0.8, -0.3)
"""Greedy text with a mean log-probability in between is checked with a beam, for 25 ms more on the same encoding.

Clear sentences gain (word error rate 0.11 to 0.09); below, a beam only finds likelier inventions.
"""
_BEAM = 5


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    language: str = ""
    """Of a multilingual model, for example "fr"; empty = found out from the audio."""
    window_s: float = MIN_WINDOW_S
    """The least that is heard at once; a benchmark compares with more."""


class _Heard(NamedTuple):
    text: str
    tokens: int
    logprob: float
    """Sum over the tokens."""

    @property
    def confidence(self) -> float:
        """The geometric mean of the tokens' probabilities; 0 when nothing was understood."""
        return math.exp(self.logprob / self.tokens) if self.tokens else 0.0

    def then(self, later: _Heard) -> _Heard:
        text = f"{self.text} {later.text}".strip()
        return _Heard(text, self.tokens + later.tokens, self.logprob + later.logprob)


class WhisperAsr:
    """See `stages.base.Engine`. `run` gives one `Transcript(final=False)` after each piece of a long recording."""

    def __init__(self, config: EngineConfig, free: Free | None = None) -> None:
        """`free`: for tests, the bytes that the cache's disk is said to have."""
        self._config = config
        self._free = free
        self._derived = ""
        self._exceptional = False
        self._options = msgspec.convert(dict(config.options), Options)
        self._model: Any = None
        self._ct2: Any = None
        self._mels = 80

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            name="whisper",
            model=self._config.model,
            sample_rate=ASR_RATE,
            derived=self._derived,
            exceptional=self._exceptional,
        )

    def load(self) -> None:
        """Raises `ModelMissing`, `ModelDamaged`, `ModelUnsupported`, `EngineFailed`."""
        name, directory = self._config.model, self._config.model_dir
        layout = check_files(name, directory)
        # oneDNN is as fast as MKL here, and does not keep a second, packed copy of the weights (20 MiB)
        os.environ.setdefault("CT2_USE_MKL", "0")
        share_one_heap()  # its threads would keep 13 MiB of what they have freed; as fast
        try:
            import ctranslate2
        except (ImportError, OSError) as error:
            raise EngineFailed(f"The speech recogniser cannot be loaded: {error}. Run scripts/setup again.") from None
        self._ct2 = ctranslate2
        model = self._from_copy(layout) or self._opened(directory)
        self._mels = int(model.n_mels)
        if not 1 <= self._mels <= 256:
            raise ModelUnsupported(f"Model {name} wants {self._mels} mel bands; whisper has 80 or 128.")
        self._model = model

    def _from_copy(self, layout: Layout) -> Any:
        """The model from its int8 copy, made when there is none to be trusted; None when no copy can be had."""
        cache = cache_of(self._config, self._free)
        if self._config.distrust_cache:
            cache.drop()
        found = cache.find()
        for _ in range(2):
            try:
                if found is None:
                    found = int8_copy(self._config.model_dir, layout, cache)
                    self._exceptional = True
            except EngineFailed as error:
                log.warning("no int8 copy (slower to load, the same afterwards): %s", error.message)
                return None
            check = found.check(full=self._config.distrust_cache)
            self._exceptional = self._exceptional or check.pending
            try:
                model = self._opened(found.path) if check.plausible else None
            except ModelDamaged:
                model = None
            if check.good() and model is not None:
                found.note()
                self._derived = str(found.path)
                return model
            cache.drop(found)
            found = None
        return None

    def _opened(self, directory: Path) -> Any:
        name = self._config.model
        try:
            return self._ct2.models.Whisper(
                str(directory), device="cpu", compute_type="int8", inter_threads=1, intra_threads=self._config.threads
            )
        except (RuntimeError, ValueError) as error:
            raise ModelDamaged(
                f"Model {name} cannot be loaded from {directory}: {error}. Run `assistant models verify {name}`."
            ) from None

    def run(self, request: AsrRequest) -> Iterator[Progress | Transcript]:
        """Raises `EngineFailed`. Nothing understood gives the text ""."""
        if self._model is None:
            raise EngineFailed("The speech recogniser was asked before its model was loaded. Load the stage first.")
        try:
            yield from self._transcribed(list(pieces_of(samples_from(request.pcm))))
        finally:
            _give_heap_back()

    def _transcribed(self, pieces: list[NDArray[np.float32]]) -> Iterator[Progress | Transcript]:
        heard = _Heard("", 0, 0.0)
        for number, piece in enumerate(pieces):
            heard = heard.then((yield from self._piece(piece, number, len(pieces))))
            if number + 1 < len(pieces):
                yield Transcript(text=heard.text, final=False, confidence=heard.confidence)
        yield Transcript(text=heard.text, final=True, confidence=heard.confidence)

    def _piece(self, piece: NDArray[np.float32], number: int, total: int) -> Generator[Progress, None, _Heard]:
        """What is said in one piece; heard once more in two parts when that seems to be too little."""
        encoded = self._encode(piece)
        yield Progress(done=2 * number + 1, total=2 * total)
        seconds = len(piece) / ASR_RATE
        heard = self._decode(encoded, seconds)
        if seconds < SPARSE_FROM_S or heard.tokens > SPARSE_TOKENS_PER_S * seconds:
            return heard
        cut = len(piece) // 4 + _quietest(piece[len(piece) // 4 : len(piece) * 3 // 4])
        first = yield from self._piece(piece[:cut], number, total)
        second = yield from self._piece(piece[cut:], number, total)
        return max(heard, first.then(second), key=lambda each: each.tokens)

    def _encode(self, piece: NDArray[np.float32]) -> Any:
        frames = 2 * round(window_seconds(len(piece) / ASR_RATE, self._options.window_s) * FRAMES_PER_S / 2)
        features = log_mel(piece, self._mels, frames)
        try:
            return self._model.encode(self._ct2.StorageView.from_array(features[np.newaxis]))
        except RuntimeError as error:
            raise EngineFailed(f"The speech recogniser failed: {error}. Try again.") from None

    def _decode(self, encoded: Any, seconds: float) -> _Heard:
        prompt = whisper_text.prompt(self._language(encoded) if self._model.is_multilingual else None)
        best = self._generate(encoded, prompt, seconds, beam=1)
        if DOUBTFUL_LOGPROB[0] < best.scores[0] < DOUBTFUL_LOGPROB[1]:
            other = self._generate(encoded, prompt, seconds, beam=_BEAM)
            if other.scores[0] > best.scores[0]:
                best = other
        said = whisper_text.decode(best.sequences[0])
        text = whisper_text.without_loops(said, seconds)
        if not whisper_text.believable(text, best.scores[0], best.no_speech_prob):
            return _Heard("", 0, 0.0)
        tokens = max(1, len(best.sequences[0]) * len(text) // len(said))
        return _Heard(text, tokens, best.scores[0] * tokens)

    def _language(self, encoded: Any) -> str:
        if self._options.language:
            return f"<|{self._options.language}|>"
        return str(self._model.detect_language(encoded)[0][0][0])

    def _generate(self, encoded: Any, prompt: list[str], seconds: float, beam: int) -> Any:
        try:
            return self._model.generate(
                encoded,
                [prompt],
                beam_size=beam,
                max_length=len(prompt) + whisper_text.max_tokens(seconds),
                return_scores=True,
                return_no_speech_prob=True,
            )[0]
        except (RuntimeError, ValueError) as error:
            raise EngineFailed(f"The speech recogniser failed: {error}. Try again.") from None

    def close(self) -> None:
        self._model = None


def window_seconds(seconds: float, least: float = MIN_WINDOW_S) -> float:
    """The piece and at least a second of silence, within what whisper is good at."""
    return min(MAX_WINDOW_S, max(least, seconds + 1.0))


def pieces_of(audio: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Cuts float32 at 16 kHz into pieces of at most `MAX_PIECE_S`, cut where the quietest 0.2 s are."""
    longest, least = int(MAX_PIECE_S * ASR_RATE), int(MIN_PIECE_S * ASR_RATE)
    while len(audio) > longest:
        cut = least + _quietest(audio[least : min(longest, len(audio) - ASR_RATE)])  # a second or more remains
        yield audio[:cut]
        audio = audio[cut:]
    if len(audio) >= MIN_AUDIO_S * ASR_RATE:
        yield audio


def _quietest(audio: NDArray[np.float32]) -> int:
    """The middle, in samples, of the 0.2 s with the least energy."""
    step = ASR_RATE // 20
    energy = np.square(audio[: len(audio) // step * step]).reshape(-1, step).sum(axis=1)
    return int(np.argmin(np.convolve(energy, np.ones(4), "valid")) + 2) * step


def _give_heap_back() -> None:
    """Returns what glibc keeps for later: 35 MiB after a query. Elsewhere there is nothing to tell."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # a C library other than glibc
            ctypes.CDLL(None).malloc_trim(0)
