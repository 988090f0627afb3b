"""Numbers: every way to say them, and there and back again with a library that writes them out."""

from __future__ import annotations

import num2words
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.nlu.language import GERMAN, Language, language_of
from assistant.nlu.numbers import Number, number_at, numbers
from assistant.nlu.words import words_of


def values(text: str, code: str = "en") -> list[int | float]:
    return [number.value for number in numbers(words_of(text), language_of(code))]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("twenty five", 25), ("a hundred and fifty", 150), ("one oh five", 105), ("minus five", -5), ("-5", -5),
        ("two point five", 2.5), ("3.5", 3.5), ("half", 0.5), ("a quarter", 0.25), ("three quarters", 0.75),
        ("a dozen", 12), ("two dozen", 24), ("half a dozen", 6), ("a couple of", 2), ("one and a half", 1.5),
        ("½", 0.5),
        ("2½", None), ("1/2", 0.5), ("two thirds", 0.666667), ("point five", 0.5), ("one point twenty five", 1.25),
        ("1,000", 1000), ("2,5", 2.5), ("twenty-seven hundred", 2700), ("a thousand", 1000), ("zero", 0),
        ("two thousand and five", 2005), ("one million two hundred thousand", 1_200_000), ("four hundred", 400),
        ("99999", 99999), ("negative two and a half", -2.5), ("nineteen point five", 19.5), ("eleven", 11),
    ],
)  # fmt: skip
def test_a_number_as_people_say_it(text: str, value: float | None) -> None:
    assert values(text) == ([] if value is None else [value])


def test_its_place_and_the_percent_sign_belong_to_it() -> None:
    assert numbers(words_of("set it to twenty five percent now")) == [Number(25, 3, 6, percent=True)]
    assert numbers(words_of("50%")) == [Number(50, 0, 2, percent=True)]
    assert number_at(words_of("ten per cent"), 0) == Number(10, 0, 3, percent=True)


def test_numbers_that_stand_beside_each_other_stay_apart() -> None:
    assert values("two twenty") == [2, 20]
    assert values("ten five") == [10, 5]
    assert values("twenty minutes and five eggs") == [20, 5]


def test_what_is_no_number_is_none() -> None:
    assert values("and a point of honour for an hour to be exact") == []
    assert values("") == []


@given(st.integers(-99_999_999, 99_999_999))
def test_whole_numbers_there_and_back(value: int) -> None:
    assert values(num2words.num2words(value)) == [value]
    assert values(str(value)) == [value]


@given(st.integers(0, 9_999), st.integers(1, 99))
def test_decimals_there_and_back(whole: int, hundredths: int) -> None:
    value = float(f"{whole}.{hundredths:02}")
    assert values(num2words.num2words(value)) == [value]
    assert values(str(value)) == [value]


@given(st.integers(0, 99))
def test_german_numbers_there_and_back(value: int) -> None:
    assert values(num2words.num2words(value, lang="de"), "de") == [value]


def test_another_language_is_one_more_table() -> None:
    assert values("deux 3", "xx") == [3]
    french = Language(small={"un": 1, "deux": 2})
    assert [number.value for number in numbers(["deux", "3"], french)] == [2, 3]
    assert language_of("de_AT") is language_of("de-AT") is GERMAN


@given(st.lists(st.sampled_from(["a", "and", "half", "hundred", "thousand", "point", "minus", "five", "twenty",
    "oh", "1,0",
                                 "3", "of", "dozen", "%", "per", "-", "½"])))  # fmt: skip
def test_any_order_of_number_words_is_read_to_its_end(words: list[str]) -> None:
    end = 0
    for number in numbers(words):
        assert end <= number.start < number.end <= len(words)
        end = number.end
