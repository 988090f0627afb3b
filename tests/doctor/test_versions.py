"""Versions of what is installed, and the unit of systemd."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from assistant.doctor.findings import Finding
from assistant.doctor.unit import look_at_unit
from assistant.doctor.versions import look_at_versions, packages, python, required
from tests.doctor.machines import Machine, look


def test_this_machine_has_what_was_tested(tmp_path: Path) -> None:
    found = look(look_at_versions, Machine(tmp_path).scene())["versions"].found
    for name in ("assistant 0", "Python 3", "MNN 3", "ctranslate2 ", "onnxruntime ", "piper-tts ", "vosk ", "pyzmq "):
        assert name in found
    assert os.uname().release in found


def test_what_is_pinned_is_read_from_the_checkout() -> None:
    assert ("onnxruntime", "1.28.0") in required()
    assert not [name for name, _ in required() if name in ("pytest", "torch")]


def test_packages_that_are_missing_or_of_another_version() -> None:
    have = metadata.version("msgspec")
    found = [*packages([("msgspec", have), ("msgspec", "0.0.1"), ("no-such-package", "1.0")], metadata.version)]
    assert [(one.id, one.level) for one in found] == [("package-version", "advice"), ("package-missing", "problem")]
    assert found[0].fix == f"{sys.executable} -m pip install msgspec==0.0.1"


def test_an_old_python() -> None:
    assert [one.id for one in python((3, 10))] == ["python-old"]
    assert [*python((3, 11)), *python((4, 0))] == []


# --- the unit -------------------------------------------------------------------------------------------------------
SYSTEM = "etc/systemd/system/assistant.service"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    (machine.root / "run/systemd/system").mkdir(parents=True)
    return machine


def starting(program: str) -> str:
    return f"[Service]\nType=notify\nExecStart={program} -P -m assistant.service\n"


def looked(machine: Machine) -> dict[str, Finding]:
    return look(look_at_unit, machine.scene())


def test_without_systemd_and_without_a_unit_all_is_fine(machine: Machine, tmp_path: Path) -> None:
    assert looked(machine)["service"].fix == "assistant install-service"
    (machine.root / "run/systemd/system").rmdir()
    assert "not started by systemd" in looked(machine)["service"].found


@pytest.mark.parametrize("form", ["/opt/py", "-/opt/py", '"/opt/py"'])
def test_a_unit_of_the_system_and_its_program(machine: Machine, form: str) -> None:
    machine.write({SYSTEM: starting(form)})
    assert "/opt/py, which is not there" in looked(machine)["service-broken"].found
    machine.write({"opt/py": "#!/bin/sh"})
    (machine.root / "opt/py").chmod(0o755)
    assert SYSTEM in looked(machine)["service"].found


def test_the_unit_that_we_write_can_be_read(machine: Machine) -> None:
    command = [sys.executable, "-m", "assistant", "install-service", "--user", "--dry-run"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    machine.write({SYSTEM: text})
    assert f"starts {sys.executable}, which is not there" in looked(machine)["service-broken"].found
    program = machine.root / sys.executable[1:]
    program.parent.mkdir(parents=True)
    program.symlink_to(sys.executable)
    assert "service" in looked(machine)


@pytest.mark.parametrize("text", ["", "ExecStart=\n", "ExecStart='\n"])
def test_a_unit_that_starts_nothing(machine: Machine, text: str) -> None:
    machine.write({SYSTEM: text})
    assert looked(machine)["service-broken"].fix == "assistant install-service --system"


def test_a_unit_of_a_user_needs_lingering(machine: Machine) -> None:
    unit = machine.places.config.parent / "systemd/user/assistant.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(starting("/opt/py"))
    assert looked(machine)["service-broken"].fix == "assistant install-service --user"
    machine.write({"opt/py": "#!/bin/sh"})
    (machine.root / "opt/py").chmod(0o755)
    found = look(lambda scene: look_at_unit(scene, user="ada"), machine.scene())
    assert found["service-linger"].fix == "sudo loginctl enable-linger ada"
    machine.write({"var/lib/systemd/linger/ada": ""})
    assert "service" in look(lambda scene: look_at_unit(scene, user="ada"), machine.scene())
