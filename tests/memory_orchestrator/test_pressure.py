"""From readings to a level that does not flap."""

from __future__ import annotations

from itertools import pairwise

import pytest

from assistant.memory_orchestrator.pressure import Pressure
from assistant.memory_orchestrator.sensors import Readings
from assistant.messages import Level
from tests.memory_orchestrator.looks import CALM, MARGIN, MIB, fed, level_of, with_


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
