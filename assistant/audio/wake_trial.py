"""How well wake words are recognised in recordings: false accepts and false rejects. Imports `formats` and `wake`.

A recording is heard as a microphone would hear it: with its own room before and behind it. Detectors remember a second
or two, so one that begins with a word at once, or with digital silence, would be judged for that alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from assistant.audio.formats import read_audio
from assistant.audio.wake import RATE_BYTES, WakeWords
from assistant.errors import BadAudio, UsageError

SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".raw")
""".raw is s16le mono at 16 kHz."""
FRONT_S, BACK_S = 1.0, 0.5
"""Seconds of room before a recording and behind it."""

_FRAME = 160
"""10 ms, in which loudness is measured."""
_STRETCHES = (30, 20, 10, 6, 3)
"""Frames of room that are looked for, the longest first: some recordings have hardly any."""
_STEADY = 4.0
"""A stretch is room when no frame of it is so many times as loud as the quietest of the recording."""
_DIGITAL_SILENCE = 1.0
"""Rms below which nothing was recorded: 16-bit samples that are nearly all 0."""
_BLOCK = 1024
_GRAIN = 1600


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    word: str
    at_s: float
    """In the recording; may lie behind its end."""
    score: float


class Clip(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    """Below the folder."""
    seconds: float = 0.0
    expected: str | None = None
    """The wake word that is said in it."""
    heard: tuple[Heard, ...] = ()
    problem: str = ""
    """Why it was not heard at all."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    files: int
    seconds: float
    unreadable: int
    positives: int
    """Recordings of one of the words that were listened for."""
    found: int
    false_rejects: int
    false_accepts: int
    """Words that were recognised and not said, or more often than they were said."""
    false_accepts_per_hour: float


def sound_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())


def expectations(folder: Path) -> dict[str, str | None] | None:
    """Of a manifest.json: wake word, or None, by file. None where there is no manifest. Raises `UsageError`."""

    class Row(msgspec.Struct):
        file: str
        wake_word: str | None = None

    path = folder / "manifest.json"
    if not path.is_file():
        return None
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=list[Row])
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"{path} must be a list of objects with `file` and `wake_word`: {error}") from None
    return {row.file: row.wake_word for row in rows}


def word_in(name: str, words: Iterable[str]) -> str | None:
    """The longest word that stands in a file's name: "my hey-jarvis 3.wav" is one of hey_jarvis."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower())
    found = [word for word in words if re.search(rf"(?:^|_){re.escape(word.lower())}(?:_|$)", plain)]
    return max(found, key=len, default=None)


def expected_in(file: str, manifest: Mapping[str, str | None] | None, words: Sequence[str]) -> str | None:
    """What the manifest says of a file; what its name says where the manifest does not know it."""
    if manifest is not None and file in manifest:
        return manifest[file]
    return word_in(Path(file).stem, words)


def listen_to(path: Path, file: str, expected: str | None, words: WakeWords) -> Clip:
    """Plays a recording to the detectors, as if nothing had been heard before."""
    try:
        pcm = read_audio(path).pcm if path.suffix.lower() != ".raw" else _raw(path)
    except BadAudio as error:
        return Clip(file=file, expected=expected, problem=error.message)
    words.reset()
    sound = in_its_room(pcm)
    heard = [
        Heard(word=found.word, at_s=round(found.at_s - FRONT_S, 3), score=round(found.score, 4))
        for at in range(0, len(sound), _BLOCK)
        for found in words.feed(sound[at : at + _BLOCK])
    ]
    return Clip(file=file, seconds=len(pcm) / RATE_BYTES, expected=expected, heard=tuple(heard))


def false_accepts(clip: Clip) -> list[Heard]:
    """One detection of the expected word is right."""
    first = next((one for one in clip.heard if one.word == clip.expected), None)
    return [one for one in clip.heard if one is not first]


def missed(clip: Clip, words: Sequence[str]) -> bool:
    """Whether a word that was listened for is in it, and was not recognised."""
    told = {one.word for one in clip.heard}
    return not clip.problem and clip.expected in words and clip.expected not in told


def summary(clips: Sequence[Clip], words: Sequence[str]) -> Summary:
    whole = [clip for clip in clips if not clip.problem]
    seconds = sum(clip.seconds for clip in whole)
    positives = sum(clip.expected in words for clip in whole)
    rejects = sum(missed(clip, words) for clip in whole)
    accepts = sum(len(false_accepts(clip)) for clip in whole)
    return Summary(
        files=len(clips),
        seconds=round(seconds, 3),
        unreadable=len(clips) - len(whole),
        positives=positives,
        found=positives - rejects,
        false_rejects=rejects,
        false_accepts=accepts,
        false_accepts_per_hour=round(accepts / seconds * 3600, 2) if seconds else 0.0,
    )


def in_its_room(pcm: bytes) -> bytes:
    """s16le mono at 16 kHz with `FRONT_S` of its own room before it and `BACK_S` behind it."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float64)
    room = quietest(samples)
    if not len(room):
        return bytes(int(FRONT_S * RATE_BYTES)) + pcm + bytes(int(BACK_S * RATE_BYTES))
    return _s16(_grains(room, FRONT_S)) + pcm + _s16(_grains(room, BACK_S))


def quietest(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """The longest stretch, up to 0.3 s, that is steadily quiet; empty where nothing was recorded."""
    frames = samples[: len(samples) // _FRAME * _FRAME].reshape(-1, _FRAME)
    loudness = np.sqrt((frames**2).mean(axis=1))
    recorded = loudness >= _DIGITAL_SILENCE
    if not recorded.any():
        return samples[:0]
    floor = loudness[recorded].min()
    loudness[~recorded] = np.inf
    for count in _STRETCHES:
        if count > len(loudness):
            continue
        loudest = np.lib.stride_tricks.sliding_window_view(loudness, count).max(axis=1)
        at = int(loudest.argmin())
        if loudest[at] <= _STEADY * floor:
            return samples[at * _FRAME : (at + count) * _FRAME]
    at = int(loudness.argmin())
    return samples[at * _FRAME : (at + 1) * _FRAME]


def _grains(room: NDArray[np.float64], seconds: float) -> NDArray[np.float64]:
    """More of the same: overlapping pieces from random places, half of them backwards, so that no loop is heard.

    Windows of sine shape, half a piece apart: their powers add up to 1, as that of sound without relation must.
    """
    chance = np.random.default_rng(len(room))
    size = min(len(room), _GRAIN) // 2 * 2
    out = np.zeros(int(seconds * RATE_BYTES / 2) + 2 * size)
    window = np.sin(np.pi * (np.arange(size) + 0.5) / size)
    for at in range(0, len(out) - size + 1, size // 2):
        begin = chance.integers(0, len(room) - size + 1)
        piece = room[begin : begin + size][:: chance.choice((-1, 1))]
        out[at : at + size] += window * piece
    return out[size : len(out) - size]


def _s16(samples: NDArray[np.float64]) -> bytes:
    return bytes(samples.round().clip(-32768, 32767).astype("<i2").tobytes())


def _raw(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadAudio(f"{path} cannot be read: {error.strerror}.") from None
    if len(data) < 2:
        raise BadAudio(f"{path} holds no sound, not one sample.", code="audio-empty")
    return data[: len(data) // 2 * 2]
