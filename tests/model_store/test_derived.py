"""Folders that are whole or not there, on any disk; and the rule by which they are read in full."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assistant.errors import EngineFailed, ModelDamaged
from assistant.model_store import derived_command
from assistant.model_store.derived import MARKER, NOTE, Derived
from assistant.model_store.derived_check import intact, mark_of
from assistant.model_store.derived_make import building, prepare, publish, sweep_unused

BIG = bytes(range(256)) * (6 << 12)  # 6 MiB


def made(root: Path, digest: str = "d") -> Derived:
    cache = Derived(root, "kind", digest, {"a": 1})
    with building(cache, len(BIG)) as work:
        (work / "big").write_bytes(BIG)
        (work / "small").write_bytes(b"table")
        (work / "empty").touch()
    return cache


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def test_what_was_just_made_is_believed(tmp_path: Path) -> None:
    found = made(tmp_path).find()
    assert found is not None
    assert (found.path / "big").read_bytes() == BIG
    assert not found.doubtful
    assert (found.check().pending, found.check().good()) == (False, True)
    assert len(list(tmp_path.iterdir())) == 1


def test_every_content_has_a_folder_of_its_own(tmp_path: Path) -> None:
    paths = {Derived(tmp_path, kind, d, {"a": a}).path for kind in "kl" for d in ("x", "y") for a in (1, 2)}
    assert len(paths) == 8


@pytest.mark.parametrize("name", ["big", "small"])
def test_a_flipped_bit_is_found(tmp_path: Path, name: str) -> None:
    cache = made(tmp_path)
    flip(cache.path / name, 3)
    found = cache.find()
    assert found is not None
    assert found.doubtful
    check = found.check()
    assert check.plausible == (name == "big")  # small files are compared before anything opens them
    assert not check.good()


def test_a_new_boot_reads_everything_once(tmp_path: Path) -> None:
    cache = made(tmp_path)
    boot = tmp_path / "boot_id"
    boot.write_text("another\n")
    later = Derived(tmp_path, "kind", "d", {"a": 1}, boot_id=boot)
    found = later.find()
    assert found is not None
    assert later.path == cache.path
    assert found.doubtful
    check = found.check()
    assert check.pending
    assert check.good()
    found.note()
    again = later.find()
    assert again is not None
    assert not again.doubtful


def test_without_a_boot_id_nothing_is_believed_unread(tmp_path: Path) -> None:
    made(tmp_path)
    found = Derived(tmp_path, "kind", "d", {"a": 1}, boot_id=tmp_path / "none").find()
    assert found is not None
    found.note()
    assert found.doubtful


def test_a_write_with_its_time_put_back_is_a_doubt(tmp_path: Path) -> None:
    cache = made(tmp_path)
    stat = (cache.path / "big").stat()
    time.sleep(0.02)  # the kernel's clock for files ticks every few milliseconds
    flip(cache.path / "big", 5 << 20)
    os.utime(cache.path / "big", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    found = cache.find()
    assert found is not None
    assert not found.check().good()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1, "files": {}}', '{"format": 2, "files": {"small": 1}}'])
def test_a_marker_that_says_nothing_is_none(tmp_path: Path, text: str) -> None:
    cache = made(tmp_path)
    (cache.path / MARKER).write_text(text)
    assert cache.find() is None


def test_a_lost_note_costs_a_check_and_nothing_else(tmp_path: Path) -> None:
    cache = made(tmp_path)
    for spoil in (b"", b"\xff", b'{"boot": 3}'):
        (cache.path / NOTE).write_bytes(spoil)
        found = cache.find()
        assert found is not None
        assert found.doubtful
        assert found.check().good()


def test_only_what_is_allocated_is_read_of_a_sparse_file(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.write(b"head")
        file.seek(64 << 20)
        file.write(b"tail")
        file.truncate(1 << 30)
    mark = mark_of(path)
    if sum(size for _, size in mark.pieces) > 1 << 20:
        pytest.skip("this file system does not tell where holes are")
    assert intact(path, mark)
    flip(path, 64 << 20)
    assert not intact(path, mark)


# --- making ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, "cache-disk-full"), (errno.EIO, "cache-not-writable")])
def test_an_error_while_making_leaves_nothing(tmp_path: Path, number: int, code: str) -> None:
    cache = Derived(tmp_path, "kind", "d", {})
    with pytest.raises(EngineFailed) as caught, building(cache, 1) as work:
        (work / "half").write_bytes(b"x")
        raise OSError(number, os.strerror(number))
    assert caught.value.code == code
    assert list(tmp_path.iterdir()) == []


def test_too_little_room_is_told_first(tmp_path: Path) -> None:
    cache = Derived(tmp_path, "kind", "d", {}, free=lambda folder: 100 << 20)
    prepare(cache, 36 << 20)
    with pytest.raises(EngineFailed, match="100 MiB free") as caught:
        prepare(cache, 37 << 20)
    assert caught.value.code == "cache-disk-full"


def test_the_first_of_two_makers_wins_and_both_may_go_on(tmp_path: Path) -> None:
    first = made(tmp_path)
    marker = (first.path / MARKER).read_bytes()
    work = tmp_path / "work"
    work.mkdir()
    (work / "big").write_bytes(BIG)
    publish(work, first.path)
    assert (first.path / MARKER).read_bytes() == marker


def test_a_folder_that_is_dropped_can_still_be_read_by_who_has_it_open(tmp_path: Path) -> None:
    cache = made(tmp_path)
    with (cache.path / "big").open("rb") as file:
        cache.drop()
        assert cache.find() is None
        assert file.read() == BIG
    assert list(tmp_path.iterdir()) == []


def test_who_saw_damage_does_not_drop_what_another_has_made_since(tmp_path: Path) -> None:
    cache = made(tmp_path)
    seen = cache.find()
    cache.drop(seen)
    assert cache.find() is None
    made(tmp_path)
    cache.drop(seen)
    assert cache.find() is not None
    prepare(cache, 1)  # nor does the one who would make it
    assert cache.find() is not None


def test_what_nobody_has_used_for_a_month_is_swept_and_nothing_else(tmp_path: Path) -> None:
    old, young = made(tmp_path, "old"), made(tmp_path, "young")
    other = tmp_path / "downloads"
    other.mkdir()
    for path, days in ((old.path / MARKER, 31), (young.path / MARKER, 29), (other, 400)):
        os.utime(path, (time.time() - days * 24 * 3600,) * 2)
    made(tmp_path, "new")
    assert not old.path.exists()
    assert young.path.exists()
    assert other.exists()


def test_a_use_keeps_a_folder(tmp_path: Path) -> None:
    cache = made(tmp_path)
    os.utime(cache.path / MARKER, (0, 0))
    assert cache.find() is not None
    sweep_unused(cache.root)
    assert cache.path.exists()


# --- makers that are processes --------------------------------------------------------------------------------------
def maker(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGBUS)", "cache-disk-full", "filled up"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "engine-failed", "status -9"),
        ("print('{\"report\": {}}')", "engine-failed", "status 0"),
        ("print('chatter')", "engine-failed", "status 0"),
        ("import time; time.sleep(60)", "engine-failed", "more than"),
        (
            'print(\'{"error": {"type": "FetchFailed", "code": "disk-full", "message": ""}}\')',
            "cache-disk-full",
            "room",
        ),
    ],
)
def test_how_a_maker_ends_is_told_and_nothing_stays(tmp_path: Path, code: str, error: str, words: str) -> None:
    left = f"import os; os.makedirs({str(tmp_path / '.tmp-half')!r}); "
    with pytest.raises(EngineFailed) as caught:
        derived_command.make(Derived(tmp_path, "kind", "d", {}), 1, maker(left + code), 1.0)
    assert caught.value.code == error
    assert words in caught.value.message or words == "room"
    assert list(tmp_path.iterdir()) == []


def test_the_error_of_a_maker_keeps_its_type(tmp_path: Path) -> None:
    code = 'print(\'{"error": {"type": "ModelDamaged", "code": "model-damaged", "message": "bad"}}\')'
    with pytest.raises(ModelDamaged, match="bad"):
        derived_command.make(Derived(tmp_path, "kind", "d", {}), 1, maker(code), 10)


def test_a_maker_whose_parent_died_before_it_could_ask_ends_at_once(tmp_path: Path) -> None:
    """The maker is told a parent that is not its own, as it finds when the true one has died while it imported."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    code = (
        "import sys; from pathlib import Path; from assistant.model_store import json_command\n"
        f"sys.exit(json_command.run(lambda update: Path({str(tmp_path / 'worked')!r}).touch()))"
    )
    done = subprocess.run(maker(code), env={**os.environ, "_ASSISTANT_PARENT_PID": str(dead.pid)}, capture_output=True)
    assert done.returncode == 130
    assert not (tmp_path / "worked").exists()
