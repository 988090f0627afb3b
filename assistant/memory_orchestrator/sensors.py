"""What the machine suffers from right now: memory stalls, heat, capped clocks, a weak supply.

Owns the reading of /proc and /sys for that; imports `cgroup`; judges nothing (`pressure` does). The root is a
seam. Where to look is found once, at construction; a reading then opens a handful of small files. What is missing or
unreadable is None or 0, never an error: no two machines have the same sensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assistant.machine import lines_of, number_of
from assistant.memory_orchestrator.cgroup import Cgroups

_KIB = 1024
_COLDEST_C, _HOTTEST_C = -40.0, 150.0
"""Outside of this a sensor is broken or switched off (-274 is the kernel's word for that)."""
_DEFAULT_TRIP_C = 80.0
"""Where a processor that names no limit of its own is taken to be hot: a Raspberry Pi slows down from here on."""
_BELOW_CRITICAL_C = 10.0
"""At `critical` the kernel switches the machine off; it must never come that near."""
_PROCESSOR = ("cpu", "soc", "pkg", "core")
"""How thermal zones of processors are called: cpu-thermal, soc_thermal, x86_pkg_temp, coretemp."""
_BOARD = ("cpu", "soc")
"""Those of small boards. Where such a zone names its critical trip alone (a Raspberry Pi: 110 °C), the firmware slows
the processor down long before."""


@dataclass(frozen=True, slots=True)
class Readings:
    """One look at the machine. None = there is no such sensor."""

    stalled: float | None = None
    """Percent of the last 10 s in which some task of ours waited for memory (PSI `some avg10`)."""
    available: int | None = None
    """Bytes that can still be allocated without swapping: the machine's, or our cgroup's where that is less."""
    temperature_c: float | None = None
    """Of the zone that is nearest to its trip, or furthest beyond it."""
    trip_c: float | None = None
    """Where that zone begins to slow the processor down."""
    frequency: float | None = None
    """0..1: the share of the clock allowed at the start that the most limited CPU is still allowed; not what it runs
    at."""
    throttled: int = 0
    """Raspberry Pi's flags; bits 0-3 are now, bits 16-19 are history."""


@dataclass(frozen=True, slots=True)
class _Zone:
    file: Path
    trip_c: float


class Sensors:
    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._cgroups = Cgroups(root)
        self._stalls = [*self._cgroups.pressure, root / "proc/pressure/memory"]
        self._zones = [*_zones(root / "sys/class/thermal")]
        policies = sorted((root / "sys/devices/system/cpu/cpufreq").glob("policy*"))
        # a cap that was there before us is somebody's wish (a power-saving mode), and no sign of pressure
        self._policies = [(file, cap) for policy in policies if (cap := number_of(file := policy / "scaling_max_freq"))]
        platform = root / "sys/devices/platform"
        # soc/soc:firmware up to the Raspberry Pi 4; later ones put the bus's address into the names
        self._flags = [*platform.glob("soc*/*firmware/get_throttled"), *platform.glob("*:firmware/get_throttled")]

    def read(self) -> Readings:
        temperature, trip = self._hottest()
        return Readings(
            stalled=next((share for file in self._stalls if (share := _stalled(file)) is not None), None),
            available=self._available(),
            temperature_c=temperature,
            trip_c=trip,
            frequency=min(
                (min(1.0, max(0, now) / cap) for file, cap in self._policies if (now := number_of(file)) is not None),
                default=None,
            ),
            throttled=next((flags for file in self._flags if (flags := number_of(file, 16)) is not None), 0),
        )

    def _available(self) -> int | None:
        limits = self._cgroups.read()
        found = [limits.left] if limits else []
        for line in lines_of(self._root / "proc/meminfo"):
            name, _, rest = line.partition(":")
            if name == "MemAvailable" and (words := rest.split()) and words[0].isdigit():
                found.append(int(words[0]) * _KIB)
                break
        return min(found, default=None)

    def _hottest(self) -> tuple[float | None, float | None]:
        """The temperature and the trip of the zone that is hottest for its own measure, in °C."""
        found = [(celsius, zone.trip_c) for zone in self._zones if (celsius := _celsius(zone.file)) is not None]
        return max(found, key=lambda pair: pair[0] - pair[1], default=(None, None))


# --- memory ---------------------------------------------------------------------------------------------------------
def _stalled(file: Path) -> float | None:
    """`some avg10=1.23 avg60=… avg300=… total=…`; reading fails where the kernel was started with psi=0."""
    for line in lines_of(file):
        kind, _, rest = line.partition(" ")
        first = rest.partition(" ")[0]
        if kind == "some" and first.startswith("avg10="):
            try:
                return float(first.removeprefix("avg10="))
            except ValueError:
                return None
    return None


# --- heat and clocks ------------------------------------------------------------------------------------------------
def _zones(folder: Path) -> Iterator[_Zone]:
    for zone in sorted(folder.glob("thermal_zone*")):
        kind = "".join(lines_of(zone / "type")).lower()
        trip = _trip(zone)
        if trip is None and any(part in kind for part in _PROCESSOR):
            trip = _DEFAULT_TRIP_C
        elif trip is not None and kind.startswith(_BOARD) and not _slows(zone):
            trip = min(trip, _DEFAULT_TRIP_C)
        if trip is not None:
            yield _Zone(zone / "temp", trip)


def _trip(zone: Path) -> float | None:
    """The lowest `passive` or `hot` trip, else what keeps well below `critical`; `active` ones start a fan alone."""
    if slows := _slows(zone):
        return min(slows)
    critical = _trips(zone).get("critical")
    return min(critical) - _BELOW_CRITICAL_C if critical else None


def _slows(zone: Path) -> list[float]:
    found = _trips(zone)
    return found.get("passive", []) + found.get("hot", [])


def _trips(zone: Path) -> dict[str, list[float]]:
    """°C by kind of trip."""
    found: dict[str, list[float]] = {}
    for file in zone.glob("trip_point_*_type"):
        celsius = _celsius(file.with_name(file.name.removesuffix("type") + "temp"))
        # a trip that is not set reads 0 or absurd
        if celsius is not None and celsius > 0:
            found.setdefault("".join(lines_of(file)), []).append(celsius)
    return found


def _celsius(file: Path) -> float | None:
    milli = number_of(file)
    celsius = None if milli is None else milli / 1000
    return celsius if celsius is not None and _COLDEST_C < celsius < _HOTTEST_C else None
