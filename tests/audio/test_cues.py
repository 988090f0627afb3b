"""Cues are short, soft at their edges, and made of nothing but the tones that they say they are made of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import soundfile

from assistant.audio.cues import ALL_TONES, MAX_FILE_S, TONES, CueSounds, Sound, cue, tone_cue
from assistant.audio.front_messages import CueName, CueSettings
from assistant.errors import ConfigError
from tests.audio.rooms import samples

NAMES: tuple[CueName, ...] = get_args(CueName)
LONGEST: dict[CueName, float] = {"awake": 0.2, "done": 0.2, "error": 0.5, "thinking": 0.5, "timer": 1.0}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 48_000])
def test_a_cue_is_short_and_holds_its_tones_alone(name: CueName, rate: int) -> None:
    sound = tone_cue(name, rate)
    assert sound.sample_rate == rate
    assert 0.1 < sound.seconds <= LONGEST[name]
    level = samples(sound.pcm) / 32768
    # of the loudest tenth of a second; full scale is a sine whose peak is 1
    window = rate // 20
    loudest = max(
        np.sqrt(2 * np.mean(level[at : at + window] ** 2)) for at in range(0, len(level) - window, window // 4)
    )
    assert -27 < 20 * np.log10(loudest) < -15
    assert max(abs(level[0]), abs(level[-1])) < 0.001
    power = np.abs(np.fft.rfft(level, 1 << 18)) ** 2
    hz = np.fft.rfftfreq(1 << 18, 1 / rate)
    beside = np.min([np.abs(hz - tone) for tone in TONES[name]], axis=0) > 20
    assert 10 * np.log10(power[beside].sum() / power.sum()) < -30
    assert set(TONES[name]) <= set(ALL_TONES)


def test_they_differ() -> None:
    assert len({tone_cue(name).pcm for name in NAMES}) == len(NAMES)


def test_the_timer_rings_without_a_click_when_it_is_repeated() -> None:
    ring = samples(tone_cue("timer").pcm * 3)
    assert len(ring) == 3 * 48_000
    assert np.abs(np.diff(ring)).max() < 1200


def test_a_rate_that_cannot_hold_the_tones() -> None:
    with pytest.raises(ValueError, match="3000 Hz"):
        tone_cue("awake", 3_000)


def test_off_is_nothing() -> None:
    assert cue("awake", "off") is None
    sounds = CueSounds(CueSettings(awake="off"))
    assert sounds.get("awake") is None
    assert sounds.get("error") == tone_cue("error")


@pytest.mark.parametrize("form", ["wav", "flac", "ogg"])
def test_a_file_keeps_its_rate_and_loses_its_channels(tmp_path: Path, form: str) -> None:
    left = 0.2 * np.sin(2 * np.pi * 500 * np.arange(22_050) / 44_100)
    path = tmp_path / f"chime.{form}"
    soundfile.write(path, np.stack([left, left / 2], axis=1), 44_100)
    sound = cue("awake", str(path))
    assert isinstance(sound, Sound)
    assert sound.sample_rate == 44_100
    assert sound.seconds == pytest.approx(0.5, abs=0.03)
    middle = samples(sound.pcm)[5_000:15_000]
    assert np.abs(middle).max() == pytest.approx(0.15 * 32767, rel=0.05)


def test_a_file_in_the_home_folder(tmp_path: Path) -> None:
    path = tmp_path / "chime.wav"
    soundfile.write(path, np.zeros(1000), 16_000)
    relative = os.path.relpath(path, Path.home())
    sound = cue("done", f"~/{relative}")
    assert sound is not None
    assert len(sound.pcm) == 2000


def test_files_that_are_no_cues(tmp_path: Path) -> None:
    long, empty, noise = tmp_path / "long.wav", tmp_path / "empty.wav", tmp_path / "noise.wav"
    soundfile.write(long, np.zeros(int(8_000 * MAX_FILE_S) + 1), 8_000)
    soundfile.write(empty, np.zeros(0), 8_000)
    noise.write_bytes(b"RIFF, but not really" * 10)
    fifo = tmp_path / "pipe.wav"
    os.mkfifo(fifo)
    cases = {
        str(long): "longer than 5 s",
        str(empty): "no sound",
        str(noise): "cannot be read as sound",
        str(tmp_path): "no such file",
        str(fifo): "no such file",
        str(tmp_path / "none.wav"): "no such file",
        "tones": "no such file",
    }
    for setting, reason in cases.items():
        with pytest.raises(ConfigError, match=reason) as caught:
            cue("thinking", setting)
        assert f'cues.thinking = "{setting}"' in caught.value.message
        assert '"off"' in caught.value.message


def test_a_file_that_cannot_be_used_is_said_so_and_a_tone_instead(tmp_path: Path) -> None:
    said: list[str] = []
    sounds = CueSounds(CueSettings(error=str(tmp_path / "none.wav")), complain=said.append)
    assert sounds.get("error") == tone_cue("error")
    assert len(said) == 1
    assert "cues.error" in said[0]
    assert "none.wav" in said[0]


def test_recordings_of_people_are_taken_too(speech: Path) -> None:
    sound = cue("done", str(speech / "cmd_living_room_lamp_44k_stereo.wav"))
    assert sound is not None
    assert sound.sample_rate == 44_100
    for name in ("bad_empty_44b.wav", "bad_no_header.wav", "bad_rate_1mhz.wav"):
        with pytest.raises(ConfigError, match=name):
            cue("done", str(speech / name))
