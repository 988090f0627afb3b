"""Intents that other programs carry out, and the names of what stands in a house."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.messages import IntentMatch, IntentRequest
from assistant.stages.base import EngineConfig
from assistant.stages.intent_templates import TemplateIntent

INTENTS = ["HassGetCurrentTime", "HassTurnOn", "HassTurnOff", "HassMediaPause", "HassLightSet"]
NAMES = {"name": ["kitchen lamp", "O'Neil's radio", "café", "tv 2"], "area": ["kitchen", "bedroom"]}


def made(**options: object) -> TemplateIntent:
    known = {"language": "en"}
    engine = TemplateIntent(
        EngineConfig(model="en", model_dir=Path("/"), cache_dir=Path("/"), threads=1, options=known | options)
    )
    engine.load()
    return engine


def ask(engine: TemplateIntent, text: str) -> IntentMatch:
    (match,) = engine.run(IntentRequest(text=text))
    return match


@pytest.fixture(scope="module")
def engine() -> TemplateIntent:
    return made(intents=INTENTS, names=NAMES)


@pytest.mark.parametrize(
    ("text", "name", "slots"),
    [
        ("turn on the kitchen lamp", "HassTurnOn", {"name": "kitchen lamp"}),
        ("Could you turn the kitchen lamp off, please?", "HassTurnOff", {"name": "kitchen lamp"}),
        ("switch off O’Neil’s radio", "HassTurnOff", {"name": "O'Neil's radio"}),
        ("turn on the café", "HassTurnOn", {"name": "café"}),
        ("turn on tv 2", "HassTurnOn", {"name": "tv 2"}),
        ("turn off the lights in the bedroom", "HassTurnOff", {"area": "bedroom", "domain": "light"}),
        ("set the kitchen lamp to 30 percent", "HassLightSet", {"name": "kitchen lamp", "brightness": 30}),
        ("pause the music", "HassMediaPause", {}),
    ],
)
def test_what_is_registered_is_recognised(
    engine: TemplateIntent, text: str, name: str, slots: dict[str, object]
) -> None:
    match = ask(engine, text)
    assert (match.name, match.slots) == (name, slots)


@pytest.mark.parametrize("text", ["turn on the attic lamp", "turn on", "what is a kitchen lamp", "open the kitchen"])
def test_what_does_not_stand_in_the_house_is_no_command(engine: TemplateIntent, text: str) -> None:
    assert ask(engine, text).name is None


def test_our_own_commands_stay(engine: TemplateIntent) -> None:
    assert ask(engine, "what time is it").name == "HassGetCurrentTime"


def test_nothing_of_it_is_recognised_when_nobody_has_registered() -> None:
    engine = made()
    for text in ("turn on the kitchen lamp", "pause the music", "turn off the lights in the bedroom"):
        assert ask(engine, text).name is None


def test_an_intent_that_nobody_has_sentences_for_does_no_harm() -> None:
    engine = made(intents=["BrewCoffee", "HassTurnOn"], names=NAMES)
    assert ask(engine, "turn on the kitchen lamp").name == "HassTurnOn"
