"""Sentences with a command in them that must not be done at once, or not at all."""

from __future__ import annotations

import pytest

from assistant.nlu.caution import forbidden, kind, later, leaves_out
from assistant.skills.unable import unable


@pytest.mark.parametrize(
    ("intent", "text", "no"),
    [
        ("HassTurnOff", "never turn off the heater", True),
        ("HassTurnOn", "please don't turn on the light", True),
        ("HassTurnOn", "Do not open the garage door", True),
        ("HassTurnOff", "turn off the heater", False),
        ("HassTurnOff", "i don't need the heater turn it off", False),
        ("HassShoppingListAddItem", "don't forget to add milk to the list", False),
        ("HassGetCurrentDate", "what's the date next friday", True),
        ("HassGetCurrentDate", "what week is it", True),
        ("HassGetCurrentDate", "is it tuesday or wednesday", False),
    ],
)
def test_a_prohibition_is_no_order(intent: str, text: str, no: bool) -> None:
    assert forbidden(intent, text) is no


@pytest.mark.parametrize(
    ("intent", "text", "waits"),
    [
        ("HassTurnOff", "turn off the lights in five minutes", True),
        ("HassTurnOn", "in half an hour switch on the heater", True),
        ("HassTurnOn", "turn on the desk lamp at 8 pm", True),
        ("HassTurnOn", "turn on the desk lamp at half past seven", True),
        ("HassDecreaseTimer", "turn the coffee machine off in ten minutes", True),
        ("HassStartTimer", "set a timer for ten minutes", False),
        ("HassDecreaseTimer", "turn the timer down by ten minutes in ten minutes", False),
        ("HassTurnOff", "turn off the lights in the office", False),
        ("HassClimateSetTemperature", "set it at twenty degrees", False),
        ("HassMediaSearchAndPlay", "play at midnight by somebody", False),
    ],
)
def test_what_is_for_another_time_is_noticed(intent: str, text: str, waits: bool) -> None:
    assert later(intent, text) is waits


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ("switch off all the lights except the desk lamp", True),
        ("turn off everything but the fan", True),
        ("all lights off but the desk lamp", True),
        ("turn off all the lights", False),
        ("the kettle please but quick", False),
    ],
)
def test_what_is_to_be_left_out_is_noticed(text: str, out: bool) -> None:
    assert leaves_out("HassTurnOff", text) is out


@pytest.mark.parametrize(
    ("intent", "text", "slots", "what"),
    [
        ("HassTurnOn", "lock the front door", {"name": "front door"}, "lock"),
        ("HassTurnOn", "open the front door", {"name": "front door"}, "cover"),
        ("HassTurnOff", "unlock everything", {"name": "all"}, "lock"),
        ("HassTurnOff", "close the blinds", {"domain": "cover"}, None),
        ("HassTurnOn", "turn on the front door", {"name": "front door"}, None),
        ("HassGetState", "is the front door locked", {}, None),
    ],
)
def test_open_and_lock_are_told_apart(intent: str, text: str, slots: dict[str, str], what: str | None) -> None:
    assert kind(intent, text, slots) == what


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("remind me to call mum in twenty minutes", "remind"),
        ("Hey, can you set a reminder for tomorrow?", "remind"),
        ("set an alarm for seven am", "alarm"),
        ("wake me up at seven", "alarm"),
        ("call my mother", "call"),
        ("who reminded moses to write it down", None),
        ("what is an alarm clock", None),
        ("why do roosters wake me up", None),
        ("call me ishmael who wrote that", None),
        ("what is the call of the wild about", None),
    ],
)
def test_what_it_cannot_do_is_said(text: str, about: str | None) -> None:
    told = unable(text)
    assert (told is None) == (about is None)
    assert about is None or about in (told or "")
