"""What holds of the pressure for every course of things."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from assistant.memory_orchestrator.pressure import CALM_S, LEVELS, Pressure
from assistant.memory_orchestrator.sensors import Readings
from assistant.messages import Level
from tests.memory_orchestrator.looks import CALM, MARGIN, MIB, fed, level_of

READINGS = st.builds(
    Readings,
    stalled=st.none() | st.floats(0, 100),
    available=st.none() | st.integers(0, 600 * MIB),
    temperature_c=st.none() | st.floats(60, 95),
    trip_c=st.just(80.0),
    frequency=st.none() | st.floats(0, 1),
    throttled=st.integers(0, 15) | st.just(0xF0000),
)
MOSTLY_CALM = st.just(CALM) | READINGS
STEPS = st.lists(st.tuples(st.sampled_from([0.5, 1, 5, 20, 40]), MOSTLY_CALM), max_size=60)


def times(steps: list[tuple[float, Readings]]) -> list[tuple[float, Readings]]:
    now, out = 0.0, []
    for wait, readings in steps:
        now += wait
        out.append((now, readings))
    return out


def rank(level: Level) -> int:
    return LEVELS.index(level)


@given(STEPS)
def test_it_never_flaps(steps: list[tuple[float, Readings]]) -> None:
    looks = times(steps)
    ranks = [0, *map(rank, fed(Pressure(), *looks))]
    falls = [now for (now, _), (before, after) in zip(looks, pairwise(ranks), strict=True) if after < before]
    rises = [now for (now, _), (before, after) in zip(looks, pairwise(ranks), strict=True) if after > before]
    assert all(before - after == 1 for before, after in pairwise(ranks) if after < before)
    # a level lasts: no fall within the calm time of any other change
    assert all(later - earlier >= CALM_S for earlier, later in pairwise(falls))
    assert all(fall - rise >= CALM_S for fall in falls for rise in rises if rise < fall)
    # so in any time there are few changes, whatever the sensors do
    assert len(falls) <= (looks[-1][0] / CALM_S if looks else 0)
    assert len(rises) <= len(falls) + len(LEVELS) - 1


@given(STEPS)
def test_it_is_never_calmer_than_what_is_confirmed_and_never_worse_than_what_was_read(
    steps: list[tuple[float, Readings]],
) -> None:
    looks = times(steps)
    levels = fed(Pressure(), *looks)

    def ranks(**without: int | None) -> list[int]:
        return [rank(level_of(replace(readings, **without), MARGIN).level) for _, readings in looks]  # type: ignore[arg-type]

    every, at_once = ranks(), ranks(stalled=None, temperature_c=None)
    stalls = ranks(available=None, temperature_c=None, frequency=None, throttled=0)
    heat = ranks(available=None, stalled=None, frequency=None, throttled=0)
    for index, level in enumerate(levels):
        least = at_once[index]
        for said in (stalls, heat):
            before = said[index - 1] if index else 0
            least = max(least, said[index] if said[index] == rank("critical") else min(said[index], before))
        assert rank(level) >= least
        assert rank(level) <= max(every[: index + 1])


def worse(readings: Readings, by: tuple[float, int, float, float, int]) -> Readings:
    stalled, available, heat, clock, flags = by
    return Readings(
        stalled=stalled if readings.stalled is None else min(100.0, readings.stalled + stalled),
        available=None if readings.available is None else max(0, readings.available - available),
        temperature_c=None if readings.temperature_c is None else readings.temperature_c + heat,
        trip_c=readings.trip_c,
        frequency=None if readings.frequency is None else max(0.0, readings.frequency - clock),
        throttled=readings.throttled | flags,
    )


BY = st.just((0.0, 0, 0.0, 0.0, 0)) | st.tuples(
    st.floats(0, 60), st.integers(0, 300 * MIB), st.floats(0, 20), st.floats(0, 0.5), st.integers(0, 15)
)


@given(st.lists(st.tuples(st.sampled_from([0.5, 1, 5, 20, 40]), MOSTLY_CALM, BY), max_size=60))
def test_worse_readings_never_give_a_lower_level(
    steps: list[tuple[float, Readings, tuple[float, int, float, float, int]]],
) -> None:
    looks = times([(wait, readings) for wait, readings, _ in steps])
    harder = [(now, worse(readings, by)) for (now, readings), (_, _, by) in zip(looks, steps, strict=True)]
    for (_, one), (_, other) in zip(looks, harder, strict=True):
        assert rank(level_of(one, MARGIN).level) <= rank(level_of(other, MARGIN).level)
    for one_level, other_level in zip(fed(Pressure(), *looks), fed(Pressure(), *harder), strict=True):
        assert rank(one_level) <= rank(other_level)


@given(STEPS)
def test_after_a_long_calm_it_is_always_normal_again(steps: list[tuple[float, Readings]]) -> None:
    pressure = Pressure()
    looks = times(steps)
    fed(pressure, *looks)
    end = looks[-1][0] if looks else 0.0
    fed(pressure, *((end + second, CALM) for second in range(1, 93)))
    assert pressure.status.level == "normal"
    assert pressure.status.reasons == ()
