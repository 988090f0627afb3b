"""`assistant wake test`, in a process of its own, as people call it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def call(*args: object, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "assistant", "wake", "test", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **(environ or {})})


@pytest.fixture
def folder(speech: Path, tmp_path: Path) -> Path:
    """Four recordings: one of each default word, one of a word that is not listened for, one of a command."""
    top = tmp_path / "recordings"
    (top / "deep").mkdir(parents=True)
    for name in ("wake_hey_jarvis_1.wav", "wake_alexa_3.wav", "cmd_pause.wav"):
        shutil.copy(speech / name, top / name)
    shutil.copy(speech / "wake_okay_nabu_2.wav", top / "deep" / "Okay Nabu.wav")
    return top


def test_names_say_what_is_in_a_file_without_a_manifest(folder: Path) -> None:
    done = call(folder)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("deep/Okay Nabu.wav: found: okay_nabu at 1.")
    assert lines[1].startswith("wake_hey_jarvis_1.wav: found: hey_jarvis at 1.")
    assert lines[2].startswith("4 files, 8 s, for hey_jarvis (0.97), okay_nabu (0.85); a file whose name")
    assert lines[3:] == ["found 2 of 2, missed 0", "false accepts 0, 0 an hour"]


def test_as_json_with_a_manifest_and_words_of_ones_own(folder: Path) -> None:
    rows = [{"file": "cmd_pause.wav", "wake_word": "alexa"}, {"file": "wake_alexa_3.wav", "wake_word": None}]
    (folder / "manifest.json").write_text(json.dumps(rows))
    done = call(folder, "--word", "alexa", "--threshold", "alexa=0.9", "--threshold", "alexa=0.5", "--json")
    assert done.returncode == 0
    told = json.loads(done.stdout)
    assert (told["rule"], told["words"]) == ("manifest", {"alexa": 0.5})
    files = {one["file"]: one for one in told["files"]}
    assert set(files) == {"cmd_pause.wav", "wake_alexa_3.wav", "wake_hey_jarvis_1.wav", "deep/Okay Nabu.wav"}
    assert files["cmd_pause.wav"]["missed"]
    assert [one["word"] for one in files["wake_alexa_3.wav"]["heard"]] == ["alexa"]
    assert files["wake_alexa_3.wav"]["false_accepts"] == 1
    counts = told["summary"]
    assert (counts["positives"], counts["found"], counts["false_rejects"], counts["false_accepts"]) == (1, 0, 1, 1)
    assert counts["false_accepts_per_hour"] == pytest.approx(3600 / counts["seconds"], abs=0.01)


def test_a_threshold_that_nothing_exceeds_makes_misses_and_that_is_a_result(folder: Path) -> None:
    done = call(folder, "--word", "hey_jarvis", "--threshold", "hey_jarvis=0.999")
    assert done.returncode == 0
    assert "wake_hey_jarvis_1.wav: missed: hey_jarvis" in done.stdout
    assert "found 0 of 1, missed 1" in done.stdout


def test_settings_are_those_of_the_daemon(folder: Path) -> None:
    environ = {"ASSISTANT_WAKE_WORDS": "okay_nabu", "ASSISTANT_WAKE_THRESHOLDS": "okay_nabu=0.2"}
    told = json.loads(call(folder, "--json", environ=environ).stdout)
    assert told["words"] == {"okay_nabu": 0.2}


def test_what_cannot_be_read_is_named_and_the_rest_is_heard(folder: Path) -> None:
    (folder / "broken.wav").write_bytes(b"RIFF")
    done = call(folder)
    assert done.returncode == 0
    assert "broken.wav: not heard: " in done.stderr
    assert "could not be read: 1" in done.stdout
    assert "found 2 of 2" in done.stdout


def test_folders_without_sound_are_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for folder, says in ((tmp_path, "there are no sound files"), (tmp_path / "nowhere", "is no folder")):
        done = call(folder)
        assert done.returncode == 2
        assert says in done.stderr
        assert "Traceback" not in done.stderr
    told = json.loads(call(tmp_path, "--json").stdout)
    assert told["error"]["code"] == "bad-arguments"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--word", "hey_jarvs"], "there are: hey_jarvis, "),
        (["--threshold", "hey_jarvis"], "is no word=number"),
        (["--threshold", "hey_jarvis=high"], "is no word=number"),
        (["--threshold", "hey_jarvis=1.5"], "is no word=number"),
    ],
)
def test_wrong_words_and_thresholds_are_wrong_usage(args: list[str], says: str, tmp_path: Path) -> None:
    (tmp_path / "a.raw").write_bytes(bytes(320))
    done = call(tmp_path, *args)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
