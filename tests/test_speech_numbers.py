"""Plain numbers are left to espeak-ng: its phonemes are those of the words that num2words writes."""

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from num2words import num2words

from assistant import speech_numbers
from assistant.speech_text import speakable


@pytest.fixture(scope="module")
def phonemes() -> Callable[[str], str]:
    """Of a text in American English; stress, gaps and how a word begins that follows another one left out."""
    piper = importlib.util.find_spec("piper")
    assert piper is not None
    assert piper.origin is not None
    folder = Path(piper.origin).parent
    (library,) = folder.glob("espeakbridge*.so")  # by path: the package would load onnxruntime
    spec = importlib.util.spec_from_file_location("piper.espeakbridge", library)
    assert spec is not None
    assert spec.loader is not None
    bridge: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bridge)
    bridge.initialize(str(folder / "espeak-ng-data"))

    def of(text: str) -> str:
        bridge.set_voice("en-us")
        said = "".join(part for part, _, _ in bridge.get_phonemes(text))
        said = re.sub("[ᵻə]", "ɪ", said)  # one weak vowel, three ways of writing it
        return re.sub(r"[ˈˌ ʲ]|(?<=ɚ)ɹ|ɹ(?=\Z)", "", said)

    return of


def words(number: float, kind: str = "cardinal") -> str:
    """As in American English: "one hundred five"."""
    return re.sub(r",|\band ", "", str(num2words(number, to=kind)))


@pytest.mark.parametrize(
    "number", [0, 7, 12, 20, 42, 99, 100, 105, 110, 999, 1000, 1001, 1234, 20_000, 100_000, 1_000_000, 1_234_567, 10**9]
)
def test_whole_numbers(phonemes: Callable[[str], str], number: int) -> None:
    for written in (f"{number}", f"{number:,}"):
        assert phonemes(written) == phonemes(words(number))


@pytest.mark.parametrize("number", [0.5, 3.14, 98.6, 1.05, 22.5, 1234.56])
def test_decimals(phonemes: Callable[[str], str], number: float) -> None:
    assert phonemes(speakable(f"{number:,}")) == phonemes(words(number))


@pytest.mark.parametrize("number", [1, 2, 3, 4, 11, 12, 13, 20, 21, 22, 33, 100, 101, 112, 1000, 5000])
def test_ordinals(phonemes: Callable[[str], str], number: int) -> None:
    written = speakable(speech_numbers.ordinal(number))
    assert phonemes(written).removeprefix("wʌn") == phonemes(words(number, "ordinal")).removeprefix("wʌn")


@pytest.mark.parametrize("year", [1066, 1100, 1492, 1600, 1776, 1905, 1980, 1999, 2000, 2005, 2010, 2026, 2099])
def test_years(phonemes: Callable[[str], str], year: int) -> None:
    said = speakable(f"It was in {year}.")
    assert phonemes(said) == phonemes(f"It was in {words(year, 'year').replace('-', ' ')}.")


def test_numbers_below_a_hundred_in_words() -> None:
    assert [speech_numbers.in_words(number) for number in range(100)] == [words(number) for number in range(100)]
