"""What sensors say: of this machine, and of others whose files are written below a root of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.memory_orchestrator.sensors import Readings, Sensors

MIB = 1 << 20
FLAGS = "sys/devices/platform/soc/soc:firmware/get_throttled"
THERMAL = "sys/class/thermal"
CPUFREQ = "sys/devices/system/cpu/cpufreq"


def machine(root: Path, files: dict[str, str]) -> Sensors:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return Sensors(root)


def zone(number: int, kind: str, milli: object, **trips: int) -> dict[str, str]:
    """Trips by type; a digit at the end of a type makes it another one of the same."""
    folder = f"{THERMAL}/thermal_zone{number}"
    files = {f"{folder}/type": kind, f"{folder}/temp": str(milli)}
    for index, (name, trip) in enumerate(trips.items()):
        files[f"{folder}/trip_point_{index}_type"] = name.rstrip("0123456789")
        files[f"{folder}/trip_point_{index}_temp"] = str(trip)
    return files


def pressure(avg10: str) -> str:
    return f"some avg10={avg10} avg60=1.00 avg300=0.50 total=34486\nfull avg10=99.00 avg60=9.00 avg300=9.00 total=1"


@pytest.mark.alone("within 10 ms")
def test_this_machine_says_something_plausible_and_quickly() -> None:
    sensors = Sensors()
    seen = sensors.read()
    assert seen.stalled is None or 0 <= seen.stalled <= 100
    assert seen.available is not None
    assert 8 * MIB < seen.available < 1 << 50
    assert (seen.temperature_c is None) == (seen.trip_c is None)
    assert seen.temperature_c is None or -40 < seen.temperature_c < 150
    assert seen.frequency is None or 0 < seen.frequency <= 1
    assert 0 <= seen.throttled < 1 << 32
    times = []
    for _ in range(20):
        started = time.perf_counter()
        sensors.read()
        times.append(time.perf_counter() - started)
    assert min(times) < 0.01


def test_a_machine_without_any_sensor_is_no_error(tmp_path: Path) -> None:
    assert Sensors(tmp_path).read() == Readings()


def test_files_full_of_nonsense_are_no_error(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/a\nnonsense\n4:memory",
        "proc/pressure/memory": "some avg10=much",
        "proc/meminfo": "MemAvailable: lots kB",
        "sys/fs/cgroup/a/memory.max": "1000",
        "sys/fs/cgroup/a/memory.current": "few",
        "sys/fs/cgroup/a/memory.pressure": "",
        f"{CPUFREQ}/policy0/scaling_max_freq": "fast",
        f"{CPUFREQ}/policy0/cpuinfo_max_freq": "0",
        f"{CPUFREQ}/policy1/scaling_max_freq": "1000",
        FLAGS: "yes",
        **zone(0, "cpu-thermal", "warm", passive=80000),
    }
    # a usage that is no number counts as nothing: the ledger has figures of its own
    assert machine(tmp_path, files).read() == Readings(available=1000, frequency=1)


# --- memory ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("cgroup", "own", "stalled"),
    [
        ("0::/user/app", "sys/fs/cgroup/user/app", 12.5),
        ("9:name=systemd:/\n4:memory:/x\n0::/app", "sys/fs/cgroup/unified/app", 12.5),
        # in a container: the host's path, of which the mount shows the end
        ("0::/docker/0123", "sys/fs/cgroup", 12.5),
        ("0::/../app", "sys/fs/cgroup/app", 12.5),
        # v1 has no such figure
        ("4:memory:/app", "sys/fs/cgroup/memory/app", 3.25),
        ("0::/app", "sys/fs/cgroup/other", 3.25),
    ],
)
def test_stalls_are_those_of_our_own_cgroup_else_of_the_machine(
    tmp_path: Path, cgroup: str, own: str, stalled: float
) -> None:
    files = {
        "proc/self/cgroup": cgroup,
        "proc/pressure/memory": pressure("3.25"),
        f"{own}/memory.pressure": pressure("12.50"),
    }
    assert machine(tmp_path, files).read().stalled == stalled


def test_a_cgroup_that_vanishes_leaves_the_machines_figure(tmp_path: Path) -> None:
    own = {"sys/fs/cgroup/a/memory.pressure": pressure("9.00")}
    sensors = machine(tmp_path, {"proc/self/cgroup": "0::/a", "proc/pressure/memory": pressure("1.00"), **own})
    assert sensors.read().stalled == 9
    shutil.rmtree(tmp_path / "sys/fs/cgroup/a")
    assert sensors.read().stalled == 1


V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    ("cgroup", "files", "available"),
    [
        pytest.param("0::/a", {}, 1000, id="no limit"),
        pytest.param("0::/a", {f"{V2}/a/memory.max": "max", f"{V2}/a/memory.current": "1"}, 1000, id="max"),
        pytest.param(
            "0::/a",
            {f"{V2}/a/memory.max": str(800 * MIB), f"{V2}/a/memory.current": str(500 * MIB),
             f"{V2}/a/memory.stat": f"anon 1\ninactive_file {90 * MIB}\nactive_file {10 * MIB}"},
            400, id="v2: page cache is not lost",
        ),
        pytest.param(
            "0::/a/b",
            {f"{V2}/a/b/memory.max": str(800 * MIB), f"{V2}/a/b/memory.current": "0",
             f"{V2}/a/memory.max": str(600 * MIB), f"{V2}/a/memory.current": str(550 * MIB)},
            50, id="the parent has less",
        ),
        pytest.param(
            "4:memory:/x",
            {f"{V1}/x/memory.limit_in_bytes": str(700 * MIB), f"{V1}/x/memory.usage_in_bytes": str(300 * MIB),
             f"{V1}/x/memory.stat": f"inactive_file 5\ntotal_inactive_file {100 * MIB}\ntotal_active_file 0"},
            500, id="v1",
        ),
        pytest.param(
            "4:memory:/x",
            {f"{V1}/x/memory.limit_in_bytes": "9223372036854771712", f"{V1}/x/memory.usage_in_bytes": "5"},
            1000, id="v1 without a limit",
        ),
        pytest.param(
            "0::/a", {f"{V2}/a/memory.max": str(100 * MIB), f"{V2}/a/memory.current": str(120 * MIB)}, 0,
            id="over its limit",
        ),
        pytest.param(
            "0::/a", {f"{V2}/a/memory.max": str(9000 * MIB), f"{V2}/a/memory.current": "0"}, 1000,
            id="a limit larger than the machine",
        ),
    ],
)  # fmt: skip
def test_available_is_the_lesser_of_the_machine_and_every_limit_above_us(
    tmp_path: Path, cgroup: str, files: dict[str, str], available: int
) -> None:
    own = {"proc/self/cgroup": cgroup, "proc/meminfo": f"MemTotal: 9 kB\nMemAvailable: {1000 * 1024} kB"}
    assert machine(tmp_path, {**own, **files}).read().available == available * MIB


READ_AND_HOLD = """
import os, sys
from assistant.memory_orchestrator.sensors import Sensors
sensors = Sensors()
seen = [sensors.read().available]
with open(sys.argv[1], "w+b") as weights:  # written here, so that their pages are charged here
    for _ in range(100):
        weights.write(bytes(1 << 20))
    os.fsync(weights.fileno())
