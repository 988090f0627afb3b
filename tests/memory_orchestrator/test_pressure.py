"""From readings to a level that does not flap, and from a level to what is given up."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.memory_orchestrator.pressure import CALM_S, LEVELS, RELIEF, Pressure, Relief, level_of
from assistant.memory_orchestrator.sensors import Readings
from assistant.messages import Level

MIB = 1 << 20
MARGIN = 300 * MIB
CALM = Readings(stalled=0, available=900 * MIB, temperature_c=50, trip_c=80, frequency=1.0)


def with_(**values: float | int | None) -> Readings:
    return replace(CALM, **values)  # type: ignore[arg-type]


# --- one look -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("readings", "level", "reasons"),
    [
        (Readings(), "normal", ()),
        (CALM, "normal", ()),
        (with_(stalled=4.99), "normal", ()),
        (with_(stalled=5), "elevated", ("memory 5 % stalled",)),
        (with_(stalled=20), "high", ("memory 20 % stalled",)),
        (with_(stalled=50), "critical", ("memory 50 % stalled",)),
        (with_(available=MARGIN), "normal", ()),
        (with_(available=MARGIN - 1), "elevated", ("299 MiB available of a margin of 300",)),
        (with_(available=149 * MIB), "high", ("149 MiB available of a margin of 300",)),
        (with_(available=74 * MIB), "critical", ("74 MiB available of a margin of 300",)),
        (with_(available=0), "critical", ("0 MiB available of a margin of 300",)),
        (with_(temperature_c=74.9), "normal", ()),
        (with_(temperature_c=75), "elevated", ("temperature 75 °C of 80",)),
        (with_(temperature_c=80), "high", ("temperature 80 °C of 80",)),
        (with_(temperature_c=85), "critical", ("temperature 85 °C of 80",)),
        (with_(frequency=0.91), "normal", ()),
        (with_(frequency=0.9), "elevated", ("clock limited to 90 %",)),
        (with_(frequency=0.6), "high", ("clock limited to 60 %",)),
        (with_(throttled=0b0001), "elevated", ("the supply's voltage is too low",)),
        (with_(throttled=0b0010), "high", ("the firmware caps the clock",)),
        (with_(throttled=0b0100), "high", ("the firmware throttles the processor",)),
        (with_(throttled=0b1000), "elevated", ("the firmware's soft temperature limit is reached",)),
        # it has been, but is no more
        (with_(throttled=0xF0000), "normal", ()),
        # the worst decides and comes first
        (
            with_(stalled=6, temperature_c=81, throttled=1),
            "high",
            ("temperature 81 °C of 80", "memory 6 % stalled", "the supply's voltage is too low"),
        ),
    ],
)
def test_the_worst_sensor_decides_and_each_that_presses_is_named(
    readings: Readings, level: Level, reasons: tuple[str, ...]
) -> None:
    status = level_of(readings, MARGIN)
    assert (status.level, status.reasons) == (level, reasons)


def test_without_a_margin_there_is_nothing_to_fall_below() -> None:
    assert level_of(with_(available=0), 0).level == "normal"


# --- many looks -----------------------------------------------------------------------------------------------------
def fed(pressure: Pressure, *looks: tuple[float, Readings]) -> list[Level]:
    levels = []
    for now_s, readings in looks:
        before = pressure.status.level
        assert pressure.feed(readings, MARGIN, now_s) == (pressure.status.level != before)
        levels.append(pressure.status.level)
    return levels


@pytest.mark.parametrize("spike", [with_(stalled=30), with_(temperature_c=81)])
def test_one_spike_of_stalls_or_heat_is_no_state_and_two_in_a_row_are(spike: Readings) -> None:
    assert fed(Pressure(), (0, spike), (1, CALM), (2, spike), (3, spike)) == ["normal", "normal", "normal", "high"]


def test_a_stall_does_not_confirm_heat() -> None:
    assert fed(Pressure(), (0, with_(stalled=30)), (1, with_(temperature_c=81))) == ["normal", "normal"]


def test_of_two_spikes_the_lower_one_is_confirmed() -> None:
    assert fed(Pressure(), (0, with_(stalled=6)), (1, with_(stalled=30))) == ["normal", "elevated"]


@pytest.mark.parametrize(
    ("readings", "level"),
    [
        (with_(stalled=55), "critical"),
        (with_(temperature_c=90), "critical"),
        (with_(available=100 * MIB), "high"),
        (with_(frequency=0.5), "high"),
        (with_(throttled=4), "high"),
    ],
)
def test_what_is_critical_or_no_matter_of_moments_counts_at_once(readings: Readings, level: Level) -> None:
    assert fed(Pressure(), (0, readings)) == [level]


def test_it_falls_one_level_at_a_time_each_after_its_calm() -> None:
    pressure = Pressure()
    looks = [(0.0, with_(stalled=60)), *((float(second), CALM) for second in range(1, 120))]
    levels = fed(pressure, *looks)
    changes = {second: after for second, (before, after) in enumerate(pairwise(levels), 1) if before != after}
    assert changes == {31: "high", 61: "elevated", 91: "normal"}


def test_a_fall_to_what_still_presses_is_no_calm() -> None:
    pressure, low = Pressure(), with_(available=200 * MIB)
    looks = [(0, with_(available=100 * MIB)), (1, low), (31, low)]
    assert fed(pressure, *looks, (100, CALM), (130, CALM)) == ["high", "high", "elevated", "elevated", "normal"]


def test_a_reading_at_the_level_starts_its_calm_anew() -> None:
    pressure = Pressure()
    low = with_(available=200 * MIB)
    assert fed(pressure, (0, low), (1, CALM), (30, low), (31, CALM), (60, CALM), (61, CALM)) == [
        *["elevated"] * 5,
        "normal",
    ]


@pytest.mark.parametrize(
    ("up", "held", "over"),
    [
        (with_(stalled=6), with_(stalled=4.1), with_(stalled=3.9)),
        (with_(available=290 * MIB), with_(available=374 * MIB), with_(available=376 * MIB)),
        (with_(temperature_c=76), with_(temperature_c=72), with_(temperature_c=71.9)),
        (with_(frequency=0.88), with_(frequency=0.94), with_(frequency=0.96)),
    ],
)
def test_a_sensor_must_be_a_step_below_what_raised_it(up: Readings, held: Readings, over: Readings) -> None:
    pressure = Pressure()
    assert fed(pressure, (0, up), (1, up))[-1] == "elevated"
    assert set(fed(pressure, *((second, held) for second in range(2, 200)))) == {"elevated"}
    assert fed(pressure, (200, over), (229, over), (230, over)) == ["elevated", "elevated", "normal"]


def test_time_in_which_nobody_looked_is_no_calm() -> None:
    assert fed(Pressure(), (0, with_(available=0)), (3600, CALM), (3629, CALM), (3630, CALM)) == [
        *["critical"] * 3,
        "high",
    ]


def test_the_length_of_the_calm_is_the_callers() -> None:
    assert fed(Pressure(calm_s=2), (0, with_(throttled=1)), (1, CALM), (3, CALM)) == ["elevated", "elevated", "normal"]


def test_the_status_says_what_presses_and_then_how_long_it_has_been_calm() -> None:
    pressure = Pressure()

    def told(now_s: float, readings: Readings) -> tuple[str, ...]:
        pressure.feed(readings, MARGIN, now_s)
        return pressure.status.reasons

    assert told(0, with_(stalled=30)) == ()  # a spike; nothing to explain
    assert told(1, with_(stalled=30)) == ("memory 30 % stalled",)
    assert told(2, with_(stalled=4.4)) == ("memory 4 % stalled",)
    assert told(14, CALM) == ("calm for 12 of 30 s",)


# --- what must hold for every course of things ----------------------------------------------------------------------
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


# --- relief ---------------------------------------------------------------------------------------------------------
def test_every_level_gives_up_at_least_what_the_one_before_did() -> None:
    assert tuple(RELIEF) == LEVELS

    def generosity(relief: Relief) -> dict[str, float]:
        values = {field.name: getattr(relief, field.name) for field in fields(relief)}
        chunk = values["prefill_chunk"]
        return {
            **values,
            "prefill_chunk": float("inf") if chunk is None else chunk,
            "small_model": not values["small_model"],
        }

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
    assert [relief.answer_limit(96) for relief in levels] == [96, 72, 48, 31]
    assert [relief.answer_limit(1) for relief in levels] == [1, 1, 1, 1]


@given(st.integers(1, 256), st.floats(0, 1e6), st.integers(1, 4096))
def test_relief_never_asks_for_more_or_for_nothing(threads: int, seconds: float, tokens: int) -> None:
    for relief in RELIEF.values():
        assert 1 <= relief.thread_count(threads) <= threads
        assert 0 <= relief.keep_alive_s(seconds) <= seconds
        assert 1 <= relief.answer_limit(tokens) <= tokens
