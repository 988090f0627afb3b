"""The book of timers: its arithmetic, its two clocks, what survives a restart."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.skills.context import TooMany
from assistant.skills.timer_book import MOST_TIMERS, Clocks, TimerBook
from tests.skills.world import Time


@pytest.fixture
def time() -> Time:
    return Time()


def reopened(book: TimerBook, time: Time) -> TimerBook:
    """By another process, from what is on the disk."""
    other = TimerBook(time.clocks)
    other.restore(json.loads(json.dumps(book.dump())))
    return other


def test_the_nearest_comes_first_and_what_is_paused_last(time: Time) -> None:
    book = TimerBook(time.clocks)
    book.start("roast", 3600)
    book.start("eggs", 300)
    book.pause(book.start("tea", 60).id)
    time.sleep(300)
    assert [(timer.name, timer.state) for timer in book.due()] == [("eggs", "ringing")]
    assert [(timer.name, timer.state, timer.left_s) for timer in book.all()] == [
        ("eggs", "ringing", 0),
        ("roast", "running", 3300),
        ("tea", "paused", 60),
    ]
    assert book.due() == ()
    assert book.next_s() == 3300


def test_a_paused_timer_stands_still(time: Time) -> None:
    book = TimerBook(time.clocks)
    id = book.start("", 100).id
    time.sleep(40)
    assert book.pause(id).left_s == 60
    assert book.next_s() is None
    time.sleep(1000)
    assert book.pause(id).left_s == 60  # once more changes nothing
    assert book.due() == ()
    assert book.resume(id).left_s == 60
    time.sleep(59)
    assert book.due() == ()
    time.sleep(1)
    assert len(book.due()) == 1
    assert book.resume(id).state == "ringing"


def test_more_and_less_time(time: Time) -> None:
    book = TimerBook(time.clocks)
    id = book.start("", 100).id
    assert (book.add(id, 50).left_s, book.get(id).total_s) == (150, 150)
    assert book.add(id, -100).left_s == 50
    book.pause(id)
    assert book.add(id, 10).left_s == 60
    book.resume(id)
    time.sleep(100)
    book.due()
    time.sleep(5)
    assert book.get(id).left_s == -45
    # one that rings begins anew
    assert (book.add(id, 30).left_s, book.get(id).total_s, book.get(id).state) == (30, 30, "running")


@pytest.mark.parametrize("jump_s", [-5 * 86_400, 86_400, 3600])
def test_a_wall_clock_that_is_set_changes_nothing(time: Time, jump_s: float) -> None:
    book = TimerBook(time.clocks)
    book.start("", 100)
    assert not book.wall_moved()  # nothing was noted yet
    book.dump()
    time.wall += jump_s
    time.sleep(60)
    assert book.wall_moved()
    assert book.next_s() == 40
    assert reopened(book, time).next_s() == 40
    assert not book.wall_moved()
    # nor does it for another process of this start of the machine, while nobody was there
    data = book.dump()
    time.wall += jump_s
    time.sleep(15)
    other = TimerBook(time.clocks)
    other.restore(data)
    assert other.next_s() == 25


def test_a_reboot_counts_by_the_wall_clock(time: Time) -> None:
    book = TimerBook(time.clocks)
    book.start("tea", 100)
    paused = book.start("eggs", 100).id
    book.pause(paused)
    data = book.dump()
    time.sleep(30)
    time.reboot(50)
    other = TimerBook(time.clocks)
    other.restore(data)
    assert other.next_s() == pytest.approx(20)
    assert other.get(paused).left_s == 100


def test_what_ended_while_the_machine_was_off_is_late(time: Time) -> None:
    book = TimerBook(time.clocks)
    book.start("pasta", 60)
    data = book.dump()
    time.reboot(780)
    other = TimerBook(time.clocks)
    other.restore(data)
    (late,) = other.due()
    assert (late.name, late.state, round(late.left_s)) == ("pasta", "ringing", -720)


def test_a_clock_without_a_battery_does_not_make_timers_longer(time: Time) -> None:
    book = TimerBook(time.clocks)
    book.start("", 60)
    data = book.dump()
    time.reboot(-10 * 365 * 86_400)
    other = TimerBook(time.clocks)
    other.restore(data)
    assert other.next_s() == 60


def test_what_rings_rings_again_after_a_restart(time: Time) -> None:
    book = TimerBook(time.clocks)
    id = book.start("", 60).id
    time.sleep(61)
    book.due()
    other = reopened(book, time)
    assert other.get(id).state == "ringing"


def test_ids_are_never_used_twice(time: Time) -> None:
    book = TimerBook(time.clocks)
    first, second = book.start("", 60).id, book.start("", 60).id
    book.remove(second)
    other = reopened(book, time)
    assert other.start("", 60).id not in (first, second)
    with pytest.raises(KeyError):
        other.remove(second)


def test_there_is_a_most(time: Time) -> None:
    book = TimerBook(time.clocks)
    for _ in range(MOST_TIMERS):
        book.start("", 60)
    with pytest.raises(TooMany):
        book.start("", 60)


GOOD: dict[str, Any] = {"id": "1", "name": "tea", "total_s": 60, "state": "running", "left_s": 5}


@pytest.mark.parametrize(
    "row",
    [
        *(GOOD | {"left_s": left} for left in (float("nan"), float("inf"), 1e7, "five", None)),
        *(GOOD | {"state": state} for state in ("", "asleep", None)),
        GOOD | {"name": None},
        GOOD | {"id": "x"},
        GOOD | {"total_s": -1},
        {},
        5,
        None,
    ],
)
def test_what_holds_no_timers_is_told(time: Time, row: Any) -> None:
    book = TimerBook(time.clocks)
    kept = book.start("", 60)
    data = TimerBook(time.clocks).dump()
    with pytest.raises(ValueError):  # noqa: PT011 - the reason differs
        book.restore(data | {"timers": [row]})
    assert book.all() == (kept,)


@given(st.recursive(st.none() | st.integers() | st.text() | st.floats(), lambda x: st.lists(x) | st.dictionaries(
    st.sampled_from(["version", "timers", "boot", "wall", "next", "boot_id"]), x)))  # fmt: skip
def test_any_json_is_taken_or_refused(data: Any) -> None:
    book = TimerBook(Time().clocks)
    with pytest.raises(ValueError):  # noqa: PT011
        book.restore(data)


@given(
    st.lists(
        st.tuples(st.sampled_from(["start", "add", "pause", "resume", "sleep", "remove", "reopen", "jump", "due"]),
                  st.integers(1, 500)),
        max_size=40,
    )
)  # fmt: skip
def test_however_it_is_handled_time_that_ran_is_time_that_passed(steps: list[tuple[str, int]]) -> None:
    """A model beside it: the seconds left of each timer, counted down by hand."""
    time = Time()
    book = TimerBook(time.clocks)
    left: dict[str, list[Any]] = {}
    for what, amount in steps:
        known = sorted(left)
        id = known[amount % len(known)] if known else ""
        if what == "start" and len(known) < MOST_TIMERS:
            left[book.start("", amount).id] = [amount, True]
        elif what == "sleep":
            time.sleep(amount)
            for one in left.values():
                one[0] -= amount if one[1] else 0
        elif what == "jump":
            time.wall += amount * 1000
        elif what == "reopen":
            book = reopened(book, time)
        elif what == "due":
            for timer in book.due():
                assert left.pop(timer.id)[0] <= 1e-3
                book.remove(timer.id)
        elif id and what == "remove":
            book.remove(id)
            del left[id]
        elif id and left[id][0] > 0 and what in ("pause", "resume"):
            getattr(book, what)(id)
            left[id][1] = what == "resume"
        elif id and what == "add":
            book.add(id, amount)
            left[id][0] += amount
    shown = {timer.id: timer.left_s for timer in book.all()}
    assert shown == pytest.approx({id: max(0, seconds) for id, (seconds, _) in left.items()}, abs=0.01)


def test_the_clocks_of_this_machine_go() -> None:
    clocks = Clocks()
    book = TimerBook(clocks)
    book.start("", 100)
    assert clocks.boot_id()
    assert 99 < (book.next_s() or 0) <= 100
