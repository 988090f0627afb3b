"""What people get told about their timers."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant import skills
from assistant.skills import Context, Missing
from assistant.skills.timer_book import MOST_TIMERS
from assistant.skills.timer_choice import finished
from assistant.skills.timers import NOT_RUNNING
from assistant.speech_text import speakable
from tests.skills.world import Book

TIMER_INTENTS = (
    "HassStartTimer", "HassIncreaseTimer", "HassDecreaseTimer", "HassPauseTimer", "HassUnpauseTimer",
    "HassTimerStatus", "HassCancelTimer", "HassCancelAllTimers",
)  # fmt: skip


class Kitchen:
    def __init__(self, *, kept: bool = True) -> None:
        self.timers = Book(kept=kept)

    def __call__(self, intent: str, **slots: Any) -> str:
        context = Context(now=datetime(2026, 11, 29), timers=self.timers)
        reply = asyncio.run(skills.answer(intent, slots, context))
        assert reply is not None
        return reply

    def sleep(self, seconds: float) -> None:
        self.timers.time.sleep(seconds)
        self.timers.book.due()

    def left(self) -> dict[str, float]:
        return {timer.name: timer.left_s for timer in self.timers.all()}


@pytest.fixture
def kitchen() -> Kitchen:
    return Kitchen()


@pytest.mark.parametrize(
    ("slots", "reply"),
    [
        ({"minutes": 10, "name": "pasta"}, "Pasta timer set for 10 minutes."),
        ({"minutes": 10}, "Timer set for 10 minutes."),
        ({"hours": 1, "minutes": 30}, "Timer set for 1 hour and 30 minutes."),
        ({"seconds": 90}, "Timer set for 1 minute and 30 seconds."),
        ({"minutes": 2.5}, "Timer set for 2 minutes and 30 seconds."),
        ({"hours": 24}, "Timer set for 24 hours."),
        ({"minutes": 5, "name": "the egg timer"}, "Egg timer set for 5 minutes."),
        ({"minutes": 5, "name": "timer"}, "Timer set for 5 minutes."),
        ({"minutes": "5"}, "Timer set for 5 minutes."),
    ],
)
def test_a_timer_is_set(kitchen: Kitchen, slots: dict[str, Any], reply: str) -> None:
    assert kitchen("HassStartTimer", **slots) == reply
    assert len(kitchen.timers.all()) == 1


@pytest.mark.parametrize(
    ("slots", "says"),
    [
        ({"minutes": -5}, "at least 1 second"),
        ({"minutes": 0}, "at least 1 second"),
        ({"hours": 400}, "24 hours"),
        ({"hours": 24, "seconds": 1}, "24 hours"),
        ({"hours": 1e308}, "24 hours"),
        ({"hours": -1e308}, "at least 1 second"),
    ],
)
def test_a_length_that_cannot_be_is_refused_politely(kitchen: Kitchen, slots: dict[str, Any], says: str) -> None:
    assert says in kitchen("HassStartTimer", **slots)
    assert kitchen.timers.all() == ()


@pytest.mark.parametrize("slots", [{}, {"name": "pasta"}, {"minutes": "many"}, {"minutes": float("nan")}])
def test_a_length_that_was_not_said_is_asked_for(kitchen: Kitchen, slots: dict[str, Any]) -> None:
    with pytest.raises(Missing) as caught:
        kitchen("HassStartTimer", **slots)
    assert (caught.value.slot, caught.value.question) == ("duration", "For how long?")


def test_there_is_a_most(kitchen: Kitchen) -> None:
    for _ in range(MOST_TIMERS):
        kitchen("HassStartTimer", minutes=1)
    assert kitchen("HassStartTimer", minutes=1) == "There are 50 timers already; cancel one first."


def test_what_the_disk_does_not_take_is_told() -> None:
    kitchen = Kitchen(kept=False)
    reply = kitchen("HassStartTimer", minutes=10)
    assert reply == "Timer set for 10 minutes. It will not survive a restart, because the disk cannot be written."
    assert kitchen.left() == {"": 600}


def test_more_and_less_time(kitchen: Kitchen) -> None:
    kitchen("HassStartTimer", minutes=10, name="pasta")
    kitchen.sleep(60)
    assert kitchen("HassIncreaseTimer", minutes=5) == "Added 5 minutes to the pasta timer; 14 minutes left."
    assert (
        kitchen("HassDecreaseTimer", minutes=4, name="pasta") == "Took 4 minutes off the pasta timer; 10 minutes left."
    )
    assert kitchen("HassDecreaseTimer", hours=1) == "The pasta timer has only 10 minutes left; it was not changed."
    assert kitchen("HassIncreaseTimer", hours=24).startswith("That would be too long")
    assert kitchen("HassIncreaseTimer", minutes=-5).startswith("That must be at least 1 second")
    with pytest.raises(Missing, match="How much time shall I add"):
        kitchen("HassIncreaseTimer", name="pasta")
    with pytest.raises(Missing, match="How much time shall I take off"):
        kitchen("HassDecreaseTimer")
    assert kitchen.left() == {"pasta": 600}


def test_pause_and_go_on(kitchen: Kitchen) -> None:
    kitchen("HassStartTimer", minutes=10, name="pasta")
    kitchen.sleep(15)
    assert kitchen("HassUnpauseTimer") == "The pasta timer has 9 minutes and 45 seconds left; it is not paused."
    assert kitchen("HassPauseTimer") == "Paused the pasta timer with 9 minutes and 45 seconds left."
    assert kitchen("HassPauseTimer") == "The pasta timer is paused already, with 9 minutes and 45 seconds left."
    kitchen.sleep(3600)
    assert kitchen("HassTimerStatus") == "The pasta timer is paused with 9 minutes and 45 seconds left."
    kitchen("HassStartTimer", minutes=1, name="tea")
    # the one that is paused is meant, not the one that runs; and the other way round
    assert kitchen("HassPauseTimer") == "Paused the tea timer with 1 minute left."
    kitchen("HassUnpauseTimer", name="tea")
    assert kitchen("HassUnpauseTimer").startswith("The pasta timer goes on; 9 minutes and 45 seconds left.")


def test_which_timer_is_meant(kitchen: Kitchen) -> None:
    kitchen("HassStartTimer", minutes=30, name="roast beef")
    kitchen("HassStartTimer", minutes=10)
    kitchen("HassStartTimer", minutes=20, name="eggs")
    kitchen.sleep(60)
    assert kitchen("HassTimerStatus", name="roast") == "The roast beef timer has 29 minutes left."
    assert kitchen("HassTimerStatus", name="my Egg timer") == "The eggs timer has 19 minutes left."
    assert kitchen("HassTimerStatus", start_minutes=10) == "The 10 minute timer has 9 minutes left."
    assert kitchen("HassTimerStatus", start_minutes=20) == "The eggs timer has 19 minutes left."
    assert kitchen("HassTimerStatus", start_hours=1) == (
        "There is no timer of 1 hour. There are the 10 minute timer, the eggs timer and the roast beef timer."
    )
    assert kitchen("HassTimerStatus", name="pizza") == (
        "There is no pizza timer. There are the 10 minute timer, the eggs timer and the roast beef timer."
    )
    assert kitchen("HassTimerStatus") == (
        "There are 3 timers: the 10 minute timer has 9 minutes left, the eggs timer has 19 minutes left and the"
        " roast beef timer has 29 minutes left."
    )
    # none was named: the nearest
    assert kitchen("HassCancelTimer") == (
        "Cancelled the 10 minute timer, which had 9 minutes left. 2 other timers stay as they are."
    )
    assert kitchen("HassCancelTimer") == (
        "Cancelled the eggs timer, which had 19 minutes left. The roast beef timer has 29 minutes left."
    )
    assert kitchen("HassCancelTimer", name="roast beef") == "Cancelled the roast beef timer, which had 29 minutes left."
    assert kitchen("HassCancelTimer") == "There is no timer."


def test_two_of_one_name_are_told_apart_by_what_is_left(kitchen: Kitchen) -> None:
    kitchen("HassStartTimer", minutes=8, name="pasta")
    assert kitchen("HassStartTimer", minutes=3, name="Pasta") == "Second Pasta timer set for 3 minutes."
    assert kitchen("HassTimerStatus", name="pasta") == (
        "There are 2 timers: the Pasta timer has 3 minutes left and the pasta timer has 8 minutes left."
    )
    assert kitchen("HassTimerStatus", name="pasta", start_minutes=8) == "The pasta timer has 8 minutes left."
    assert kitchen("HassCancelTimer", name="pasta") == (
        "Cancelled the Pasta timer, which had 3 minutes left. The pasta timer has 8 minutes left."
    )
    kitchen("HassStartTimer", minutes=2, name="pasta")
    assert kitchen("HassPauseTimer", name="pasta") == (
        "Paused the pasta timer with 2 minutes left. The other one has 8 minutes left."
    )


def test_one_that_rings_is_meant_first(kitchen: Kitchen) -> None:
    kitchen("HassStartTimer", minutes=1, name="eggs")
    kitchen("HassStartTimer", minutes=2, name="tea")
    kitchen.sleep(90)
    assert kitchen("HassTimerStatus", name="eggs") == "The eggs timer ended 30 seconds ago."
    assert kitchen("HassPauseTimer", name="eggs") == "The eggs timer has ended already."
    assert kitchen("HassDecreaseTimer", name="eggs", minutes=1) == "The eggs timer has ended already."
    assert kitchen("HassCancelTimer") == "The eggs timer is off."
    kitchen.sleep(60)
    # more time for one that rings: it runs again
    assert kitchen("HassIncreaseTimer", minutes=5) == "Added 5 minutes to the tea timer; 5 minutes left."
    assert kitchen.left() == {"tea": 300}


def test_never_mind_silences_what_rings_and_nothing_else(kitchen: Kitchen) -> None:
    kitchen("HassStartTimer", minutes=1, name="eggs")
    kitchen("HassStartTimer", minutes=2, name="tea")
    kitchen.sleep(61)
    assert kitchen("HassNevermind") == "Okay."
    assert list(kitchen.left()) == ["tea"]


def test_all_at_once(kitchen: Kitchen) -> None:
    assert kitchen("HassCancelAllTimers") == "There is no timer."
    kitchen("HassStartTimer", minutes=1, name="eggs")
    assert kitchen("HassCancelAllTimers") == "Cancelled the eggs timer."
    for minutes in (1, 2, 3):
        kitchen("HassStartTimer", minutes=minutes)
    assert kitchen("HassCancelAllTimers") == "Cancelled all 3 timers."


@pytest.mark.parametrize(
    ("late_s", "said"),
    [
        (0, "Your pasta timer is done."),
        (9, "Your pasta timer is done."),
        (45, "Your pasta timer ended 45 seconds ago."),
        (725, "Your pasta timer ended 12 minutes ago."),
        (3600, "Your pasta timer ended 1 hour ago."),
        (3 * 86_400, "Your pasta timer ended 3 days ago."),
    ],
)
def test_what_is_said_when_it_rings(kitchen: Kitchen, late_s: float, said: str) -> None:
    kitchen("HassStartTimer", minutes=1, name="pasta")
    kitchen.sleep(60)
    kitchen.sleep(late_s)
    assert finished(kitchen.timers.all()[0]) == said


@pytest.mark.parametrize(
    ("slots", "said"),
    [
        ({"minutes": 10}, "Your 10 minute timer is done."),
        ({"hours": 2}, "Your 2 hour timer is done."),
        ({"seconds": 30}, "Your 30 second timer is done."),
        ({"minutes": 2, "seconds": 30}, "Your timer of 2 minutes and 30 seconds is done."),
    ],
)
def test_one_without_a_name_is_called_by_its_length(kitchen: Kitchen, slots: dict[str, Any], said: str) -> None:
    kitchen("HassStartTimer", **slots)
    kitchen.sleep(kitchen.timers.all()[0].left_s)
    assert finished(kitchen.timers.all()[0]) == said


@pytest.mark.parametrize("intent", TIMER_INTENTS)
def test_without_a_daemon_nothing_would_ring(intent: str) -> None:
    assert asyncio.run(skills.answer(intent, {"minutes": 1}, Context(now=datetime(2026, 1, 1)))) == NOT_RUNNING


_VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=200) | st.lists(st.integers())


@given(
    st.sampled_from(TIMER_INTENTS),
    st.dictionaries(
        st.sampled_from(["name", "hours", "minutes", "seconds", "start_hours", "start_minutes", "start_seconds"]),
        _VALUES,
    ),
)
def test_whatever_the_slots_hold_there_is_a_sentence(intent: str, slots: dict[str, Any]) -> None:
    kitchen = Kitchen()
    kitchen("HassStartTimer", minutes=10, name="pasta")
    kitchen("HassStartTimer", minutes=20)
    try:
        reply = kitchen(intent, **slots)
    except Missing as missing:
        reply = missing.question
    assert reply.endswith((".", "?"))
    assert "\n" not in reply
    assert speakable(reply)
