"""Folders that are held by a lock: a living owner's stays, a dead one's goes, and one that was swept is made again."""

from __future__ import annotations

import os
from pathlib import Path

from assistant.locked_folder import made_locked, remove_unless_held


def test_it_stays_as_long_as_somebody_holds_it(tmp_path: Path) -> None:
    def make() -> Path:
        (tmp_path / "one").mkdir()
        return tmp_path / "one"

    path, fd = made_locked(make)
    remove_unless_held(path)
    assert path.is_dir()
    os.close(fd)
    remove_unless_held(path)
    assert not path.exists()
    remove_unless_held(path)  # gone already


def test_one_that_is_swept_before_it_is_locked_is_made_again(tmp_path: Path) -> None:
    tries = iter(range(3))

    def make() -> Path:
        path = tmp_path / str(next(tries))
        path.mkdir()
        if path.name != "2":
            remove_unless_held(path)  # a sweeper is quicker
        return path

    path, fd = made_locked(make)
    assert path == tmp_path / "2"
    os.close(fd)


def test_what_is_no_folder_of_its_own_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    for name in ("file", "link"):
        remove_unless_held(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "other"]
