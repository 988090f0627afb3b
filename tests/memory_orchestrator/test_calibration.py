"""What was measured is known the next time, and a damaged file of it harms nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.memory_orchestrator.calibration import Calibration
from assistant.memory_orchestrator.probe import Usage


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
