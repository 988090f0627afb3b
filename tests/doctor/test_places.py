"""Folders with real modes and owners, and a real disk that is full."""

from __future__ import annotations

import dataclasses
import os
import stat
import subprocess
from pathlib import Path

import pytest

from assistant.doctor.examine import mend
from assistant.doctor.places import look_at_disk, look_at_folders
from tests.doctor.machines import Machine, as_nobody, look, mounted

REMOTE = ("stages.asr.engine=wyoming", "stages.llm.engine=openai", "stages.tts.engine=wyoming")
NOBODY = 65534


def test_folders_that_are_not_there_yet_are_fine_and_made_by_fix(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    found = [*look_at_folders(machine.scene())]
    assert [(one.id, one.level) for one in found] == [("folder-missing", "ok")] * 3
    assert all(done.good for done in mend(found))
    for path in (machine.places.runtime, machine.places.state, machine.places.cache):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert [*look(look_at_folders, machine.scene())] == ["folders"]
    assert not machine.places.config.exists(), "nobody needs it"


@pytest.mark.parametrize(
    ("place", "mode", "level"),
    [
        ("runtime", 0o755, "problem"),
        ("state", 0o755, "advice"),
        ("state", 0o770, "problem"),
        ("config", 0o750, "advice"),
        ("cache", 0o755, "ok"),
    ],
)
def test_folders_that_are_open_to_others_are_closed_by_fix(tmp_path: Path, place: str, mode: int, level: str) -> None:
    machine = Machine(tmp_path)
    mend(look_at_folders(machine.scene()))
    path: Path = getattr(machine.places, place)
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    found = look(look_at_folders, machine.scene())
    if level == "ok":
        assert [*found] == ["folders"]
        return
    assert found["folder-mode"].level == level
    assert str(path) in found["folder-mode"].fix
    mend(found.values())
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert [*look(look_at_folders, machine.scene())] == ["folders"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    mend(look_at_folders(machine.scene()))
    os.chown(machine.places.state, NOBODY, NOBODY)
    finding = look(look_at_folders, machine.scene())["folder-owner"]
    assert "belongs to user 65534" in finding.found
    assert finding.fix == f"sudo chown -R root {machine.places.state}"


def test_a_file_or_a_link_in_the_place_of_a_folder(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    mend(look_at_folders(machine.scene()))
    machine.places.state.rmdir()
    machine.places.state.write_text("")
    assert "is no folder" in look(look_at_folders, machine.scene())["folder-not-writable"].found
    machine.places.state.unlink()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    machine.places.state.symlink_to(tmp_path / "elsewhere")
    assert [*look(look_at_folders, machine.scene())] == ["folders"], "state may be moved to another disk"
    machine.places.runtime.rmdir()
    machine.places.runtime.symlink_to(tmp_path / "elsewhere")
    assert "folder-not-writable" in look(look_at_folders, machine.scene()), "sockets may not"


def test_a_file_on_the_way_to_a_folder(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    mend(look_at_folders(machine.scene()))
    machine.places.cache.rmdir()
    machine.places.cache.parent.rmdir()
    machine.places.cache.parent.write_text("")
    assert "cannot be reached" in look(look_at_folders, machine.scene())["folder-not-writable"].found


@pytest.mark.root
def test_a_disk_that_cannot_be_written(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    state = machine.places.state
    state.parent.mkdir()
    with mounted(state.parent):
        mend(look_at_folders(machine.scene()))
        subprocess.run(["mount", "-o", "remount,ro", state.parent], check=True)
        finding = look(look_at_folders, machine.scene())["folder-not-writable"]
        assert finding.fix == f"sudo mount -o remount,rw {state.parent}"
    assert [*look(look_at_folders, machine.scene())] == ["folder-missing"]


@pytest.mark.root
def test_as_nobody_without_a_home() -> None:
    rows = as_nobody("""
from assistant.doctor.places import look_at_folders
from assistant.doctor.scene import Scene
import pwd

for one in look_at_folders(Scene()):
    print(one.id, one.level, one.fix, sep="|")
""")
    assert ["home-unset", "advice"] in [row[:2] for row in rows]
    assert ["runtime-dir-unset", "advice"] in [row[:2] for row in rows]
    assert any(row[2].startswith("sudo install -d -m 700 -o nobody") for row in rows)


def test_home_unset_is_told_unless_the_xdg_folders_are_set(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    del machine.environ["HOME"]
    assert "getent passwd" in look(look_at_folders, machine.scene())["home-unset"].fix
    for name in ("CONFIG", "DATA", "CACHE", "STATE"):
        machine.environ[f"XDG_{name}_HOME"] = str(tmp_path)
    assert "home-unset" not in look(look_at_folders, machine.scene())


def test_a_runtime_folder_that_is_too_long_for_sockets(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.places = dataclasses.replace(machine.places, runtime=tmp_path / ("x" * 100))
    assert "107 bytes" in look(look_at_folders, machine.scene())["runtime-dir-long"].found


# --- disk -----------------------------------------------------------------------------------------------------------
@pytest.mark.root
@pytest.mark.parametrize(
    ("size", "sets", "ids"),
    [
        ("1m", REMOTE, {"disk-full", "disk-low"}),
        ("300m", REMOTE, {"disk-low"}),
        ("200m", (), {"disk-full", "disk-low"}),
    ],
    ids=["nothing", "little", "less-than-the-missing-models"],
)
def test_disks_without_room(tmp_path: Path, size: str, sets: tuple[str, ...], ids: set[str]) -> None:
    machine = Machine(tmp_path)
    with mounted(machine.home, size):
        found = look(look_at_disk, machine.scene(*sets))
        assert {*found} == ids
        assert str(machine.home) in next(iter(found.values())).fix


@pytest.mark.root
def test_a_disk_with_room(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with mounted(machine.home, "2g"):
        assert "models: 2,048 MiB free" in look(look_at_disk, machine.scene(*REMOTE))["disk"].found
