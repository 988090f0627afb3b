"""Numbers that would have to be calculated are told from those that are meant as they are said."""

from __future__ import annotations

import pytest

from assistant.nlu.caution import calculates
from assistant.nlu.sums import changed


@pytest.mark.parametrize(
    "text",
    [
        "ten to the power of nine minutes",
        "ten to the ninth minutes",
        "10 to the 9 minutes",
        "half as long as ten minutes",
        "5 minutes minus 3 minutes",
        "an hour minus ten minutes",
        "1 hour 5 minutes minus 3 minutes",
        "5 minutes plus 3 minutes",
        "half of ten minutes",
        "50 percent of ten minutes",
        "twice five minutes",
        "5 times 3 minutes",
        "five minutes times two",
        "three times as long",
        "3 squared minutes",
        "5 minutes squared",
        "10 divided by 2 minutes",
        "the square root of 25 minutes",
        "three more than five minutes",
        "20 degrees plus 2",
        "50 percent minus 10",
        "50 -20",
        "10 / 2 minutes",
        "5*3 minutes",
        "2^3 minutes",
        "minus five times two",
    ],
)
def test_what_would_have_to_be_calculated(text: str) -> None:
    assert changed(text)


@pytest.mark.parametrize(
    "text",
    [
        "half an hour",
        "half of an hour",
        "one and a half hours",
        "half a dozen minutes",
        "1/2 hour",
        "1:30:00",
        "1,000 minutes",
        "minus five minutes",
        "-5 minutes",
        "volume plus ten",
        "take the pasta timer minus five minutes",
        "five more minutes",
        "5 minutes less",
        "a 5 minute timer and a 10 minute timer",
        "add ten to the 5 minute timer",
        "add five minutes to the second timer",
        "add five to the ten minute pasta timer",
        "make the ten minute timer 5 minutes longer",
        "do it three times",
        "",
    ],
)
def test_what_is_meant_as_it_is_said(text: str) -> None:
    assert not changed(text)


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("zehn hoch neun Minuten", "de", True),
        ("die Hälfte von zehn Minuten", "de-AT", True),
        ("fünf Minuten mal", "de", False),
        ("minus fünf Minuten", "de", False),
        ("5 * 3 minutes", "fr", True),
        ("5 minutes", "fr", False),
    ],
)
def test_in_other_languages(text: str, language: str, expected: bool) -> None:
    assert changed(text, language) is expected


@pytest.mark.parametrize(
    ("intent", "text", "expected"),
    [
        ("HassSetVolumeRelative", "turn it up by minus five", True),
        ("HassSetVolumeRelative", "change it by minus five", False),
        ("HassSetVolumeRelative", "turn it up by five", False),
        ("HassShoppingListAddItem", "5 times 3 eggs", False),
    ],
)
def test_of_which_commands(intent: str, text: str, expected: bool) -> None:
    assert calculates(intent, text) is expected
