"""Volume and mute; never mind, say it again, help; what other programs would have to do."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant import skills
from assistant.nlu.vocabulary import INTENTS
from assistant.skills import Context, Missing
from assistant.skills.volume import NO_SPEAKER
from assistant.speech_text import speakable
from tests.skills.world import Book, Loud

NOW = datetime(2026, 11, 29)


def said(intent: str, slots: dict[str, Any] | None = None, **context: Any) -> str:
    reply = asyncio.run(skills.answer(intent, slots or {}, Context(now=NOW, **context)))
    assert reply is not None
    return reply


# --- volume ---------------------------------------------------------------------------------------------------------
def test_a_level() -> None:
    speaker = Loud()
    assert said("HassSetVolume", {"volume_level": 40}, speaker=speaker) == "Volume 40 percent."
    assert speaker.percent == 40
    for level in (-1, 101, 1e300):
        reply = said("HassSetVolume", {"volume_level": level}, speaker=speaker)
        assert reply == "The volume goes from 0 to 100; it stays at 40 percent."
    with pytest.raises(Missing) as caught:
        said("HassSetVolume", speaker=speaker)
    assert caught.value.slot == "volume_level"
    assert speaker.percent == 40


@pytest.mark.parametrize(
    ("before", "step", "after"), [(50, "up", 60), (50, "down", 40), (95, "up", 100), (5, "down", 0), (50, -25, 25)]
)
def test_louder_and_quieter(before: float, step: str | int, after: float) -> None:
    speaker = Loud(before)
    assert said("HassSetVolumeRelative", {"volume_step": step}, speaker=speaker) == f"Volume {after} percent."
    assert speaker.percent == after


def test_the_ends_of_the_scale_are_told() -> None:
    assert said("HassSetVolumeRelative", {"volume_step": "up"}, speaker=Loud(100)) == "I am as loud as can be."
    assert said("HassSetVolumeRelative", {"volume_step": "down"}, speaker=Loud(0)) == "I am as quiet as can be."
    assert said("HassSetVolumeRelative", {"volume_step": 500}, speaker=Loud(30)).startswith("The volume goes from")
    with pytest.raises(Missing, match="Louder or quieter"):
        said("HassSetVolumeRelative", speaker=Loud())


def test_the_level_before_comes_back() -> None:
    speaker = Loud(70)
    assert said("HassMediaPlayerMute", speaker=speaker) == "The sound is off."
    said("HassMediaPlayerMute", speaker=speaker)
    assert speaker.percent == 0
    assert said("HassMediaPlayerUnmute", speaker=speaker) == "The sound is on, at 70 percent."
    said("HassMediaPlayerMute", speaker=speaker)
    assert said("HassSetVolumeRelative", {"volume_step": "up"}, speaker=speaker) == "Volume 80 percent."


@pytest.mark.parametrize(
    "intent", ["HassSetVolume", "HassSetVolumeRelative", "HassMediaPlayerMute", "HassMediaPlayerUnmute"]
)
def test_another_device_is_not_ours_to_change(intent: str) -> None:
    slots = {"volume_level": 10, "volume_step": "up"}
    speaker = Loud(50)
    for where, told in ({"name": "kitchen speaker"}, "the kitchen speaker"), ({"area": "kitchen"}, "the kitchen"):
        reply = said(intent, {**slots, **where}, speaker=speaker)
        assert reply.startswith("No program is connected that controls the ")
        assert reply.endswith(f" of {told}.")
    assert speaker.percent == 50
    assert said(intent, {**slots, "name": "volume"}, speaker=speaker) != reply
    assert said(intent, slots) == NO_SPEAKER


# --- talk -----------------------------------------------------------------------------------------------------------
def test_what_was_said_last_is_said_again() -> None:
    assert said("AssistantRepeat", last_reply="It is 8:05 PM.") == "It is 8:05 PM."
    assert said("AssistantRepeat") == "I have not said anything yet."


def test_never_mind_needs_nothing() -> None:
    assert said("HassNevermind") == "Okay."


def test_help_names_what_works_and_nothing_else() -> None:
    assert said("AssistantHelp") == "I can tell the time and the date. Anything else I try to answer myself."
    everything = said(
        "AssistantHelp", timers=Book(), shopping=object(), speaker=Loud(), others=("HassLightSet", "Mine")
    )
    assert everything == (
        "I can tell the time and the date, set timers, keep your shopping list, change my volume, control lights and"
        " ask the programs that are connected for more. Anything else I try to answer myself."
    )
    assert "music" in said("AssistantHelp", others=("HassMediaSearchAndPlay",))
    assert "more" not in said("AssistantHelp", others=("HassGetCurrentTime",))


# --- what others would have to do -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("intent", "slots", "told"),
    [
        ("HassLightSet", {"area": "kitchen", "brightness": 50}, "controls lights"),
        ("HassTurnOn", {"area": "office", "domain": "light"}, "controls lights"),
        ("HassTurnOff", {"name": "kettle"}, "controls the kettle"),
        ("HassTurnOff", {"name": "my lamp"}, "controls my lamp"),
        ("HassTurnOn", {}, "controls devices"),
        ("HassGetState", {"name": "front door"}, "knows the state of the front door"),
        ("HassMediaSearchAndPlay", {"search_query": "jazz"}, "plays music"),
        ("HassMediaNext", {}, "plays music"),
        ("HassClimateSetTemperature", {"temperature": 20}, "controls the heating"),
        ("HassClimateGetTemperature", {}, "measures the temperature"),
        ("HassGetWeather", {}, "knows the weather"),
    ],
)
def test_nobody_is_there_to_do_it(intent: str, slots: dict[str, Any], told: str) -> None:
    assert said(intent, slots) == f"No program is connected that {told}."


@given(
    st.sampled_from(INTENTS),
    st.dictionaries(
        st.sampled_from(["name", "area", "domain", "volume_level", "volume_step", "item", "temperature", "minutes"]),
        st.none() | st.integers() | st.floats() | st.text(max_size=100) | st.booleans(),
    ),
)
def test_every_intent_has_a_sentence_for_everything(intent: str, slots: dict[str, Any]) -> None:
    try:
        reply = said(intent, slots, timers=Book(), speaker=Loud())
    except Missing as missing:
        reply = missing.question
    assert reply.endswith((".", "?"))
    assert speakable(reply)
