"""Numbers that no list of the templates holds are commands all the same; the skills know what to say of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.nlu.language import GERMAN
from assistant.nlu.numbers import numbers
from assistant.nlu.vocabulary import INTENTS
from assistant.stages.intent_numbers import MOST, in_digits
from assistant.stages.intent_templates import TemplateIntent
from tests.stages.test_intent_templates import ask, made

LAMP = {"name": ["kitchen lamp"]}


@pytest.fixture(scope="module")
def engine() -> TemplateIntent:
    return made(language="en", intents=list(INTENTS), names=LAMP)


@pytest.fixture(scope="module")
def german() -> TemplateIntent:
    return made(language="de", intents=list(INTENTS))


@pytest.mark.parametrize(
    ("text", "name", "slots"),
    [
        ("set a timer for 437 minutes", "HassStartTimer", {"minutes": 437}),
        ("set a timer for 0 minutes", "HassStartTimer", {"minutes": 0}),
        ("set a timer for 3600 seconds", "HassStartTimer", {"seconds": 3600}),
        ("set a timer for 150 hours", "HassStartTimer", {"hours": 150}),
        ("set a timer for 1 hour and 437 minutes", "HassStartTimer", {"hours": 1, "minutes": 437}),
        ("set a timer for four hundred and thirty-seven minutes", "HassStartTimer", {"minutes": 437}),
        ("set a timer for one hundred minutes", "HassStartTimer", {"minutes": 100}),
        ("set a timer for five minutes", "HassStartTimer", {"minutes": 5}),
        ("add 120 minutes to my timer", "HassIncreaseTimer", {"minutes": 120}),
        ("cancel the 437 minute timer", "HassCancelTimer", {"start_minutes": 437}),
        ("set the volume to 150 percent", "HassSetVolume", {"volume_level": 150}),
        ("set the volume to one hundred and fifty percent", "HassSetVolume", {"volume_level": 150}),
        ("set the volume to zero percent", "HassSetVolume", {"volume_level": 0}),
        ("increase the volume by 150 percent", "HassSetVolumeRelative", {"volume_step": 150}),
        ("decrease the volume by 150 percent", "HassSetVolumeRelative", {"volume_step": -150}),
        ("decrease the volume by five percent", "HassSetVolumeRelative", {"volume_step": -5}),
        ("set the kitchen lamp to 120 percent", "HassLightSet", {"name": "kitchen lamp", "brightness": 120}),
        ("set the temperature to 21.3 degrees", "HassClimateSetTemperature", {"temperature": 21.3}),
        ("set the temperature to 200 degrees", "HassClimateSetTemperature", {"temperature": 200}),
        ("play one hundred and one dalmatians", "HassMediaSearchAndPlay",
         {"search_query": "one hundred and one dalmatians"}),
        ("set a timer for -5 minutes", "HassStartTimer", {"minutes": -5}),
        ("set a timer for minus five minutes", "HassStartTimer", {"minutes": -5}),
        ("set a timer for 99999999999 hours", "HassStartTimer", {"hours": 99999999999}),
        (f"set a timer for {100 * MOST} minutes", "HassStartTimer", {"minutes": MOST}),
        ("set a timer for 1 hour -10 minutes", "HassStartTimer", {"hours": 1, "minutes": -10, "sum": 1}),
        ("set the volume to minus 20 percent", "HassSetVolume", {"volume_level": -20}),
        ("set the volume to 1000000000 percent", "HassSetVolume", {"volume_level": 10**9}),
        ("decrease the volume by -5 percent", "HassSetVolumeRelative", {"volume_step": 5, "sum": 1}),
        ("set a timer for five billion minutes", "HassStartTimer", {"minutes": 5 * 10**9}),
        ("set the volume to 1e9 percent", "HassSetVolume", {"volume_level": 10**9}),
        ("set a timer for -1e99 minutes", "HassStartTimer", {"minutes": -MOST}),
        ("volume minus ten", None, {}),
    ],
)  # fmt: skip
def test_a_number_that_no_list_holds(engine: TemplateIntent, text: str, name: str | None, slots: object) -> None:
    match = ask(engine, text)
    assert (match.name, match.slots) == (name, slots)


@pytest.mark.parametrize(
    ("language", "text", "minutes"),
    [("de", "stelle einen Timer auf 437 Minuten", 437), ("fr", "mets un minuteur de 437 minutes", 437)],
)
def test_in_other_languages(language: str, text: str, minutes: int) -> None:
    assert ask(made(language=language, intents=["HassStartTimer"]), text).slots == {"minutes": minutes}


@pytest.mark.parametrize(
    ("text", "name", "slots"),
    [
        ("stelle einen Timer auf vierhundertsiebenunddreißig Minuten", "HassStartTimer", {"minutes": 437}),
        ("stelle einen Timer auf hundertdreissig Minuten", "HassStartTimer", {"minutes": 130}),
        ("stelle einen Timer auf zweihundert Minuten", "HassStartTimer", {"minutes": 200}),
        ("stelle einen Timer auf fünf Minuten", "HassStartTimer", {"minutes": 5}),
        ("stelle einen Timer auf -5 Minuten", "HassStartTimer", {"minutes": -5}),
        ("stelle einen Timer auf minus fünf Minuten", "HassStartTimer", {"minutes": -5}),
        ("stelle einen Timer auf 99999999999 Stunden", "HassStartTimer", {"hours": 99999999999}),
        ("Lautstärke auf 1000000000 Prozent", "HassSetVolume", {"volume_level": 10**9}),
        ("stelle einen Timer auf fünf Milliarden Minuten", "HassStartTimer", {"minutes": 5 * 10**9}),
        ("Lautstärke auf hundertfünfzig Prozent", "HassSetVolume", {"volume_level": 150}),
        ("erhöhe die Lautstärke um -10 Prozent", "HassSetVolumeRelative", {"volume_step": -10, "sum": 1}),
    ],
)
def test_in_german(german: TemplateIntent, text: str, name: str, slots: object) -> None:
    match = ask(german, text)
    assert (match.name, match.slots) == (name, slots)


@pytest.mark.parametrize(
    ("word", "value"),
    [("hundert", 100), ("hunderteins", 101), ("einhundertzwei", 102), ("neunhundertneunundneunzig", 999),
     ("dreißig", 30), ("dreissig", 30), ("einundzwanzig", 21), ("siebenhundert", 700), ("zwo", 2)],
)  # fmt: skip
def test_german_words_of_numbers(word: str, value: int) -> None:
    assert [number.value for number in numbers([word], GERMAN)] == [value]


def test_a_list_of_the_user_s_holds_what_he_says(tmp_path: Path) -> None:
    (tmp_path / "en").mkdir()
    (tmp_path / "en/fan.yaml").write_text(
        "lists:\n  fan_step: {range: {from: 1, to: 6}}\n  timer_seconds: {range: {from: 1, to: 59}}\n"
        "intents:\n  FanStep: {data: [{sentences: ['fan to step {fan_step:step}']}]}\n"
    )
    engine = made(language="en", intents=["HassStartTimer"], folders=[str(tmp_path)])
    assert ask(engine, "fan to step 6").slots == {"step": 6}
    assert ask(engine, "fan to step 7").name is None
    assert ask(engine, "set a timer for 59 seconds").slots == {"seconds": 59}
    assert ask(engine, "set a timer for 60 seconds").name is None


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("Wait two thousand five hundred seconds, please", "wait 2500 seconds please"),
        ("volume one hundred and one percent", "volume 101%"),
        ("Twenty-five minutes", "Twenty-five minutes"),
        ("500 minutes", "500 minutes"),
        ("", ""),
    ],
)
def test_large_numbers_in_words_become_digits(text: str, digits: str) -> None:
    assert in_digits(text, "en") == digits
