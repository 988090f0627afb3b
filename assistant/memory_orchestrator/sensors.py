"""What the machine suffers from right now: memory stalls, heat, capped clocks, a weak supply.

Owns the reading of /proc and /sys for that; imports nothing of ours; judges nothing (`pressure` does). The root is a
seam. Where to look is found once, at construction; a reading then opens a handful of small files. What is missing or
unreadable is None or 0, never an error: no two machines have the same sensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_KIB = 1024
_UNLIMITED = 1 << 60
"""cgroup v1 says "no limit" with a huge number."""
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
    """0..1: the share of its top clock that the most limited CPU is allowed; not what it runs at."""
    throttled: int = 0
    """Raspberry Pi's flags; bits 0-3 are now, bits 16-19 are history."""


@dataclass(frozen=True, slots=True)
class _Zone:
    file: Path
    trip_c: float


@dataclass(frozen=True, slots=True)
class _Group:
    """A memory cgroup that may have a limit."""

    limit: Path
    usage: Path
    stat: Path
    prefix: str
    """Before the keys of what its descendants hold included."""


class Sensors:
    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        folders = [*_own_cgroups(root)]
        self._stalls = [
            *(folder / "memory.pressure" for folder, version in folders if version == 2),
            root / "proc/pressure/memory",
        ]
        self._stalls = [file for file in self._stalls if file.exists()]
        self._groups = [_group(folder, version) for folder, version in folders]
        self._groups = [group for group in self._groups if group.limit.exists()]
        self._zones = [*_zones(root / "sys/class/thermal")]
        self._policies = sorted((root / "sys/devices/system/cpu/cpufreq").glob("policy*"))
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
                (share for policy in self._policies if (share := _allowed(policy)) is not None), default=None
            ),
            throttled=next((flags for file in self._flags if (flags := _number(file, 16)) is not None), 0),
        )

    def _available(self) -> int | None:
        found = [left for group in self._groups if (left := _left(group)) is not None]
        for line in _lines(self._root / "proc/meminfo"):
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
def _own_cgroups(root: Path) -> Iterator[tuple[Path, int]]:
    """Folders of our cgroup and its ancestors, nearest first, each with its version (1 or 2)."""
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mounts, version = ["sys/fs/cgroup", "sys/fs/cgroup/unified"], 2
        elif "memory" in controllers.split(","):
            mounts, version = ["sys/fs/cgroup/memory"], 1
        else:
            continue
        # in a container the path may be the host's, of which the mount shows the end alone: the way up meets it
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            for mount in mounts:
                yield root.joinpath(mount, *parts[:depth]), version


def _group(folder: Path, version: int) -> _Group:
    if version == 2:
        return _Group(folder / "memory.max", folder / "memory.current", folder / "memory.stat", "")
    return _Group(
        folder / "memory.limit_in_bytes", folder / "memory.usage_in_bytes", folder / "memory.stat", prefix="total_"
    )


def _left(group: _Group) -> int | None:
    """Bytes below the limit once the kernel has dropped its page cache; None without a limit.

    All of the cache, the active part too, as MemAvailable counts it: weights become active by being loaded twice, and
    stay there, reclaimable, when their stage has long gone. Cache that is missed after all shows as stalls.
    """
    limit, usage = _number(group.limit), _number(group.usage)
    if limit is None or usage is None or limit >= _UNLIMITED:
        return None
    cache = 0
    for line in _lines(group.stat):
        name, _, text = line.partition(" ")
        if name in (f"{group.prefix}inactive_file", f"{group.prefix}active_file") and text.isdigit():
            cache += int(text)
    return max(0, limit - max(0, usage - cache))


def _stalled(file: Path) -> float | None:
    """`some avg10=1.23 avg60=… avg300=… total=…`; reading fails where the kernel was started with psi=0."""
    for line in _lines(file):
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
        kind = "".join(_lines(zone / "type")).lower()
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
            found.setdefault("".join(_lines(file)), []).append(celsius)
    return found


def _celsius(file: Path) -> float | None:
    milli = _number(file)
    celsius = None if milli is None else milli / 1000
    return celsius if celsius is not None and _COLDEST_C < celsius < _HOTTEST_C else None


def _allowed(policy: Path) -> float | None:
    """0..1. `scaling_max_freq` is what heat, supply and the user's own settings have left of the top clock."""
    allowed, top = _number(policy / "scaling_max_freq"), _number(policy / "cpuinfo_max_freq")
    if allowed is None or not top or top < 0:
        return None
    return min(1.0, max(0.0, allowed / top))


# --- files ----------------------------------------------------------------------------------------------------------
def _lines(file: Path) -> Sequence[str]:
    try:
        return file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ()


def _number(file: Path, base: int = 10) -> int | None:
    try:
        return int("".join(_lines(file)), base)
    except ValueError:
        return None
