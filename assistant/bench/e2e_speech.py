"""The spoken questions of `bench e2e`: which recordings, where the speech in them ends, and the files both sides get.

Where speech ends and when that is known is what the microphone's endpointing says: its last step that is voiced, and
the step at which the silence behind it has been long enough. Imports `audio` and `bench.wer` (the manifest).
"""

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from assistant import paths
from assistant.audio.endpointing import Endpointer
from assistant.audio.formats import read_audio
from assistant.audio.front_messages import EndpointSettings
from assistant.audio.vad import WINDOW_S, speech_probabilities
from assistant.bench.wer import corpus
from assistant.errors import AssistantError, UsageError
from assistant.messages import ASR_RATE

_ASKED = {"command", "sentence", "digits"}
_NOT_ASKED = {"noise", "two_speakers", "long_speech", "wake_positive", "wake_negative", "malformed"}
_SOUNDS = (".wav", ".flac")

Item = TypeVar("Item")


class Utterance(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from the first sample."""

    file: Path
    pcm: bytes
    """s16le mono 16 kHz; silence follows."""
    speech_end_s: float
    decided_s: float
    """When the endpointing has heard the silence behind it."""


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """Of one utterance, WAV at 16 kHz."""

    whole: Path
    """What is played to ours."""
    cut: Path
    """Up to the end of speech: what the naive way gets."""
    half: Path
    """Another question, to warm up with."""


def default_recordings() -> Path:
    """The human recordings beside the checkout if they are there, else the shipped question."""
    root = paths.checkout()
    folder = root.parent / "shared/speech" if root is not None else Path()
    return folder if root is not None and folder.is_dir() else paths.data_file("question.wav")


def recordings(where: Path) -> list[Path]:
    """A file; of a folder with a manifest.json its English questions and commands, else every sound file in it.

    Raises `UsageError` when there is none.
    """
    if where.is_file():
        return [where]
    if (where / "manifest.json").is_file():
        found = [where / clip.file for clip in corpus(where) if clip.language == "en" and is_asked(clip.categories)]
    else:
        found = sorted(path for path in where.glob("*") if path.suffix.lower() in _SOUNDS)
    if not found:
        raise UsageError(f"there are no recordings in {where}; --wavs names a folder of WAV or FLAC files")
    return found


def is_asked(categories: Sequence[str]) -> bool:
    return bool(_ASKED & set(categories)) and not _NOT_ASKED & set(categories)


def picked(items: Sequence[Item], n: int) -> list[Item]:
    """`n` of them, spread evenly over all, from the beginning again when there are fewer; 0 = each once."""
    if not items or n <= 0:
        return list(items)
    if n > len(items):
        return [items[number % len(items)] for number in range(n)]
    return [items[number * len(items) // n] for number in range(n)]


def utterances(where: Path, n: int, settings: EndpointSettings) -> list[Utterance]:
    """Those of the recordings in which somebody speaks. Raises `UsageError`, `BadAudio`."""
    found = []
    for path in recordings(where):
        pcm = path.read_bytes() if path.suffix == ".raw" else read_audio(path).pcm
        if (one := utterance(path, pcm, settings)) is not None:
            found.append(one)
    if not found:
        raise UsageError(f"nobody speaks in the recordings of {where}")
    return picked(found, n)


def utterance(file: Path, pcm: bytes, settings: EndpointSettings) -> Utterance | None:
    """None when nobody speaks."""
    silence = bytes(round((settings.end_silence_s + settings.no_speech_s + 1) * ASR_RATE) * 2)
    ends = ends_of(speech_probabilities(pcm + silence), settings)
    if ends is None:
        return None
    return Utterance(file=file, pcm=pcm, speech_end_s=ends[0], decided_s=ends[1])


def ends_of(probabilities: Sequence[float], settings: EndpointSettings) -> tuple[float, float] | None:
    """Where speech ends, and when that is decided; None when nobody speaks. One probability for each window."""
    endpointer = Endpointer(settings)
    for number, probability in enumerate(probabilities, 1):
        for turn in endpointer.feed(WINDOW_S, probability):
            if turn.what == "end":
                heard = turn.reason != "no-speech"
                return (number * WINDOW_S - turn.silence_s, number * WINDOW_S) if heard else None
    return None


def written(one: Utterance, folder: Path) -> Files:
    """Its files, over those of the one before. Raises `AssistantError` when the disk is full."""
    cut = one.pcm[: round(one.speech_end_s * ASR_RATE) * 2]
    files = Files(whole=folder / "whole.wav", cut=folder / "cut.wav", half=folder / "half.wav")
    try:
        for path, pcm in ((files.whole, one.pcm), (files.cut, cut), (files.half, cut[: len(cut) // 4 * 2])):
            with wave.open(str(path), "wb") as file:
                file.setparams((1, 2, ASR_RATE, 0, "NONE", ""))
                file.writeframes(pcm)
    except OSError as error:
        raise AssistantError(f"{folder} cannot be written: {error.strerror}") from None
    return files
