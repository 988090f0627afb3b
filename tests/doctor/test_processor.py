"""Governor, temperature, supply, PSI, /dev/shm: on trees of real files, a real program, and a real small tmpfs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from assistant.doctor.processor import (
    look_at_governor,
    look_at_pressure,
    look_at_shared_memory,
    look_at_supply,
    look_at_temperature,
)
from tests.doctor.machines import Machine, look, mounted

POLICY = "sys/devices/system/cpu/cpufreq/policy0/"
FLAGS = "sys/devices/platform/soc/soc:firmware/get_throttled"


@pytest.mark.parametrize(
    ("governor", "driver", "able", "found"),
    [
        ("schedutil", "cpufreq-dt", "", "governor"),
        ("powersave", "intel_pstate", "performance powersave", "governor"),
        ("powersave", "cpufreq-dt", "ondemand powersave performance", "governor-slow"),
    ],
)
def test_governor(tmp_path: Path, governor: str, driver: str, able: str, found: str) -> None:
    machine = Machine(tmp_path).write(
        {
            POLICY + "scaling_governor": governor,
            POLICY + "scaling_driver": driver,
            POLICY + "scaling_available_governors": able,
        }
    )
    finding = look(look_at_governor, machine.scene())[found]
    assert governor in finding.found
    if found == "governor-slow":
        assert finding.fix.startswith("echo ondemand | sudo tee /sys/")


def test_a_machine_that_shows_neither_clock_nor_heat_is_fine(tmp_path: Path) -> None:
    scene = Machine(tmp_path).scene()
    assert [*look(look_at_governor, scene), *look(look_at_temperature, scene), *look(look_at_supply, scene)] == [
        "governor", "temperature", "supply",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("celsius", "id", "level"), [(50, "temperature", "ok"), (77, "too-hot", "advice"), (84, "too-hot", "problem")]
)
def test_temperature(tmp_path: Path, celsius: int, id: str, level: str) -> None:
    zone = "sys/class/thermal/thermal_zone0/"
    machine = Machine(tmp_path).write({zone + "type": "cpu-thermal", zone + "temp": str(celsius * 1000)})
    found = look(look_at_temperature, machine.scene())
    assert [*found] == [id]
    assert found[id].level == level
    assert f"{celsius} °C" in found[id].found


@pytest.mark.parametrize(
    ("flags", "levels"),
    [
        ("1", {"supply-weak": "problem"}),
        ("10000", {"supply-weak": "advice"}),
        ("50005", {"supply-weak": "problem", "throttled": "problem"}),
        ("20000", {"throttled": "advice"}),
    ],
)
def test_flags_of_the_firmware_in_sysfs(tmp_path: Path, flags: str, levels: dict[str, str]) -> None:
    found = look(look_at_supply, Machine(tmp_path).write({FLAGS: flags}).scene())
    assert {one: finding.level for one, finding in found.items()} == levels


@pytest.mark.parametrize(
    ("script", "ids"),
    [
        ("echo throttled=0x40004", ["throttled"]),
        ("echo throttled=0x0", ["supply"]),
        ("echo VCHI initialization failed; exit 255", ["supply"]),
    ],
)
def test_flags_from_the_board_s_own_program(tmp_path: Path, script: str, ids: list[str]) -> None:
    machine, program = Machine(tmp_path), tmp_path / "bin/vcgencmd"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    machine.environ["PATH"] = str(program.parent)
    assert [*look(look_at_supply, machine.scene())] == ids


# --- the kernel -----------------------------------------------------------------------------------------------------
def test_pressure_that_the_kernel_does_not_tell(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert "psi=1" in look(look_at_pressure, machine.scene())["pressure-missing"].fix
    machine.write({"proc/pressure/memory": "some avg10=1.50 avg60=0.00 avg300=0.00 total=0\n"})
    assert "1.5 %" in look(look_at_pressure, machine.scene())["pressure"].found


def test_open_files_as_a_shell_may_limit_them() -> None:
    code = """
from assistant.doctor.processor import look_at_open_files
from assistant.doctor.scene import Scene
print(*(one.id for one in look_at_open_files(Scene())))
"""

    def found(limit: str) -> str:
        command = ["sh", "-c", f'{limit}exec "$0" -c "$1"', sys.executable, code]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert found("ulimit -n 64; ") == "open-files-few"
    assert found("ulimit -n 512; ") == "open-files"


def test_shared_memory(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert "mount -t tmpfs" in look(look_at_shared_memory, machine.scene())["shared-memory-missing"].fix
    (machine.root / "dev/shm").mkdir(parents=True)
    assert "shared-memory" in look(look_at_shared_memory, machine.scene())


@pytest.mark.root
def test_shared_memory_that_is_small_or_read_only(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = machine.root / "dev/shm"
    folder.mkdir(parents=True)
    with mounted(folder):
        assert "are free" in look(look_at_shared_memory, machine.scene())["shared-memory-small"].found
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        assert "remount,rw" in look(look_at_shared_memory, machine.scene())["shared-memory-missing"].fix
