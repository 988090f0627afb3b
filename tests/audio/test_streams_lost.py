"""Devices that vanish and come back, sound servers that die or stand still: each is told, and each is got over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.audio.streaming import Streaming, pitch, samples, tone
from tests.sound import RATE, Recording, SoundSystem

pytestmark = pytest.mark.sound


@pytest.fixture
def sound(tmp_path: Path) -> Iterator[SoundSystem]:
    with SoundSystem(tmp_path) as system:
        yield system


def hears(child: Streaming, sound: SoundSystem) -> bool:
    before = len(child.heard)
    sound.play(tone(0.5, hertz=600))
    time.sleep(0.2)
    return abs(pitch(child.heard[before:]) - 600) < 10


def is_loud(spoken: Recording) -> bool:
    time.sleep(0.5)
    return bool(samples(spoken.pcm)[-RATE // 5 :].std() > 1000)


def test_a_microphone_that_is_unplugged_is_told_and_comes_back(sound: SoundSystem, tmp_path: Path) -> None:
    with Streaming(sound, tmp_path / "heard", "listen") as child:
        child.told("device", kind="input", state="ok")
        assert hears(child, sound)
        unplugged = time.monotonic()
        sound.unplug_mic()
        lost = child.told("device", kind="input", state="lost")
        time.sleep(1.0)
        sound.plug_mic()
        plugged = time.monotonic()
        back = child.told("device", kind="input", state="ok")
        time.sleep(0.2)
        assert hears(child, sound)
        stats = child.stats()["stats"]
    assert lost["at"] - unplugged < 3.5
    assert "default" in lost["device"]["message"]
    assert back["at"] - plugged < 5.5
    assert stats["reopened"] == 1


def test_a_speaker_that_is_unplugged_while_it_plays_is_told_and_plays_on(sound: SoundSystem, tmp_path: Path) -> None:
    with Streaming(sound, tmp_path / "heard", "listen", "sound on") as child:
        child.told("device", kind="output", state="ok")
        with sound.recording() as spoken:
            assert is_loud(spoken)
        heard = child.stats()["stats"]["captured_s"]
        began = time.monotonic()
        sound.unplug_speaker()
        child.told("device", kind="output", state="lost")
        sound.plug_speaker()
        child.told("device", kind="output", state="ok")
        with sound.recording() as spoken:
            assert is_loud(spoken)
        stats = child.stats()
    # the microphone has gone on
    assert stats["stats"]["captured_s"] - heard > stats["at"] - began - 0.6
    assert stats["stats"]["reopened"] == 1


def test_a_sound_server_that_is_killed_and_started_again(sound: SoundSystem, tmp_path: Path) -> None:
    with Streaming(sound, tmp_path / "heard", "listen", "sound on") as child:
        child.told("device", kind="output", state="ok")
        child.stats()
        sound.kill()
        killed = time.monotonic()
        for kind in ("first", "second"):
            assert child.told("device", state="lost")["at"] - killed < 0.6, kind
        time.sleep(1.2)
        sound.restart()
        restarted = time.monotonic()
        for _ in range(2):
            assert child.told("device", state="ok")["at"] - restarted < 6.0
        assert hears(child, sound)
        with sound.recording() as spoken:
            assert is_loud(spoken)


def test_a_sound_server_that_stands_still_is_told_and_the_process_can_end(sound: SoundSystem, tmp_path: Path) -> None:
    with Streaming(sound, tmp_path / "heard", "listen", "sound on") as child:
        child.told("device", kind="output", state="ok")
        time.sleep(0.5)
        with sound.frozen():
            frozen = time.monotonic()
            assert child.told("device", state="lost")["at"] - frozen < 4.5
            # PortAudio hangs in the device now; the rest of the process does not
            asked = time.monotonic()
            child.stats()
            assert time.monotonic() - asked < 0.5
            child.order("quit")
            assert child.told("closed")["closed"]["seconds"] < 3.5


def test_a_device_that_is_not_there_at_the_start_is_found_later(sound: SoundSystem, tmp_path: Path) -> None:
    sound.kill()
    with Streaming(sound, tmp_path / "heard", "listen") as child:
        lost = child.told("device", kind="input", state="lost")["device"]
        assert "no microphone was found" in lost["message"]
        sound.restart()
        child.told("device", kind="input", state="ok")
        assert hears(child, sound)
        assert np.abs(samples(child.heard)).max() > 1000


def test_a_name_that_nothing_matches_lists_what_there_is(sound: SoundSystem, tmp_path: Path) -> None:
    with Streaming(sound, tmp_path / "heard", "listen", input="headset") as child:
        lost = child.told("device", kind="input", state="lost")["device"]
    assert "headset" in lost["message"]
    assert "microphone" in lost["message"]
    assert lost["name"] == "headset"
