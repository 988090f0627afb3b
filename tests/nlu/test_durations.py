"""Lengths of time and times of day."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.nlu.clock import clock_times
from assistant.nlu.durations import durations
from assistant.nlu.language import language_of
from assistant.nlu.words import words_of


def slots(text: str, code: str = "en") -> list[dict[str, str | int | float]]:
    return [duration.slots() for duration in durations(words_of(text), language_of(code))]


@pytest.mark.parametrize(
    ("text", "hours", "minutes", "seconds"),
    [
        ("an hour and a half", 1, 30, 0), ("two and a half minutes", 0, 2, 30), ("1h30", 1, 30, 0), ("5 min", 0, 5, 0),
        ("5min", 0, 5, 0), ("ninety seconds", 0, 0, 90), ("half an hour", 0, 30, 0), ("quarter of an hour", 0, 15, 0),
        ("three quarters of an hour", 0, 45, 0), ("an hour ten", 1, 10, 0), ("10 minutes and 30", 0, 10, 30),
        ("2 days", 48, 0, 0), ("a minute and a half", 0, 1, 30), ("hour and a half", 1, 30, 0), ("1.5 hours", 1, 30, 0),
        ("five more minutes", 0, 5, 0), ("a couple of minutes", 0, 2, 0), ("a couple hours", 2, 0, 0),
        ("minus five minutes", 0, -5, 0), ("for for minutes", 0, 4, 0), ("one minute thirty", 0, 1, 30),
        ("twenty-five-minute", 0, 25, 0), ("1h30m20s", 1, 30, 20), ("half a minute", 0, 0, 30), ("1:30:00", 1, 30, 0),
        ("one hour and 20 minutes and ten seconds", 1, 20, 10), ("quarter hour", 0, 15, 0), ("400 hours", 400, 0, 0),
        ("two hours and a quarter", 2, 15, 0), ("another half hour", 0, 30, 0), ("an extra minute", 0, 1, 0),
        ("a week", 168, 0, 0), ("seven ours", 7, 0, 0), ("2:30", 0, 2, 30),
    ],
)  # fmt: skip
def test_a_duration_as_people_say_it(text: str, hours: int, minutes: int, seconds: int) -> None:
    expected = {"hours": hours, "minutes": minutes, "seconds": seconds}
    assert slots(text) == [{unit: value for unit, value in expected.items() if value}]


def test_no_time_at_all_is_said_as_such() -> None:
    assert slots("zero minutes") == [{"minutes": 0}]


def test_two_durations_are_two() -> None:
    assert slots("add five minutes to my ten minute timer") == [{"minutes": 5}, {"minutes": 10}]


@pytest.mark.parametrize(
    "text", ["a second timer", "five eggs", "the twenty one", "an apple", "minutes", "to the hour", ""]
)
def test_what_is_none_is_none(text: str) -> None:
    assert slots(text) == []


def test_a_count_behind_a_duration_is_not_its_seconds() -> None:
    assert slots("five minutes two eggs") == [{"minutes": 5}]
    assert slots("the twenty minute one") == [{"minutes": 20}]


@given(st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_hours_minutes_and_seconds_there_and_back(hours: int, minutes: int, seconds: int) -> None:
    parts = {"hours": hours, "minutes": minutes, "seconds": seconds}
    said = {unit: value for unit, value in parts.items() if value}
    text = " and ".join(f"{value} {unit}" for unit, value in said.items())
    assert slots(text) == ([said] if said else [])


def test_german_durations() -> None:
    assert slots("stell einen timer auf fünfundzwanzig minuten", "de") == [{"minutes": 25}]
    assert slots("eine stunde und 10 minuten", "de") == [{"hours": 1, "minutes": 10}]


@pytest.mark.parametrize(
    ("text", "hour", "minute", "sure"),
    [
        ("half past seven", 7, 30, False), ("7 30 pm", 19, 30, True), ("noon", 12, 0, True), ("midnight", 0, 0, True),
        ("a quarter to eight in the evening", 19, 45, True), ("ten past five", 5, 10, False), ("7:30", 7, 30, False),
        ("seven oh five am", 7, 5, True), ("seven o'clock", 7, 0, False), ("at seven", 7, 0, False),
        ("19:45", 19, 45, True),
        ("twenty five to six pm", 17, 35, True), ("12 am", 0, 0, True), ("quarter to one", 12, 45, False),
        ("eleven at night", 23, 0, True),
    ],
)  # fmt: skip
def test_a_time_of_day(text: str, hour: int, minute: int, sure: bool) -> None:
    found = clock_times(words_of(text))
    assert [(time.hour, time.minute, time.sure) for time in found] == [(hour, minute, sure)]


def test_a_bare_number_is_no_time_of_day() -> None:
    assert clock_times(words_of("add seven eggs and 90 things")) == []
