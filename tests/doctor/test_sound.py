"""Sound systems that work, are silent, hang or are broken: real ones, in a child process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from assistant.doctor.scene import Scene
from assistant.doctor.sound import look_at_sound, permissions
from tests.doctor.machines import Machine, as_nobody, look
from tests.lacking import lacks
from tests.sound import ALSA_CONFIG, SoundSystem

ON = "audio.enabled=true"


@pytest.fixture
def sound(tmp_path: Path) -> Iterator[SoundSystem]:
    with SoundSystem(tmp_path) as system:
        yield system


def machine_with(folder: Path, environ: dict[str, str]) -> Machine:
    folder.mkdir()
    machine = Machine(folder)
    machine.environ = {**os.environ, **environ}
    return machine


def no_devices(folder: Path) -> dict[str, str]:
    """ALSA's settings name devices of a sound server that is not there."""
    none = f"unix:{folder}/none"
    (folder / "alsa.conf").write_text(ALSA_CONFIG.format(mic=none, speaker=none, more=""))
    (folder / "client.conf").write_text("autospawn = no\n")
    return {
        "ALSA_CONFIG_PATH": str(folder / "alsa.conf"),
        "PULSE_CLIENTCONFIG": str(folder / "client.conf"),
        "PULSE_SERVER": none,
    }


def test_a_sound_system_works_then_hangs_then_is_gone(sound: SoundSystem, tmp_path: Path) -> None:
    machine = machine_with(tmp_path / "m", sound.environ)
    found = look(look_at_sound, machine.scene(ON))
    if "sound-library" in found:
        lacks("sound", "PortAudio is not installed (Debian: libportaudio2)")
    assert "'default' and 'default'" in found["sound"].found
    wrong = look(look_at_sound, machine.scene(ON, "audio.input=nothing-like-it"))["sound-no-device"]
    assert "there are: " in wrong.found
    assert "settings-refused" in look(look_at_sound, machine.scene(ON, "audio.output=("))
    with sound.frozen():
        found = look(partial(look_at_sound, limit_s=1.5), machine.scene(ON))
        assert "within 1.5 s" in found["sound-hangs"].found


def test_a_machine_without_devices(tmp_path: Path) -> None:
    machine = machine_with(tmp_path / "m", no_devices(tmp_path))
    found = [*look_at_sound(machine.scene(ON))]
    assert [(one.id, one.level) for one in found] == [("sound-no-device", "problem")], "once"
    assert found[0].found == (
        "no microphone was found and no speaker was found; plug one in, or start the sound server"
    )


def test_settings_of_alsa_that_make_portaudio_end_its_process(tmp_path: Path) -> None:
    (tmp_path / "alsa.conf").write_text("")
    machine = machine_with(tmp_path / "m", {"ALSA_CONFIG_PATH": str(tmp_path / "alsa.conf")})
    assert "sound-broken" in look(look_at_sound, machine.scene(ON))


def test_a_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "libportaudio.so.2").touch()
    machine = machine_with(tmp_path / "m", {"LD_LIBRARY_PATH": str(tmp_path)})
    assert "libportaudio2" in look(look_at_sound, machine.scene(ON))["sound-library"].fix


def test_without_sound_nothing_is_asked(tmp_path: Path) -> None:
    assert "audio.enabled = false" in look(look_at_sound, Machine(tmp_path).scene())["sound"].found


@pytest.mark.root
def test_devices_that_the_user_may_not_open(tmp_path: Path) -> None:
    nodes = tmp_path / "root/dev/snd"
    nodes.mkdir(parents=True)
    for name in ("pcmC0D0p", "pcmC0D0c", "controlC0"):
        (nodes / name).touch()
        (nodes / name).chmod(0o660)
    for folder in tmp_path.parents:  # pytest's own are closed to others
        if folder.stat().st_uid == os.geteuid() and folder.name.startswith(("pytest", "popen")):
            folder.chmod(0o711)
    code = """
import sys
from pathlib import Path
from assistant.doctor.scene import Scene
from assistant.doctor.sound import permissions

for one in permissions(Scene(root=Path(sys.argv[1]))):
    print(one.id, one.level, one.fix, sep="|")
"""
    tmp_path.chmod(0o711)
    ((id, level, fix),) = as_nobody(code, tmp_path / "root")
    assert (id, level) == ("sound-permission", "problem")
    assert fix.startswith("sudo usermod -aG audio nobody")
    assert not [*permissions(Scene(root=tmp_path / "root"))], "root may open everything"
