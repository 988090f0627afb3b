"""Taking the wake phrase off: what whisper wrote of human recordings, and commands that merely begin alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.wake_phrase import without_wake_phrase

JARVIS, NABU, MYCROFT = "hey jarvis", "okay nabu", "hey mycroft"


@pytest.mark.parametrize(
    ("phrase", "heard", "left"),
    [
        (JARVIS, "Hey Jarvis, set a timer for 10 minutes.", "set a timer for 10 minutes."),
        (JARVIS, "Hey, Jervis. What time is it?", "What time is it?"),
        (JARVIS, "Hey, Jeremy's. Stop!", "Stop!"),
        (JARVIS, "Jarvis what time is it", "what time is it"),
        (JARVIS, "...vis, what time is it?", "what time is it?"),
        (JARVIS, "Hey, what time is it?", "what time is it?"),
        (NABU, "Okay, Naboo. Turn on the lamp.", "Turn on the lamp."),
        (NABU, "OK Nabu turn on the lamp", "turn on the lamp"),
        (NABU, "NABOOM. Turn on the lamp.", "Turn on the lamp."),
        (NABU, "May Naboo, set a timer for 10 minutes.", "set a timer for 10 minutes."),
        (NABU, "Okay, you know me. What time is it?", "What time is it?"),
        (NABU, "Okay, never... What's the date?", "What's the date?"),
        (NABU, "Okay, Nevi. How old is the Brooklyn Bridge?", "How old is the Brooklyn Bridge?"),
        (NABU, "Okay. Stop.", "Stop."),
        (MYCROFT, "Hey my graph, what time is it?", "what time is it?"),
        (MYCROFT, "Hit my cross. Turn on the lamp.", "Turn on the lamp."),
        (MYCROFT, "Hey, my Croft. Turn on the lamp.", "Turn on the lamp."),
        ("alexa", "Alexa, stop!", "Stop!"),
        ("컴퓨터", "컴퓨터, 빅스비", "빅스비"),
    ],
)
def test_the_phrase_goes_and_the_question_stays(phrase: str, heard: str, left: str) -> None:
    assert without_wake_phrase(heard, phrase).lower() == left.lower()


@pytest.mark.parametrize(
    ("phrase", "heard"),
    [(JARVIS, "Hey, Jarvis?"), (JARVIS, "Jarvis."), (NABU, "Okay, Naboo."), (NABU, "Okay."), ("alexa", "Alexa"),
     (MYCROFT, "Hey my craft"), (JARVIS, ""), (NABU, "...")],
)  # fmt: skip
def test_of_the_phrase_alone_nothing_is_left(phrase: str, heard: str) -> None:
    assert without_wake_phrase(heard, phrase) == heard.strip(".") * (heard == "...")


@pytest.mark.parametrize("phrase", [JARVIS, NABU, MYCROFT, "alexa", ""])
@pytest.mark.parametrize(
    "command",
    [
        "Stop.", "Never mind.", "Is the front door locked?", "Visit my site", "Navigate home.", "A new timer.",
        "Now turn on the lamp.", "Next song", "My car is red.", "Jar of pickles", "Harvest the wheat.", "Yes.",
        "Relax a bit", "Play Alexander", "Play jazz", "Services status", "Nab a photo", "Often", "Buy milk",
        "He was not an ill disposed young man.", "What's the weather in Nabulus?", "Call Jarvis", "Turn okay off",
    ],
)  # fmt: skip
def test_a_command_stays_as_it_is(phrase: str, command: str) -> None:
    assert without_wake_phrase(command, phrase) == command


@pytest.mark.parametrize(
    ("phrase", "command", "left"),
    [
        (NABU, "Okay, stop.", "stop."),
        (NABU, "Okay, never mind.", "never mind."),
        (JARVIS, "Hey, play jazz music.", "play jazz music."),
        (JARVIS, "Hey, stop!", "stop!"),
    ],
)
def test_of_a_command_that_begins_like_the_phrase_only_that_word_goes(phrase: str, command: str, left: str) -> None:
    assert without_wake_phrase(command, phrase) == left


@given(st.text(max_size=60), st.sampled_from([JARVIS, NABU, "alexa", "", "?"]))
def test_what_is_left_is_an_end_of_the_text(text: str, phrase: str) -> None:
    assert text.strip().endswith(without_wake_phrase(text, phrase))
