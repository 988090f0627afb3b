"""A voice's configuration and what it makes of text: espeak-ng's phonemes, plain letters, or a refusal. No network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import ModelMissing, ModelUnsupported
from assistant.stages.piper_voice import Phonemizer, Voice, read_voice

TABLE = {mark: [number] for number, mark in enumerate("_^$ abcde")} | {"\u0301": [50]}


def voice(folder: Path, **more: Any) -> Voice:
    path = folder / "voice.onnx.json"
    plain = {"audio": {"sample_rate": 16_000}, "espeak": {"voice": "en-us"}, "phoneme_id_map": TABLE}
    path.write_text(json.dumps(plain | more))
    return read_voice(path)


def test_a_voice_of_letters_gets_them_taken_apart(tmp_path: Path) -> None:
    letters = voice(tmp_path, phoneme_type="text")
    (part,) = Phonemizer(letters).parts("abé.")
    assert part == ["a", "b", "e", "\u0301", "."]
    ids = letters.ids(part)
    pad = TABLE["_"][0]
    assert ids == [
        TABLE["^"][0],
        pad,
        TABLE["a"][0],
        pad,
        TABLE["b"][0],
        pad,
        TABLE["e"][0],
        pad,
        50,
        pad,
        TABLE["$"][0],
    ]
    assert letters.ids(["?"]) == letters.ids([]), "what the voice does not know is left out"


def test_marks_alone_are_nothing_to_say(tmp_path: Path) -> None:
    assert list(Phonemizer(voice(tmp_path, phoneme_type="text")).parts("... !? -")) == []


def test_a_language_that_espeak_has_not_is_told_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ModelUnsupported, match="no voice 'xx-nobody'"):
        Phonemizer(voice(tmp_path, espeak={"voice": "xx-nobody"}))


def test_arabic_without_vowels_is_said_with_them(tmp_path: Path) -> None:
    arabic = Phonemizer(voice(tmp_path, espeak={"voice": "ar"}))
    (said,) = arabic.parts("كتب الولد الدرس")  # "the boy wrote the lesson", as people write it
    letters = "".join(one for one in said if one not in "ˈˌː")
    assert letters.startswith("kataba")
    assert "waladu" in letters, "espeak-ng alone would read walad"


def test_phonemes_that_need_a_download_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnsupported, match="pinyin"):
        voice(tmp_path, phoneme_type="pinyin")


def test_a_configuration_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=r"none\.json is not there"):
        read_voice(tmp_path / "none.json")
