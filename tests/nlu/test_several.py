"""One command for several things becomes one for each."""

from __future__ import annotations

import pytest

from assistant.nlu.several import each_of
from assistant.nlu.slots import slots_of
from tests.nlu.house import HOUSE


@pytest.mark.parametrize(
    ("intent", "text", "expected"),
    [
        ("HassTurnOff", "turn off the tv and the heater", [{"name": "tv"}, {"name": "heater"}]),
        (
            "HassTurnOff",
            "turn off the lights in the kitchen and the hallway",
            [{"area": "kitchen", "domain": "light"}, {"area": "hallway", "domain": "light"}],
        ),
        (
            "HassTurnOn",
            "kitchen and hallway lights on",
            [{"area": "kitchen", "domain": "light"}, {"area": "hallway", "domain": "light"}],
        ),
        (
            "HassLightSet",
            "set the desk lamp and the floor lamp to thirty percent",
            [{"brightness": 30, "name": "desk lamp"}, {"brightness": 30, "name": "floor lamp"}],
        ),
        ("HassTurnOn", "tv and radio and heater on", [{"name": "tv"}, {"name": "radio"}, {"name": "heater"}]),
        ("HassTurnOn", "turn on the tv", [{"name": "tv"}]),
        ("HassTurnOn", "turn on the tv and make it quick", [{"name": "tv"}]),
        ("HassTurnOn", "turn on the tv and the lava pond", [{"name": "tv"}]),
        ("HassTurnOn", "turn on the tv and", [{"name": "tv"}]),
        ("HassMediaPause", "pause the tv and the radio", [{"name": "radio"}]),
    ],
)
def test_a_command_for_several_things(intent: str, text: str, expected: list[dict[str, object]]) -> None:
    assert each_of(intent, text, slots_of(intent, text, HOUSE), HOUSE) == expected
