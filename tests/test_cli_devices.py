"""`assistant devices`: what there is, whether it works, and what to do when it does not; on a real sound system."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assistant.audio.stream_check import FLOOR_DBFS, TONE_HZ, advice, measure, tone
from tests.lacking import lacks
from tests.sound import RATE, SoundSystem


@pytest.fixture
def sound(tmp_path: Path) -> Iterator[SoundSystem]:
    with SoundSystem(tmp_path) as system:
        yield system


def devices(sound: SoundSystem, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "assistant", "devices", *arguments], env=sound.environ, capture_output=True, text=True
    )
    if "no sound system" in done.stderr + done.stdout:
        lacks("sound", "PortAudio is not installed (Debian: libportaudio2)")
    return done


def told(done: subprocess.CompletedProcess[str], status: int = 0) -> dict[str, Any]:
    assert done.returncode == status, done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def test_list_names_each_device_with_what_it_really_takes(sound: SoundSystem) -> None:
    rows = {row["name"]: row for row in told(devices(sound, "list", "--json"))["devices"]}
    assert rows["default"]["input"]["default"]
    assert rows["default"]["output"]["default"]
    assert rows["microphone"]["output"] is rows["loudspeaker"]["input"] is None
    assert rows["microphone"]["input"]["opens"] == {"sample_rate": 48_000, "channels": 1}
    assert {16_000, 44_100} <= set(rows["loudspeaker"]["output"]["rates"])
    # PortAudio says that it has inputs
    assert rows["mouth"]["input"]["opens"] is None
    assert rows["mouth"]["input"]["rates"] == []


def test_list_is_a_table_for_people(sound: SoundSystem) -> None:
    done = devices(sound, "list")
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert any(line.startswith("input *") and "default" in line and "48000" in line for line in lines)
    assert any(line.startswith("output ") and "loudspeaker" in line for line in lines)
    assert not any("microphone" in line for line in lines if line.startswith("output"))


def test_a_machine_without_devices_is_told_so(sound: SoundSystem) -> None:
    sound.kill()
    listed = devices(sound, "list")
    assert (listed.returncode, listed.stdout) == (0, "")
    assert "was found" in listed.stderr
    assert told(devices(sound, "test", "--json"), 7)["error"]["message"].startswith("no microphone was found")


@pytest.mark.sound
def test_test_hears_its_own_tone(sound: SoundSystem) -> None:
    with sound.loop_back():
        report = told(devices(sound, "test", "--json", "--seconds", "2"))
    assert report["input"] == report["output"] == {"name": "default", "sample_rate": 48_000, "channels": 1}
    assert report["levels"]["tone_heard"]
    assert report["levels"]["peak_dbfs"] == pytest.approx(-20, abs=1)
    assert report["levels"]["seconds"] == pytest.approx(2)
    assert (report["overflows"], report["advice"]) == (0, [])


def test_a_muted_microphone_is_called_so(sound: SoundSystem) -> None:
    done = devices(sound, "test", "--seconds", "1.5", "--input", "^micro", "--output", "loudspeaker")
    assert done.returncode == 1, "not all is well"
    assert "microphone  microphone, 48000 Hz" in done.stdout
    assert "speaker     loudspeaker" in done.stdout
    assert "pure silence" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--input", "headset"], 7, "'headset'; there are: "),
        (["--output", "headset"], 7, "loudspeaker"),
        (["--input", "mouth"], 7, "'mouth' opens at none of 48000"),
        (["--input", "("], 2, "no regular expression"),
        (["--seconds", "0"], 2, "1"),
        (["--set", "audio.inputs=x"], 2, "audio.input"),
    ],
)
def test_what_cannot_be_is_one_line(sound: SoundSystem, arguments: list[str], status: int, message: str) -> None:
    done = devices(sound, "test", *arguments)
    assert done.returncode == status
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


# --- what a recording says ------------------------------------------------------------------------------------------
def pcm(sound: Any) -> bytes:
    return bytes(np.rint(sound).clip(-32768, 32767).astype("<i2").tobytes())


def test_levels_are_in_db_of_full_scale() -> None:
    sine = np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)
    levels = measure(pcm(sine * 3276.8))
    assert levels.peak_dbfs == pytest.approx(-20, abs=0.1)
    assert levels.rms_dbfs == pytest.approx(-23, abs=0.1)
    assert (levels.clipped, levels.silent, levels.tone_heard) == (0, False, None)
    assert measure(b"").peak_dbfs == measure(bytes(100)).rms_dbfs == FLOOR_DBFS


@pytest.mark.parametrize(
    ("sound", "word"),
    [
        (np.zeros(RATE), "pure silence"),
        (np.full(RATE, 77), "pure silence"),  # an offset is no sound
        (np.random.default_rng(0).normal(0, 3, RATE), "Hardly any sound"),
        (40_000 * np.sin(np.arange(RATE) * 0.1), "Too loud"),
        (np.zeros(0), "no sound at all"),
    ],
)
def test_each_trouble_has_its_advice(sound: Any, word: str) -> None:
    assert word in advice(measure(pcm(sound)), 0)[0]


def test_calm_speech_needs_no_advice_and_lost_sound_does() -> None:
    levels = measure(pcm(np.random.default_rng(0).normal(0, 600, RATE)))
    assert advice(levels, 0) == ()
    assert "too busy" in advice(levels, 3)[0]


def test_the_tone_is_found_in_noise_and_not_where_it_is_not() -> None:
    noise = np.random.default_rng(0).normal(0, 600, 2 * RATE)
    with_tone = noise.copy()
    with_tone[RATE : RATE + RATE // 2] += np.frombuffer(tone(RATE, 0, RATE), "<i2")
    assert measure(pcm(with_tone), 0.6).tone_heard
    assert measure(pcm(noise), 0.6).tone_heard is False
    assert measure(pcm(noise[: RATE // 2]), 0.6).tone_heard is None


def test_the_tone_is_the_same_in_pieces() -> None:
    whole = tone(44_100, 0, 44_100)
    pieces = b"".join(tone(44_100, at, 1411) for at in range(0, 44_100, 1411))
    assert pieces == whole
    spectrum = np.abs(np.fft.rfft(np.frombuffer(whole, "<i2")))
    assert np.fft.rfftfreq(len(whole) // 2, 1 / 44_100)[spectrum.argmax()] == pytest.approx(TONE_HZ, abs=2)
