"""Intents that other programs carry out, and the names of what stands in a house."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from assistant.api.handlers import MOST_LETTERS
from assistant.memory_orchestrator.estimate import estimate
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


_AS_MANY_AS_MAY_BE = """
import random, sys
from pathlib import Path
import home_assistant_intents
from assistant import paths
from assistant.messages import IntentRequest
from assistant.nlu.vocabulary import INTENTS
from assistant.stages.base import EngineConfig
from assistant.stages.intent_classifier import ClassifierIntent
random.seed(1)
letters, length = int(sys.argv[1]), int(sys.argv[2])
names = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=length)) for _ in range(letters // length)]
intents = sorted({*INTENTS, *home_assistant_intents.get_intents("en")["intents"]})
options = {"language": "en", "intents": intents, "names": {"name": names}}
folder = paths.data_file("intents-en")
engine = ClassifierIntent(EngineConfig(model="en", model_dir=folder, cache_dir=Path("/"), threads=1, options=options))
engine.load()
assert next(engine.run(IntentRequest(text=f"turn on {names[-1]}"))).slots == {"name": names[-1]}
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("RssAnon")))
"""


@pytest.mark.parametrize("length", [64, 13])
def test_as_many_names_as_are_taken_stay_within_what_the_stage_is_promised(length: int) -> None:
    """All intents of the language; names without a beginning in common, which take most."""
    ran = subprocess.run(
        [sys.executable, "-c", _AS_MANY_AS_MAY_BE, str(MOST_LETTERS), str(length)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(ran.stdout) * 1024 <= estimate("intent", "classifier", 0).anon


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
