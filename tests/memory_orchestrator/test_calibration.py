"""What was measured is known the next time, and a damaged file of it harms nobody."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from assistant.memory_orchestrator.calibration import Calibration
from assistant.memory_orchestrator.estimate import estimate
from assistant.memory_orchestrator.probe import MIB, Usage


def test_what_was_measured_is_known_the_next_time(tmp_path: Path) -> None:
    file = tmp_path / "state/measured.json"
    Calibration(file).learn("k", Usage(100, 50))
    again = Calibration(file)
    assert again.peak("k") == Usage(100, 50)
    again.learn("k", Usage(200, 10))
    assert Calibration(file).peak("k") == Usage(200, 50)  # mapped files do not shrink
    other = Calibration(file)
    again.learn("mine", Usage(1, 1))
    other.learn("yours", Usage(2, 2))
    assert Calibration(file).peak("mine") == Usage(1, 1)  # what another process has learned stays
    assert Calibration(file).peak("nobody's", "yours") == Usage(2, 2)
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"k": 3}', b'{"k": {"anon": "x"}}', b"\xff\xfe"])
def test_a_damaged_calibration_file_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "measured.json"
    file.write_bytes(content)
    known = Calibration(file)
    assert known.peak("k") is None
    known.learn("k", Usage(1, 2))
    assert Calibration(file).peak("k") == Usage(1, 2)


@pytest.mark.parametrize("derived", ["/x" * 3000, "\\u0000", "/nowhere"])
def test_a_folder_that_cannot_be_is_one_that_is_not_there(tmp_path: Path, derived: str) -> None:
    file = tmp_path / "measured.json"
    file.write_text(f'{{"k": {{"anon": 1, "file": 1, "derived": "{derived}"}}}}')
    assert Calibration(file).peak("k") is None


def test_derived_files_that_go_and_come_back_are_noticed_when_somebody_looks(tmp_path: Path) -> None:
    folder = tmp_path / "derived"
    folder.mkdir()
    known = Calibration(tmp_path / "measured.json")
    known.learn("mnn/a/1", Usage(1, 2), str(folder))
    folder.rmdir()
    assert known.peak("mnn/a/1") == Usage(1, 2)  # nobody has looked: no disk is asked for a figure
    known.look("mnn/b/")
    assert known.peak("mnn/a/1") == Usage(1, 2)
    known.look("mnn/a/")
    assert (known.peak("mnn/a/1"), known.derived("mnn/a/1")) == (None, None)
    folder.mkdir()
    known.look("mnn/a/")
    assert known.derived("mnn/a/1") == folder


def test_the_file_is_written_when_the_disk_takes_it_and_holds_what_others_have_learned(tmp_path: Path) -> None:
    file, waiting = tmp_path / "measured.json", list[Callable[[], None]]()
    known = Calibration(file, waiting.append)
    known.learn("mine", Usage(1, 1))
    assert (known.peak("mine"), file.exists()) == (Usage(1, 1), False)
    Calibration(file).learn("yours", Usage(2, 2))
    waiting.pop()()
    assert Calibration(file).peak("mine") == Usage(1, 1)
    assert Calibration(file).peak("yours") == Usage(2, 2)


def test_a_pipe_in_the_place_of_the_file_keeps_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "measured.json")
    assert Calibration(tmp_path / "measured.json").peak("k") is None


def test_a_figure_that_was_not_measured_on_this_model_is_not_believed() -> None:
    guess = estimate("llm", "mnn", 100 * MIB)
    assert estimate("llm", "mnn", 100 * MIB, measured=Usage(500 << 30, 0)) == guess
    assert estimate("llm", "mnn", 100 * MIB, measured=guess.usage) != guess
