"""What the two Piper engines share: their options, loudness, and text -> `TtsAudio`.

An engine brings a function from phoneme ids to raw samples, window by window. Imports `errors`, `messages`,
`piper_voice`, `piper_windows` and numpy; no engine library.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from assistant.errors import ConfigError
from assistant.messages import TtsAudio, TtsRequest
from assistant.stages.base import EngineConfig
from assistant.stages.piper_voice import Phonemizer, Voice
from assistant.stages.piper_windows import Floats

PEAK = 0.75
"""Loudness of the calibration text after gain; leaves room for the loudest syllable of any other."""

_CALIBRATION = "1 2 3 4 5 6 7 8 9 10."


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """None = as the voice's own configuration says."""

    speaker_id: int | None = None
    length_scale: float | None = None
    """More is slower."""
    noise_scale: float | None = None
    noise_w_scale: float | None = None
    gain: float | None = None
    """Factor on the samples; None = measured once per voice."""


def options_of(config: EngineConfig) -> Options:
    """Raises `ConfigError`."""
    try:
        return msgspec.convert(dict(config.options), Options)
    except msgspec.ValidationError as error:
        raise ConfigError(f"options of the piper engine: {error}") from None


class Scales(NamedTuple):
    """In the order in which a Piper network takes them."""

    noise: float
    """Of the sound."""
    length: float
    noise_w: float
    """Of the lengths."""


class Order(NamedTuple):
    """What a network is asked to say."""

    ids: NDArray[np.int64]
    """(1, phonemes)"""
    scales: Scales
    speaker: int | None
    """None for a voice of one speaker."""


Synthesize = Callable[[Order], Iterator[Floats]]
"""Raw samples in -1..1, (n,), window by window."""


class Speech:
    """A voice that is loaded and speaks."""

    def __init__(self, voice: Voice, options: Options, synthesize: Synthesize) -> None:
        """Raises `ModelUnsupported` when espeak-ng does not know the voice's language, and `EngineFailed`."""
        self._voice = voice
        self._options = options
        self._synthesize = synthesize
        self._phonemizer = Phonemizer(voice)
        self._gain = options.gain or 1.0

    @property
    def sample_rate(self) -> int:
        return self._voice.audio.sample_rate

    def calibrate(self, path: Path) -> None:
        """Finds the gain that brings this voice to the usual loudness: from `path`, where its first start left it."""
        if not self._options.gain:
            self._gain = self._known_gain(path) or self._measured_gain(path)

    def run(self, request: TtsRequest) -> Iterator[TtsAudio]:
        """Text without a letter or digit gives no audio and no error."""
        scales = self._scales()
        for phonemes in self._phonemizer.parts(request.text):
            for samples in self._synthesize(self._order(phonemes, scales)):
                pcm = np.clip(samples * (self._gain * 32767.0), -32768, 32767).astype("<i2")
                yield TtsAudio(pcm=pcm.tobytes(), sample_rate=self.sample_rate)

    def _order(self, phonemes: list[str], scales: Scales) -> Order:
        speaker = None
        if self._voice.num_speakers > 1:
            wanted = self._options.speaker_id
            speaker = self._voice.default_speaker_id if wanted is None else wanted
            speaker = min(max(speaker, 0), self._voice.num_speakers - 1)
        return Order(np.array([self._voice.ids(phonemes)], np.int64), scales, speaker)

    def _scales(self) -> Scales:
        usual, mine = self._voice.inference, self._options
        return Scales(
            noise=usual.noise_scale if mine.noise_scale is None else mine.noise_scale,
            length=usual.length_scale if mine.length_scale is None else mine.length_scale,
            noise_w=usual.noise_w if mine.noise_w_scale is None else mine.noise_w_scale,
        )

    @staticmethod
    def _known_gain(path: Path) -> float | None:
        try:
            known = float(json.loads(path.read_bytes())["gain"])
        except (OSError, ValueError, KeyError, TypeError):
            return None  # none yet, or not ours: measure
        return known if 0.05 < known < 50 else None

    def _measured_gain(self, path: Path) -> float:
        still = Scales(0.0, self._voice.inference.length_scale, 0.0)
        orders = [self._order(phonemes, still) for phonemes in self._phonemizer.parts(_CALIBRATION)]
        peak = max((float(np.abs(part).max()) for order in orders for part in self._synthesize(order)), default=0.0)
        gain = PEAK / peak if peak > 0.02 else 1.0
        try:
            temporary = path.with_suffix(f".{os.getpid()}.part")
            temporary.write_text(json.dumps({"gain": gain}))
            temporary.replace(path)
        except OSError:
            return gain  # a full disk costs the next start 0.2 s
        return gain