for _ in range(3):  # read more than once, they become active
    with open(sys.argv[1], "rb") as weights:
        while weights.read(1 << 20):
            pass
seen.append(sensors.read().available)
block = b"x" * (100 << 20)
seen.append(sensors.read().available)
print(*seen)
"""


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A real one of 300 MiB."""
    v1 = Path("/sys/fs/cgroup/memory")
    folder = (v1 if v1.is_dir() else v1.parent) / f"assistant-sensors-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"cgroups cannot be made here: {error}")
    try:
        (folder / ("memory.limit_in_bytes" if v1.is_dir() else "memory.max")).write_text(str(300 * MIB))
        yield folder
    except OSError as error:
        pytest.skip(f"memory cannot be limited here: {error}")
    finally:
        folder.rmdir()


@pytest.mark.root
def test_in_a_real_cgroup_memory_that_is_held_is_gone_and_weights_that_were_read_are_not(
    small_cgroup: Path, tmp_path: Path
) -> None:
    enter = ["sh", "-c", f'echo $$ > {small_cgroup}/cgroup.procs && exec "$@"', "sh"]
    done = subprocess.run(
        [*enter, sys.executable, "-c", READ_AND_HOLD, str(tmp_path / "weights")],
        capture_output=True, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    before, cached, held = (int(word) for word in done.stdout.split())
    assert 250 * MIB < before <= 300 * MIB
    assert before - cached < 20 * MIB
    assert 80 * MIB < cached - held < 120 * MIB


# --- heat, clocks, supply -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("zones", "temperature", "trip"),
    [
        pytest.param(zone(0, "cpu-thermal", 61000, critical=110000), 61, 80, id="critical alone, as a Raspberry Pi"),
        pytest.param(zone(0, "cpu-thermal", 61000), 61, 80, id="a processor without a trip"),
        pytest.param(zone(0, "wifi", 61000), None, None, id="something else without a trip"),
        pytest.param(
            zone(0, "soc-thermal", 61000, active=50000, passive=85000, passive1=75000, hot=90000, critical=95000),
            61, 75, id="the lowest that slows it down",
        ),
        pytest.param(zone(0, "x86_pkg_temp", 61000, passive=0, passive1=-274000), 61, 80, id="trips that are not set"),
        pytest.param(
            {**zone(0, "cpu-thermal", 70000, passive=90000), **zone(1, "gpu-thermal", 66000, passive=75000)},
            66, 75, id="the hottest for its own measure",
        ),
        pytest.param(
            {**zone(0, "cpu", -40000), **zone(1, "cpu", 150000), **zone(2, "cpu", -274000), **zone(3, "cpu", 30500)},
            30.5, 80, id="broken sensors are skipped",
        ),
        pytest.param(zone(0, "cpu-thermal", ""), None, None, id="one that says nothing"),
    ],
)  # fmt: skip
def test_the_hottest_zone_and_where_it_slows_down(
    tmp_path: Path, zones: dict[str, str], temperature: float | None, trip: float | None
) -> None:
    seen = machine(tmp_path, zones).read()
    assert (seen.temperature_c, seen.trip_c) == (temperature, trip)


