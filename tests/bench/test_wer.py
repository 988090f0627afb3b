"""Counting word errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.bench.wer import Clip, Heard, edit_distance, folded_words, group_rate, main, number_words

WORDS = st.lists(st.sampled_from("abc"), max_size=12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Set a timer for 10 minutes.", "set a timer for ten minutes"),
        ("2:30 P.M.", "two thirty p m"),
        ("What\N{RIGHT SINGLE QUOTATION MARK}s the date?", "whats the date"),
        ("It's 1,204", "its one two hundred four"),
        ("90210, 01803", "nine zero two one zero zero one eight zero three"),
        ("nine oh two", "nine zero two"),
        ("  ", ""),
    ],
)
def test_texts_are_folded(text: str, words: str) -> None:
    assert folded_words(text) == words.split()


@pytest.mark.parametrize(
    ("digits", "words"),
    [("0", "zero"), ("19", "nineteen"), ("40", "forty"), ("42", "forty two"), ("300", "three hundred"),
     ("2026", "two thousand twenty six"), ("007", "zero zero seven")],
)  # fmt: skip
def test_numbers_are_read_out(digits: str, words: str) -> None:
    assert number_words(digits) == words.split()


@pytest.mark.parametrize(
    ("reference", "heard", "errors"),
    [("a b c", "a b c", 0), ("a b c", "a c", 1), ("a b c", "a x c d", 2), ("", "a b", 2), ("a b", "", 2)],
)
def test_errors_are_counted(reference: str, heard: str, errors: int) -> None:
    assert edit_distance(reference.split(), heard.split()) == errors


@given(WORDS, WORDS, WORDS)
def test_edit_distance_is_a_distance(a: list[str], b: list[str], c: list[str]) -> None:
    assert edit_distance(a, b) == edit_distance(b, a)
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


def test_only_english_clips_with_a_true_reference_count() -> None:
    def heard(file: str, language: str, kind: str) -> Heard:
        clip = Clip(file, language, "a b", kind, ())
        return Heard(clip, "a", 1.0, 1.0, 1, 2 if clip.counts else 0)

    rows = [heard("cmd_1", "en", "repo"), heard("cmd_2", "en", "whisper"), heard("cmd_3", "fr", "repo")]
    assert group_rate(rows, "cmd_") == (0.5, 1, 2)
    assert group_rate(rows, "sent_") == (0.0, 0, 0)


def test_without_recordings_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--speech", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in ("--speech", "manifest.json", "not part of the project", str(tmp_path)))


def test_every_option_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "--speech FOLDER folder of recordings" in said
    assert "--threads THREADS of the recogniser" in said


@pytest.mark.engine
def test_the_report_is_json(speech: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Over three recordings; all of them are in `tests/stages/test_asr_whisper.py`."""
    few = ("cmd_r3_what_time_is_it.wav", "sent_harvard_spk1_snt5.wav", "noise_room_12s.wav")
    rows = [row for row in json.loads((speech / "manifest.json").read_bytes()) if row["file"] in few]
    (tmp_path / "manifest.json").write_text(json.dumps(rows))
    for name in few:
        (tmp_path / name).symlink_to((speech / name).resolve())
    assert main(["--json", "--full-window", "--speech", str(tmp_path)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["groups"]["quiet room commands"] == {"wer": 0.0, "errors": 0, "words": 4}
    assert report["groups"]["sentences"]["words"] == 8
    assert (report["clips"], report["invented"]) == (3, [])
    assert report["median_ms"] > 0
    assert report["full_window"]["groups"]["quiet room commands"]["errors"] == 0
    assert 0 < report["time_to_full_window"] < 0.9
