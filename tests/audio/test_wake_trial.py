"""How trials of wake words are counted, and the room that a recording is played in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from assistant.audio.wake import WakeWords, engine
from assistant.audio.wake_trial import (
    BACK_S,
    FRONT_S,
    Clip,
    Heard,
    expectations,
    expected_in,
    false_accepts,
    in_its_room,
    listen_to,
    missed,
    quietest,
    summary,
    word_in,
)
from assistant.errors import UsageError
from tests.speech_corpus import clip_pcm, coloured_noise, to_pcm

WORDS = ("hey_jarvis", "okay_nabu")
FRONT, BACK = int(FRONT_S * 32_000), int(BACK_S * 32_000)


def clip(*heard: str, expected: str | None = None, seconds: float = 10.0, problem: str = "") -> Clip:
    found = tuple(Heard(word=word, at_s=float(at), score=0.9) for at, word in enumerate(heard))
    return Clip(file="x.wav", seconds=seconds, expected=expected, heard=found, problem=problem)


# --- counting -------------------------------------------------------------------------------------------------------
def test_one_detection_of_the_word_that_is_said_is_right_and_all_others_are_wrong() -> None:
    assert false_accepts(clip("hey_jarvis", expected="hey_jarvis")) == []
    assert [one.at_s for one in false_accepts(clip("hey_jarvis", "hey_jarvis", expected="hey_jarvis"))] == [1.0]
    assert len(false_accepts(clip("okay_nabu", expected="hey_jarvis"))) == 1
    assert len(false_accepts(clip("okay_nabu"))) == 1


def test_a_word_is_missed_when_it_was_listened_for() -> None:
    assert missed(clip(expected="hey_jarvis"), WORDS)
    assert missed(clip("okay_nabu", expected="hey_jarvis"), WORDS)
    assert not missed(clip("hey_jarvis", expected="hey_jarvis"), WORDS)
    assert not missed(clip(expected="alexa"), WORDS)
    assert not missed(clip(expected="hey_jarvis", problem="damaged"), WORDS)


def test_rates_are_of_the_sound_that_was_heard() -> None:
    clips = [
        clip("hey_jarvis", expected="hey_jarvis"), clip(expected="okay_nabu"), clip("okay_nabu", "okay_nabu"),
        clip(expected="hey_jarvis", problem="damaged", seconds=0.0), clip(expected="alexa", seconds=330.0),
    ]  # fmt: skip
    counts = summary(clips, WORDS)
    assert (counts.files, counts.unreadable, counts.positives, counts.found) == (5, 1, 2, 1)
    assert (counts.false_rejects, counts.false_accepts, counts.seconds) == (1, 2, 360.0)
    assert counts.false_accepts_per_hour == 20.0
    assert summary([], WORDS).false_accepts_per_hour == 0.0


# --- what is in a file ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("hey_jarvis", "hey_jarvis"),
        ("my Hey-Jarvis 3", "hey_jarvis"),
        ("hey_jarvisson", None),
        ("okay_nabu_then_stop", "okay_nabu"),
        ("nonstop", None),
        ("kitchen", None),
    ],
)
def test_a_files_name_says_which_word_is_in_it(name: str, word: str | None) -> None:
    assert word_in(name, (*WORDS, "stop")) == word


def test_the_manifest_decides_where_it_knows_a_file(tmp_path: Path) -> None:
    assert expectations(tmp_path) is None
    rows = [{"file": "a/okay_nabu.wav", "wake_word": None}, {"file": "b.wav", "wake_word": "alexa", "more": 1}]
    (tmp_path / "manifest.json").write_text(json.dumps(rows))
    manifest = expectations(tmp_path)
    assert expected_in("a/okay_nabu.wav", manifest, WORDS) is None
    assert expected_in("b.wav", manifest, WORDS) == "alexa"
    assert expected_in("okay_nabu.wav", manifest, WORDS) == "okay_nabu"
    assert expected_in("a/okay_nabu.wav", None, WORDS) == "okay_nabu"


@pytest.mark.parametrize("text", ["", "{}", "[5]", '[{"wake_word": "x"}]', "[" * 5000])
def test_a_manifest_that_is_none_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(UsageError, match=r"manifest\.json must be a list"):
        expectations(tmp_path)


# --- the room -------------------------------------------------------------------------------------------------------
def rms(pcm: bytes) -> float:
    return float(np.sqrt((np.frombuffer(pcm, "<i2").astype(float) ** 2).mean()))


def test_a_recording_stays_as_it_is_between_two_pieces_of_its_room() -> None:
    quiet, loud = coloured_noise(0.5, 1, 0.002), coloured_noise(1.0, 0, 0.3, seed=1)
    pcm = to_pcm(np.concatenate([loud, quiet, loud]))
    sound = in_its_room(pcm)
    assert sound[FRONT:-BACK] == pcm
    assert rms(sound[:FRONT]) == pytest.approx(rms(to_pcm(quiet)), rel=0.3)
    assert rms(sound[-BACK:]) == pytest.approx(rms(to_pcm(quiet)), rel=0.3)


def test_the_room_is_as_long_and_as_quiet_as_the_recording_has_it() -> None:
    quiet, loud = coloured_noise(0.11, 0, 0.002), coloured_noise(0.5, 0, 0.3, seed=1)
    samples = np.concatenate([loud, quiet, loud]) * 32768
    room = quietest(samples)
    assert 0.05 <= len(room) / 16_000 <= 0.11
    assert np.abs(room).max() < 1000


def test_digital_silence_is_no_room() -> None:
    noise = coloured_noise(1.0, 0, 0.01)
    pcm = bytes(32_000) + to_pcm(noise)
    assert rms(in_its_room(pcm)[:FRONT]) == pytest.approx(rms(to_pcm(noise)), rel=0.3)
    assert in_its_room(bytes(3200)) == bytes(FRONT + 3200 + BACK)
    assert len(in_its_room(bytes(2))) == FRONT + 2 + BACK


def test_a_room_is_the_same_every_time(speech: Path) -> None:
    pcm = clip_pcm(speech, "wake_hey_mycroft_raven1.wav")
    assert in_its_room(pcm) == in_its_room(pcm)


# --- hearing --------------------------------------------------------------------------------------------------------
def test_times_are_those_of_the_recording(speech: Path) -> None:
    with WakeWords(engine("micro"), WORDS) as words:
        found = listen_to(speech / "wake_hey_jarvis_1.wav", "one.wav", "hey_jarvis", words)
        again = listen_to(speech / "wake_hey_jarvis_1.wav", "one.wav", "hey_jarvis", words)
    assert found == again
    assert [one.word for one in found.heard] == ["hey_jarvis"]
    assert 1.2 < found.heard[0].at_s < 1.7
    assert found.seconds == 2.0


@pytest.mark.parametrize(("name", "data"), [("a.wav", b"RIFF"), ("a.raw", b""), ("a.mp3", b"\0" * 999)])
def test_a_file_that_cannot_be_read_is_told_and_not_counted(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with WakeWords(engine("micro"), WORDS) as words:
        found = listen_to(tmp_path / name, name, "hey_jarvis", words)
    assert str(tmp_path / name) in found.problem
    assert summary([found], WORDS).unreadable == 1
