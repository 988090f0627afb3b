"""Rests are as long as the share of work demands, and heard through. A recorded sleep."""

from __future__ import annotations

import pytest

from assistant.messages import LlmDelta, Progress
from assistant.stages.pacing import Together, rest

TOLD = Progress(done=1, total=2)


@pytest.mark.parametrize(("duty", "seconds"), [(1.0, 0), (0.5, 1), (0.8, 0.25), (0.0, 19), (7.0, 0)])
def test_a_rest_makes_work_its_share_of_the_time(duty: float, seconds: float) -> None:
    slept: list[float] = []
    told = list(rest(1.0, duty, TOLD, slept.append))
    assert sum(slept) == pytest.approx(seconds)
    assert all(nap <= 0.05 for nap in slept)
    assert told == [TOLD] * len(slept)


def test_tokens_that_come_fast_are_told_together_and_none_is_lost() -> None:
    times = iter([0.0, 0.005, 0.01, 0.03, 0.031])
    together = Together(0.02, lambda: next(times))
    due = [together.add(text) for text in ("a", "", "b")]
    assert due == [True, False, False]
    assert together.take() == LlmDelta(text="ab", tokens=3)
    assert together.add("")
    assert together.take() is None
    assert not together.add("c")
    assert together.take() == LlmDelta(text="c", tokens=2)
