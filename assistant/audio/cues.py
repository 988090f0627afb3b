"""Short sounds that say what the assistant does. Imports `errors` and the vocabulary of the audio process.

Each of ours is made of pure tones under raised-cosine envelopes, and all of them of the same three tones, so that one
filter (`notch`) takes every cue out of the microphone's signal while somebody speaks. A cue may be a sound file
instead; that one cannot be taken out. Never plays anything; never touches a device.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from assistant.audio.front_messages import CueName, CueSettings
from assistant.errors import ConfigError

log = logging.getLogger(__name__)

RATE = 48_000
"""Hz at which ours are made unless another rate is asked for: the one that most devices have."""
MAX_FILE_S = 5.0
_LOW, _MIDDLE, _HIGH = 1046.5, 1318.5, 1568.0
"""Hz: C6, E6, G6. High enough for the smallest loudspeaker and to miss the strong part of a voice."""
ALL_TONES = (_LOW, _MIDDLE, _HIGH)
_PEAK = 0.14
"""Of full scale, where one tone sounds alone: an rms of -20 dBFS."""
_MIN_RATE, _MAX_RATE = 4_000, 384_000


class Note(NamedTuple):
    hz: float
    start_s: float
    seconds: float
    """Of the whole envelope: it rises for half of it, and falls for the other half."""
    level: float = 1.0


class Sound(NamedTuple):
    pcm: bytes
    """s16le mono."""
    sample_rate: int

    @property
    def seconds(self) -> float:
        return len(self.pcm) / 2 / self.sample_rate


_NOTES: dict[CueName, tuple[Note, ...]] = {
    "awake": (Note(_LOW, 0.0, 0.13), Note(_HIGH, 0.065, 0.13)),
    "done": (Note(_HIGH, 0.0, 0.13), Note(_LOW, 0.065, 0.13)),
    "error": (Note(_MIDDLE, 0.0, 0.15), Note(_LOW, 0.14, 0.15), Note(_LOW, 0.28, 0.15)),
    "thinking": (Note(_MIDDLE, 0.0, 0.16, 0.5), Note(_MIDDLE, 0.22, 0.16, 0.35)),
    "timer": tuple(
        Note(hz, 0.1 * step, 0.15)
        for step, hz in enumerate((_LOW, _MIDDLE, _HIGH, _LOW, _MIDDLE, _HIGH))
    ),
}  # fmt: skip
_SECONDS: dict[CueName, float] = {"timer": 1.0}
"""Those with a pause at their end, which makes them a pattern when they are repeated."""
TONES: dict[CueName, tuple[float, ...]] = {
    name: tuple(sorted({note.hz for note in notes})) for name, notes in _NOTES.items()
}
"""Hz of every tone that a cue of ours holds."""


def tone_cue(name: CueName, sample_rate: int = RATE) -> Sound:
    """Ours, s16le mono at any rate above twice its highest tone. Raises `ValueError` for a lower one."""
    if sample_rate <= 2 * max(ALL_TONES):
        raise ValueError(f"{sample_rate} Hz cannot hold tones of {max(ALL_TONES):g} Hz")
    notes = _NOTES[name]
    seconds = _SECONDS.get(name, max(note.start_s + note.seconds for note in notes))
    out = np.zeros(round(seconds * sample_rate), np.float64)
    for note in notes:
        start = round(note.start_s * sample_rate)
        tone = _tone(note, sample_rate)[: len(out) - start]
        out[start : start + len(tone)] += tone
    return Sound(_s16(out), sample_rate)


def _tone(note: Note, rate: int) -> NDArray[np.float64]:
    """A sine under a Hann window, whose spectrum ends at 2 / seconds beside the tone but for 0.05 % of its energy."""
    at = np.arange(round(note.seconds * rate)) / rate
    envelope = 0.5 - 0.5 * np.cos(2 * np.pi * at / note.seconds)
    tone: NDArray[np.float64] = _PEAK * note.level * envelope * np.sin(2 * np.pi * note.hz * at)
    return tone


def cue(name: CueName, setting: str, sample_rate: int = RATE) -> Sound | None:
    """What a setting asks for: "tone", "off" (None), or the path of a sound file, which keeps its own rate.

    Raises `ConfigError` that names the key and the path.
    """
    if setting == "off":
        return None
    if setting == "tone":
        return tone_cue(name, sample_rate)
    return _from_file(f"cues.{name}", setting)


class CueSounds:
    """All of them, as configured. One whose file cannot be used is complained of (the log), and is a tone instead."""

    def __init__(
        self,
        settings: CueSettings,
        *,
        sample_rate: int = RATE,
        complain: Callable[[str], None] = log.warning,
    ) -> None:
        self._sounds: dict[CueName, Sound] = {}
        for name in get_args(CueName):
            try:
                sound = cue(name, getattr(settings, name), sample_rate)
            except ConfigError as error:
                complain(f"{error.message} Until then it is a tone.")
                sound = tone_cue(name, sample_rate)
            if sound is not None:
                self._sounds[name] = sound

    def get(self, name: CueName) -> Sound | None:
        """None: it is off."""
        return self._sounds.get(name)


def _from_file(key: str, setting: str) -> Sound:
    """The file at its own rate, channels averaged. Only a regular file: a pipe could be waited for without end."""
    import soundfile

    where = f'{key} = "{setting}"'
    hint = 'Name a sound file (WAV, FLAC, OGG, MP3), or "tone", or "off".'
    try:
        path = Path(setting).expanduser()
        if not path.is_file():
            raise ConfigError(f"{where}: there is no such file. {hint}")
        with path.open("rb") as stream, soundfile.SoundFile(stream) as sound:
            rate = int(sound.samplerate)
            if not _MIN_RATE <= rate <= _MAX_RATE:
                raise ConfigError(f"{where}: a sample rate of {rate} Hz cannot be played. {hint}")
            block: Any = sound.read(int(MAX_FILE_S * rate) + 1, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, TypeError) as error:
        reason = str(getattr(error, "error_string", error)).strip().rstrip(".")
        raise ConfigError(f"{where}: it cannot be read as sound ({reason}). {hint}") from None
    except (OSError, ValueError, RuntimeError) as error:  # ValueError: a NUL in the path; RuntimeError: no home folder
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{where}: it cannot be read: {reason}. {hint}") from None
    if not len(block):
        raise ConfigError(f"{where}: it holds no sound. {hint}")
    if len(block) > MAX_FILE_S * rate:
        raise ConfigError(f"{where}: it is longer than {MAX_FILE_S:g} s. {hint}")
    return Sound(_s16(np.nan_to_num(block).mean(axis=1)), rate)


def _s16(samples: NDArray[np.floating]) -> bytes:
    """-1..1 to s16le; beyond is clipped."""
    return (samples.clip(-1.0, 1.0) * 32767).round().astype("<i2").tobytes()
