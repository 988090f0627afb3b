"""Names of the house in a sentence, as they are and as they are misheard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.nlu.house import House
from assistant.nlu.words import words_of
from tests.nlu.house import AREAS, HOUSE, NAMES


def found(text: str, house: House = HOUSE) -> list[tuple[str, str]]:
    return [(one.kind, one.value) for one in house.find(words_of(text))]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("turn on the kitchen lamp", "kitchen lamp"), ("the lamp in the kitchen", "kitchen lamp"),
        ("kitchin lamb", "kitchen lamp"), ("kitchen lamb", "kitchen lamp"), ("the brewer", "kettle"),
        ("sprinklers", "sprinkler"),
        ("nightlight", "night light"), ("telly", "tv"), ("the coffee maker", "coffee machine"),
        ("back dough", "back door"),
        ("front dorr", "front door"), ("desk light", "desk lamp"), ("the blinds in my bedroom", "bedroom blinds"),
        ("garage dor", "garage door"), ("humidifer", "humidifier"), ("air con", "air conditioner"),
        ("four lamp", "floor lamp"),
    ],
)  # fmt: skip
def test_a_device_by_any_of_its_names(text: str, value: str) -> None:
    assert found(text) == [("name", value)]


@pytest.mark.parametrize(
    ("text", "value"),
    [("bathroom light", "bathroom"), ("the lounge", "living room"), ("cookroom", "kitchen"), ("bed room", "bedroom"),
     ("dinning room", "dining room"), ("the kitchen light", "kitchen"), ("garage floor", "garage")],
)  # fmt: skip
def test_a_room_stays_that_room(text: str, value: str) -> None:
    assert found(text) == [("area", value)]


@pytest.mark.parametrize("text", ["dehumidifier", "theatre", "tell me", "on", "a lamp", "the box", ""])
def test_what_is_not_there_is_not_found(text: str) -> None:
    assert found(text) == []


def test_every_name_finds_itself() -> None:
    for name in (*NAMES, *AREAS):
        for spoken in name.split("|"):
            assert [value for _, value in found(f"please turn on the {spoken} now")] == [name.split("|")[0]]


def test_the_owners_name_is_used_and_not_our_word_for_it() -> None:
    house = House.of({"name": ["the telly|television"], "area": ["Loft", "attic"]})
    assert found("the television in the loft", house) == [("name", "the telly"), ("area", "Loft")]


def test_a_house_of_nothing_finds_nothing() -> None:
    assert found("turn on the lamp", House.of({})) == []
    assert found("turn on the lamp", House.of({"name": ["", "|", "  "], "media": ["abba"]})) == []


@given(st.lists(st.text(max_size=8), max_size=12), st.lists(st.text(max_size=12), max_size=5))
def test_any_words_in_any_house(words: list[str], names: list[str]) -> None:
    house = House.of({"name": names, "area": names[:2]})
    for one in house.find(words_of(" ".join(words))):
        assert 0 <= one.start < one.end
        assert 0 < one.score <= 1
