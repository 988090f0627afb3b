"""Rests are as long as the share of work demands, and heard through. A recorded sleep."""

from __future__ import annotations

import pytest

from assistant.messages import Progress
from assistant.stages.pacing import rest

TOLD = Progress(done=1, total=2)


@pytest.mark.parametrize(("duty", "seconds"), [(1.0, 0), (0.5, 1), (0.8, 0.25), (0.0, 19), (7.0, 0)])
def test_a_rest_makes_work_its_share_of_the_time(duty: float, seconds: float) -> None:
    slept: list[float] = []
    told = list(rest(1.0, duty, TOLD, slept.append))
    assert sum(slept) == pytest.approx(seconds)
    assert all(nap <= 0.05 for nap in slept)
    assert told == [TOLD] * len(slept)
