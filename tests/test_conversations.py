"""What is remembered of conversations, for how long, and how much of it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from assistant.conversations import Conversations
from assistant.messages import Turn


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def texts(turns: tuple[Turn, ...]) -> list[str]:
    return [turn.content for turn in turns]


def say(memory: Conversations, name: str, user: str, assistant: str, dropped: int = 0) -> None:
    memory.remember(name, memory.history(name), user, assistant, dropped=dropped)


def test_both_turns_are_remembered_in_order_and_by_name() -> None:
    memory = Conversations()
    assert memory.history("kitchen") == ()
    say(memory, "kitchen", "Hello.", "Hi.")
    say(memory, "hall", "Who?", "Me.")
    say(memory, "kitchen", "And?", "Well.")
    assert [(turn.role, turn.content) for turn in memory.history("kitchen")] == [
        ("user", "Hello."), ("assistant", "Hi."), ("user", "And?"), ("assistant", "Well."),
    ]  # fmt: skip
    assert texts(memory.history("hall")) == ["Who?", "Me."]


def test_a_conversation_is_over_some_time_after_its_last_turn() -> None:
    clock = Clock()
    memory = Conversations(300, clock=clock)
    say(memory, "a", "1", "2")
    clock.now = 299
    assert texts(memory.history("a")) == ["1", "2"]  # being asked for is no turn
    say(memory, "a", "3", "4")
    clock.now = 598
    assert len(memory.history("a")) == 4
    clock.now = 599
    assert memory.history("a") == ()
    assert len(memory) == 0
    say(memory, "a", "5", "6")
    assert texts(memory.history("a")) == ["5", "6"]


def test_a_turn_that_took_longer_than_a_conversation_lives_goes_on_with_it() -> None:
    clock = Clock()
    memory = Conversations(1, clock=clock)
    say(memory, "a", "1", "2")
    history = memory.history("a")
    clock.now = 5
    memory.remember("a", history, "3", "4")
    assert texts(memory.history("a")) == ["1", "2", "3", "4"]


def test_without_a_time_to_live_nothing_is_remembered() -> None:
    memory = Conversations(0)
    say(memory, "a", "1", "2")
    assert memory.history("a") == ()


def test_what_the_context_had_no_room_for_is_forgotten_for_good_and_a_user_begins() -> None:
    memory = Conversations()
    for number in range(3):
        say(memory, "a", f"user {number}", f"assistant {number}")
    say(memory, "a", "user 3", "assistant 3", dropped=2)
    assert texts(memory.history("a"))[0] == "user 1"
    say(memory, "a", "user 4", "assistant 4", dropped=1)
    assert texts(memory.history("a"))[0] == "user 2"  # half a pair makes no sense
    say(memory, "a", "user 5", "assistant 5", dropped=99)
    assert texts(memory.history("a")) == ["user 5", "assistant 5"]


def test_with_too_many_the_one_that_was_silent_for_longest_goes() -> None:
    memory = Conversations(most=3)
    for name in "abc":
        say(memory, name, "1", "2")
    say(memory, "a", "3", "4")
    say(memory, "d", "1", "2")
    assert [bool(memory.history(name)) for name in "abcd"] == [True, False, True, True]


def test_a_large_one_loses_its_oldest_turns_and_what_is_too_large_alone_leaves_nothing() -> None:
    memory = Conversations(most_bytes=4000)
    for number in range(9):
        say(memory, "a", f"{number}" * 500, "é" * 250)
    kept = memory.history("a")
    assert texts(kept)[-2:] == ["8" * 500, "é" * 250]
    assert (len(kept), kept[0].role) == (6, "user")
    say(memory, "a", "x" * 5000, "y")
    assert memory.history("a") == ()


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.text(max_size=300), st.integers(0, 5), st.floats(0, 9))))
def test_whatever_is_said_stays_bounded_and_well_formed(said: list[tuple[str, str, int, float]]) -> None:
    clock = Clock()
    memory = Conversations(20, clock=clock, most=3, most_bytes=1500)
    for name, text, dropped, later in said:
        clock.now += later
        say(memory, name, text, text[::-1], dropped)
        assert len(memory) <= 3
        for one in "abcde":
            turns = memory.history(one)
            assert sum(len(turn.content.encode()) for turn in turns) <= 1500
            assert not turns or (turns[0].role, turns[-1].role) == ("user", "assistant")
            assert all(one.role != other.role for one, other in pairwise(turns))
