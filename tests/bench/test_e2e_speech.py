"""Where the speech of a recording ends, and which recordings are asked."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import pytest

from assistant import paths
from assistant.audio.front_messages import EndpointSettings
from assistant.audio.vad import WINDOW_S
from assistant.bench import e2e_speech
from assistant.errors import UsageError
from tests.bench.e2e_runs import SPOKEN


def test_speech_ends_with_its_last_voiced_step_and_is_decided_after_the_silence() -> None:
    probabilities = [0.9] * 30 + [0.0] * 40
    end, decided = e2e_speech.ends_of(probabilities, EndpointSettings()) or (0.0, 0.0)
    assert end == pytest.approx(30 * WINDOW_S)
    assert 0.7 <= decided - end < 0.7 + WINDOW_S


def test_a_short_pause_is_no_end_and_nobody_is_none() -> None:
    settings = EndpointSettings()
    end, _ = e2e_speech.ends_of([0.9] * 30 + [0.0] * 10 + [0.9] * 10 + [0.0] * 40, settings) or (0.0, 0.0)
    assert end == pytest.approx(50 * WINDOW_S)
    assert e2e_speech.ends_of([0.0] * 200, settings) is None


def test_the_shipped_question_ends_before_its_file_does() -> None:
    (one,) = e2e_speech.utterances(paths.data_file("question.wav"), 0, EndpointSettings())
    assert 1.8 < one.speech_end_s < 2.3
    assert 0.7 <= one.decided_s - one.speech_end_s < 0.75


def test_recordings_are_spread_over_all_or_repeated() -> None:
    items = list("abcdef")
    assert e2e_speech.picked(items, 3) == ["a", "c", "e"]
    assert e2e_speech.picked(items, 0) == items
    assert e2e_speech.picked(items[:2], 5) == ["a", "b", "a", "b", "a"]
    assert e2e_speech.picked([], 3) == []


def test_a_manifest_says_what_is_a_question(tmp_path: Path) -> None:
    rows = [
        ("a.wav", "en", ["command"]),
        ("b.wav", "fr", ["command"]),
        ("c.wav", "en", ["noise"]),
        ("d.wav", "en", ["sentence", "two_speakers"]),
        ("e.wav", "en", ["sentence"]),
    ]
    manifest = [
        {"file": file, "language": language, "reference": "x", "reference_kind": "repo", "categories": categories}
        for file, language, categories in rows
    ]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert [path.name for path in e2e_speech.recordings(tmp_path)] == ["a.wav", "e.wav"]
    (tmp_path / "manifest.json").unlink()
    for name in ("z.wav", "y.flac", "notes.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in e2e_speech.recordings(tmp_path)] == ["y.flac", "z.wav"]


def test_a_recording_in_which_nobody_speaks_is_none(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "silence.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(bytes(32000))
    with pytest.raises(UsageError, match="nobody speaks"):
        e2e_speech.utterances(tmp_path, 0, EndpointSettings())


def test_the_naive_way_gets_what_was_said_and_ours_all_of_it(tmp_path: Path) -> None:
    files = e2e_speech.written(SPOKEN, tmp_path)
    lengths = []
    for path in (files.whole, files.cut, files.half):
        with wave.open(str(path)) as file:
            lengths.append(file.getnframes())
    assert lengths == [16000, 16000, 8000]
