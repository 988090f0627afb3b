"""The small file of a state: whole, or as it was before."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from assistant.skills.state_file import MAX_BYTES, StateFile


def a_list(data: Any) -> list[int]:
    if not isinstance(data, list):
        raise ValueError("no list")
    return data


@pytest.fixture
def file(tmp_path: Path) -> StateFile:
    return StateFile(tmp_path / "below" / "state.json")


def test_what_is_saved_is_there_and_for_its_owner_alone(file: StateFile) -> None:
    assert file.load(a_list) is None
    file.save([1])
    file.save([1, 2])
    assert file.load(a_list) == [1, 2]
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.path.parent.iterdir()] == ["state.json"]


@pytest.mark.parametrize(
    "written", [b"", b"{", b"\xff\xfe", b'{"a": 1}', b"[" * 5000, b"[1]" + b" " * MAX_BYTES], ids=lambda w: str(w[:8])
)
def test_a_damaged_one_is_put_aside_and_told(file: StateFile, written: bytes, caplog: pytest.LogCaptureFixture) -> None:
    file.save([1])
    file.path.write_bytes(written)
    with caplog.at_level(logging.ERROR):
        assert file.load(a_list) is None
    assert "damaged" in caplog.text
    assert file.path.with_name("state.json.damaged-1").read_bytes() == written
    file.save([2])
    assert file.load(a_list) == [2]


def test_not_every_damaged_one_is_kept_for_ever(file: StateFile) -> None:
    for _ in range(9):
        file.save([1])
        file.path.write_bytes(b"?")
        file.load(a_list)
    assert len(list(file.path.parent.iterdir())) == 5


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    blocked = tmp_path / "a-file"
    blocked.write_text("")
    with pytest.raises(OSError, match="a-file"):
        StateFile(blocked / "state.json").save([1])
    full = StateFile(Path("/dev/full/state.json"))
    assert full.load(a_list) is None
    with pytest.raises(OSError, match="full"):
        full.save([1])


def test_a_folder_in_its_place_is_no_traceback_but_an_os_error(file: StateFile) -> None:
    file.path.mkdir(parents=True)
    with pytest.raises(OSError, match=os.strerror(21)):
        file.load(a_list)
    with pytest.raises(OSError):  # noqa: PT011 - as the file system says it
        file.save([1])
    assert [path.name for path in file.path.parent.iterdir()] == ["state.json"]
