"""Microphone and speaker on a real sound system: what comes through, at what rate, how soon, how silence comes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.audio.streaming import Streaming, pitch, samples, tone
from tests.sound import RATE, Sink, SoundSystem

pytestmark = pytest.mark.sound


@pytest.fixture
def sound(tmp_path: Path) -> Iterator[SoundSystem]:
    with SoundSystem(tmp_path) as system:
        yield system


def test_what_is_said_arrives_at_16_khz_with_its_pitch_and_its_level(sound: SoundSystem, tmp_path: Path) -> None:
    with Streaming(sound, tmp_path / "heard", "listen") as child:
        device = child.told("device", state="ok")["device"]
        sound.play(tone(1.5, hertz=440, peak=8000))
        heard = child.heard
    assert (device["kind"], device["name"], device["sample_rate"], device["channels"]) == (
        "input",
        "default",
        48_000,
        1,
    )
    loud = np.flatnonzero(np.abs(samples(heard)) > 2000)
    middle = heard[2 * (loud[0] + 1600) : 2 * (loud[0] + 17_600)]
    assert abs(pitch(middle) - 440) < 2
    assert np.abs(samples(middle)).max() == pytest.approx(8000, rel=0.03)


def test_a_second_has_16000_samples_and_none_is_lost(sound: SoundSystem, tmp_path: Path) -> None:
    with Streaming(sound, tmp_path / "heard", "listen") as child:
        child.told("device", state="ok")
        time.sleep(0.5)
        began, first = child.stats(), len(child.heard)
        time.sleep(3)
        ended, last = child.stats(), len(child.heard)
    seconds = ended["at"] - began["at"]
    # sound comes in pieces of 0.1 s
    assert (last - first) / 2 / RATE == pytest.approx(seconds, abs=0.11)
    assert ended["stats"]["captured_s"] - began["stats"]["captured_s"] == pytest.approx(seconds, abs=0.11)
    assert ended["stats"]["overflows"] == 0
    # 3 s of listening; the reach of the whole process with wake words is 3 %
    assert (ended["stats"]["cpu_s"] - began["stats"]["cpu_s"]) / seconds < 0.05


def test_a_device_that_takes_44100_hz_in_stereo_alone(tmp_path: Path) -> None:
    sink = Sink(rate=44_100, channels=2)
    with (
        SoundSystem(tmp_path, mic=sink, speaker=sink) as sound,
        Streaming(sound, tmp_path / "heard", "listen", only="44100x2") as child,
    ):
        device = child.told("device", state="ok")["device"]
        sound.play(tone(1.5, hertz=1000, peak=8000))
        heard = samples(child.heard)
        with sound.recording() as spoken:
            child.order("sound on")
            opened = child.told("device", kind="output")["device"]
            time.sleep(1.0)
    loud = np.flatnonzero(np.abs(heard) > 2000)
    middle = heard[loud[0] + 1600 : loud[0] + 17_600]
    assert (device["sample_rate"], device["channels"]) == (opened["sample_rate"], opened["channels"]) == (44_100, 2)
    assert abs(pitch(middle.astype("<i2").tobytes()) - 1000) < 2
    assert np.abs(middle).max() == pytest.approx(8000, rel=0.03)
    assert samples(spoken.pcm)[-4000:].std() > 1000


def test_sound_that_nobody_reads_is_counted_and_the_newest_of_it_is_kept(sound: SoundSystem, tmp_path: Path) -> None:
    with Streaming(sound, tmp_path / "heard", "read off", "listen") as child:
        child.told("device", state="ok")
        time.sleep(5.5)
        lost = child.stats()["stats"]["overflows"]
        child.order("read on")
        time.sleep(0.3)
        heard = len(child.heard) / 2 / RATE
    assert 1.0 < lost * 0.032 < 2.0
    assert heard == pytest.approx(4.2, abs=0.3)


def test_the_first_sound_after_opening_is_heard(sound: SoundSystem, tmp_path: Path) -> None:
    with Streaming(sound, tmp_path / "heard") as child, sound.recording() as spoken:
        asked = time.monotonic()
        child.order("click")
        child.told("device", kind="output", state="ok")
        time.sleep(0.6)
    heard = np.abs(samples(spoken.pcm))
    loud = np.flatnonzero(heard > 6000)
    assert len(loud) == pytest.approx(0.01 * RATE, abs=8)
    assert loud[-1] - loud[0] < 0.012 * RATE
    # 150 ms of silence, what the device holds, and the time that Python takes to start
    assert (loud[0] - spoken.index(asked)) / RATE < 2.0


def test_silence_is_heard_within_150_ms(sound: SoundSystem, tmp_path: Path) -> None:
    with Streaming(sound, tmp_path / "heard", "sound on") as child, sound.recording() as spoken:
        child.told("device", kind="output", state="ok")
        time.sleep(0.8)
        child.order("sound off")
        silenced = child.told("sound", timeout_s=5)
        while silenced["sound"] != "off":
            silenced = child.told("sound", timeout_s=5)
        time.sleep(0.4)
    loud = np.flatnonzero(np.abs(samples(spoken.pcm)) > 500)
    assert spoken.index(silenced["at"]) - loud[0] > 0.3 * RATE
    assert (loud[-1] - spoken.index(silenced["at"])) / RATE < 0.15


def test_a_speaker_that_plays_nothing_is_closed_and_opens_again(sound: SoundSystem, tmp_path: Path) -> None:
    with Streaming(sound, tmp_path / "heard", "sound on", idle_s=1.0) as child, sound.recording() as spoken:
        child.told("device", kind="output", state="ok")
        time.sleep(0.5)
        child.order("sound off")
        time.sleep(2.6)
        rested = child.stats()["stats"]
        child.order("click")
        time.sleep(0.6)
        woken = child.stats()["stats"]
    assert rested["asked_s_ago"] > 0.5
    assert woken["asked_s_ago"] < 0.2
    assert (np.abs(samples(spoken.pcm)[-RATE:]) > 6000).sum() == pytest.approx(0.01 * RATE, abs=8)


def test_a_muted_microphone_is_closed_and_comes_back(sound: SoundSystem, tmp_path: Path) -> None:
    with Streaming(sound, tmp_path / "heard", "listen") as child:
        child.told("device", state="ok")
        child.order("mute on")
        child.told("device", kind="input", state="off")
        muted = child.stats()["stats"]["captured_s"]
        time.sleep(0.4)
        assert child.stats()["stats"]["captured_s"] == muted
        child.order("mute off")
        child.told("device", kind="input", state="ok")
        time.sleep(0.4)
        assert child.stats()["stats"]["captured_s"] > muted + 0.1
