"""Readings of the machine's state, and a pressure that is fed with them."""

from __future__ import annotations

from dataclasses import replace

from assistant.memory_orchestrator.pressure import Pressure
from assistant.memory_orchestrator.sensors import Readings
from assistant.messages import Level
from assistant.messages_status import PressureStatus

MIB = 1 << 20
MARGIN = 300 * MIB
CALM = Readings(stalled=0, available=900 * MIB, temperature_c=50, trip_c=80, frequency=1.0)


def with_(**values: float | int | None) -> Readings:
    return replace(CALM, **values)  # type: ignore[arg-type]


def fed(pressure: Pressure, *looks: tuple[float, Readings]) -> list[Level]:
    levels = []
    for now_s, readings in looks:
        before = pressure.status.level
        assert pressure.feed(readings, MARGIN, now_s) == (pressure.status.level != before)
        levels.append(pressure.status.level)
    return levels


def level_of(readings: Readings, margin: int) -> PressureStatus:
    """What a pressure says of a machine that is like this: two looks, since stalls and heat count from the second."""
    pressure = Pressure()
    for now_s in (0, 1):
        pressure.feed(readings, margin, now_s)
    return pressure.status