def test_a_sensor_that_vanishes_is_skipped_and_one_that_comes_back_is_seen(tmp_path: Path) -> None:
    sensors = machine(tmp_path, {**zone(0, "cpu0", 79000), **zone(1, "cpu1", 40000), FLAGS: "1"})
    assert (sensors.read().temperature_c, sensors.read().throttled) == (79, 1)
    (tmp_path / THERMAL / "thermal_zone0/temp").unlink()
    (tmp_path / FLAGS).unlink()
    assert (sensors.read().temperature_c, sensors.read().throttled) == (40, 0)
    (tmp_path / THERMAL / "thermal_zone0/temp").write_text("81000\n")
    assert sensors.read().temperature_c == 81


def policy(number: int, allowed: int, now: int) -> dict[str, str]:
    folder = f"{CPUFREQ}/policy{number}"
    return {f"{folder}/scaling_max_freq": str(allowed), f"{folder}/scaling_cur_freq": str(now)}


def test_the_clock_is_what_the_most_limited_cpu_is_still_allowed_not_what_it_idles_at(tmp_path: Path) -> None:
    sensors = machine(tmp_path, {**policy(0, 1_400_000, 600_000), **policy(4, 1_800_000, 9)})
    assert sensors.read().frequency == 1
    (tmp_path / CPUFREQ / "policy4/scaling_max_freq").write_text("900000\n")
    assert sensors.read().frequency == 0.5
    (tmp_path / CPUFREQ / "policy4/scaling_max_freq").write_text("2000000\n")
    assert sensors.read().frequency == 1


def test_a_cap_that_somebody_set_before_us_is_no_pressure(tmp_path: Path) -> None:
    saving = {**policy(0, 600_000, 600_000), f"{CPUFREQ}/policy0/cpuinfo_max_freq": "1800000"}
    assert machine(tmp_path, saving).read().frequency == 1


@pytest.mark.parametrize(
    ("path", "text", "flags"),
    [
        (FLAGS, "0", 0),
        (FLAGS, "50005", 0x50005),
        (FLAGS, "0x50000", 0x50000),
        ("sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled", "e", 0xE),
        ("sys/devices/platform/soc:firmware/get_throttled", "2", 2),
    ],
)
def test_raspberry_pi_flags_are_hexadecimal(tmp_path: Path, path: str, text: str, flags: int) -> None:
    assert machine(tmp_path, {path: text}).read().throttled == flags
