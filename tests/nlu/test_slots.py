"""Slots of whole sentences, written by hand for every intent, and what must hold of any text."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.nlu.same import same_slots
from assistant.nlu.slots import answer_to, slots_of
from assistant.nlu.vocabulary import INTENTS
from tests.nlu.house import HOUSE

CASES = [line.split("\t") for line in (Path(__file__).parent / "slots_en.tsv").read_text("utf-8").splitlines()]
ODD = [
    "",
    " ",
    "a",
    "\x00\x07",
    "\u200b",
    "um uh please",
    "。",
    "5",
    "-",
    "%",
    ".",
    "half",
    "播放音乐 please",
    "🙂 lights",
    "the",
    "in",
    "to",
]
WANTED = ("duration", "name", "item", "temperature", "volume_level", "volume_step", "search_query")
PIECES = [
    "five", "minutes", "the", "in", "kitchen", "lamp", "timer", "for", "by", "half", "an", "hour", "play", "song",
    "on", "add",
    "list", "to", "off", "is", "%", "volume", "up", "one", "so", "and", "it", "called", "number", "back", "room",
    "speaker", "as",
]  # fmt: skip


@pytest.mark.parametrize(("intent", "text", "expected"), CASES, ids=[f"{case[0][4:]}: {case[1]}" for case in CASES])
def test_a_sentence_gives_its_slots(intent: str, text: str, expected: str) -> None:
    slots = slots_of(intent, text, HOUSE)
    assert same_slots(json.loads(expected), slots), slots


def test_the_cases_are_of_every_intent_with_slots() -> None:
    without = {"HassGetCurrentTime", "HassGetWeather", "HassNevermind"}
    assert {case[0] for case in CASES} >= {intent for intent in INTENTS if intent.startswith("Hass")} - without
    assert len(CASES) >= 150


@pytest.mark.parametrize(
    ("intent", "wanted", "text", "expected"),
    [
        ("HassStartTimer", "duration", "five minutes", {"minutes": 5}),
        ("HassStartTimer", "duration", "five", {"minutes": 5}),
        ("HassStartTimer", "duration", "um an hour and a half please", {"hours": 1, "minutes": 30}),
        ("HassStartTimer", "duration", "i dont know", None),
        ("HassIncreaseTimer", "duration", "by ten", {"minutes": 10}),
        ("HassCancelTimer", "name", "the pasta one", {"name": "pasta"}),
        ("HassCancelTimer", "name", "pasta", {"name": "pasta"}),
        ("HassCancelTimer", "name", "the ten minute timer", {"start_minutes": 10}),
        ("HassSetVolume", "volume_level", "forty percent", {"volume_level": 40}),
        ("HassSetVolume", "volume_level", "half", {"volume_level": 50}),
        ("HassSetVolumeRelative", "volume_step", "down please", {"volume_step": "down"}),
        ("HassClimateSetTemperature", "temperature", "twenty one and a half", {"temperature": 21.5}),
        ("HassClimateSetTemperature", "temperature", "warm", None),
        ("HassShoppingListAddItem", "item", "milk and eggs please", {"item": "milk and eggs"}),
        ("HassTurnOn", "name", "the one in the kitchen i mean the kitchen lamp", {"name": "kitchen lamp"}),
        ("HassTurnOn", "name", "all the lights in the office", {"area": "office", "domain": "light"}),
        ("HassTurnOff", "name", "the lava lamp", {"name": "lava lamp"}),
        ("HassTurnOff", "name", "well who knows what anybody would ever say to that", None),
        ("HassMediaSearchAndPlay", "search_query", "some jazz", {"search_query": "jazz"}),
        ("HassStartTimer", "duration", "", None),
    ],
)
def test_the_answer_to_a_question_for_one_slot(
    intent: str, wanted: str, text: str, expected: dict[str, object] | None
) -> None:
    assert answer_to(intent, wanted, text, HOUSE) == expected


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("intent", [*INTENTS, "", "Other"])
def test_odd_text_has_slots_of_no_use_and_no_error(intent: str, text: str) -> None:
    for value in slots_of(intent, text, HOUSE).values():
        assert value != ""
    for wanted in WANTED:
        assert answer_to(intent, wanted, text, HOUSE) != {}


@settings(max_examples=300)
@given(st.sampled_from(INTENTS), st.lists(st.sampled_from(PIECES), max_size=14), st.sampled_from(["en", "de", "ko"]))
def test_any_order_of_command_words(intent: str, words: list[str], language: str) -> None:
    for slot, value in slots_of(intent, " ".join(words), HOUSE, language).items():
        assert slot
        assert isinstance(value, int | float) or value == " ".join(value.split()) != ""


@given(st.sampled_from(INTENTS), st.text(max_size=60))
def test_any_text(intent: str, text: str) -> None:
    slots = slots_of(intent, text, HOUSE)
    assert slots == slots_of(intent, text, HOUSE)


@pytest.mark.parametrize("intent", INTENTS)
@pytest.mark.parametrize(
    "text",
    ["set a timer for five minutes " * 2000, "and so " * 5000, "x" * 100_000, "in the " * 5000, "add milk " * 5000,
    "a half " * 5000],
    ids=["sentences", "conjunctions", "letters", "places", "items", "parts"],
)  # fmt: skip
def test_ten_thousand_words_are_done_at_once(intent: str, text: str) -> None:
    started = time.perf_counter()
    slots_of(intent, text, HOUSE)
    assert time.perf_counter() - started < 0.5


@pytest.mark.alone("within five milliseconds")
def test_a_sentence_takes_little_time() -> None:
    started = time.perf_counter()
    for intent, text, _ in CASES:
        slots_of(intent, text, HOUSE)
    assert (time.perf_counter() - started) / len(CASES) < 0.005
