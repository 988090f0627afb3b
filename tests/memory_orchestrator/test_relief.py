"""From a level to what is given up."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from assistant.memory_orchestrator.pressure import LEVELS, RELIEF, Relief


def test_every_level_gives_up_at_least_what_the_one_before_did() -> None:
    assert tuple(RELIEF) == LEVELS

    assert [relief.level for relief in RELIEF.values()] == list(LEVELS)

    def generosity(relief: Relief) -> dict[str, float]:
        return {field.name: getattr(relief, field.name) for field in fields(relief) if field.name != "level"}

    for milder, harder in pairwise(RELIEF.values()):
        one, other = generosity(milder), generosity(harder)
        assert all(other[name] <= one[name] for name in one)
        assert other != one


def test_relief_in_figures() -> None:
    levels = [RELIEF[level] for level in LEVELS]
    assert [relief.thread_count(4) for relief in levels] == [4, 3, 2, 2]
    assert [relief.thread_count(2) for relief in levels] == [2, 2, 1, 1]
    assert [relief.thread_count(1) for relief in levels] == [1, 1, 1, 1]
    assert [relief.keep_alive_s(300) for relief in levels] == [300, 150, 30, 0]
    assert [relief.keep_alive_s(-1) for relief in levels] == [-1, -1, -1, 0]
    assert [relief.keep_alive_s(0) for relief in levels] == [0, 0, 0, 0]


@given(st.integers(1, 256), st.floats(0, 1e6))
def test_relief_never_asks_for_more_or_for_nothing(threads: int, seconds: float) -> None:
    for relief in RELIEF.values():
        assert 1 <= relief.thread_count(threads) <= threads
        assert 0 <= relief.keep_alive_s(seconds) <= seconds
