"""Where keys and values lie: which place is chosen, whose folder it is, and that nothing stays. No engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assistant.machine import pid_namespace, process_start
from assistant.stages.kv_files import DISK_FROM, KvFiles, home_of
from tests.elsewhere import elsewhere

MIB = 1 << 20


@pytest.mark.parametrize(
    ("setting", "size", "home"),
    [
        ("auto", 40 * MIB, "memory"),
        ("auto", DISK_FROM, "disk"),
        ("memory", DISK_FROM, "memory"),
        ("disk", MIB, "disk"),
        ("auto", 1 << 60, "heap"),
        ("memory", 1 << 60, "heap"),
        ("disk", 1 << 60, "heap"),
    ],
)
def test_the_place_follows_setting_size_and_room(setting: str, size: int, home: str, tmp_path: Path) -> None:
    shared, disk = tmp_path / "shm", tmp_path / "cache"
    shared.mkdir()
    found, folder = home_of(setting, size, disk, shared)
    assert found == home
    assert folder == {"memory": shared / f"assistant-kv-{os.getuid()}", "disk": disk / "kv", "heap": None}[home]


def test_more_files_than_may_be_open_are_not_made(tmp_path: Path) -> None:
    assert home_of("memory", MIB, tmp_path, tmp_path, files=60)[0] == "memory"
    assert home_of("memory", MIB, tmp_path, tmp_path, files=1 << 30) == ("heap", None)


def test_a_folder_that_somebody_else_has_made_is_passed_by(tmp_path: Path) -> None:
    shared = tmp_path / "shm"
    (shared / f"assistant-kv-{os.getuid()}").mkdir(parents=True, mode=0o777)
    (shared / f"assistant-kv-{os.getuid()}").chmod(0o777)
    assert home_of("auto", MIB, tmp_path, shared)[0] == "disk"
    assert home_of("memory", MIB, tmp_path, shared) == ("heap", None)


def test_a_machine_without_shared_memory_takes_the_disk(tmp_path: Path) -> None:
    if os.getuid() == 0:
        shared = Path("/proc/sys")  # no file system that lets even root write
    else:
        shared = tmp_path / "shm"
        shared.mkdir(mode=0o500)
    assert home_of("auto", MIB, tmp_path, shared)[0] == "disk"


def test_weights_are_linked_and_files_of_keys_lose_their_contents_names(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "0.static").write_bytes(b"weights")
    with KvFiles(tmp_path / "kv", weights) as files:
        assert (files.path / "0.static").read_bytes() == b"weights"
        with (files.path / "0AB.k").open("wb+") as keys:
            keys.write(b"keys")
            keys.flush()
            files.hide()
            assert (files.path / "0AB.k").stat().st_size == 0
            keys.seek(0)
            assert keys.read() == b"keys"
        inside = files.path
    assert not inside.exists()
    assert (weights / "0.static").exists()


def test_what_a_killed_worker_left_goes_and_what_a_living_one_has_stays(tmp_path: Path) -> None:
    root = tmp_path / "kv"
    root.mkdir(mode=0o700)
    parent = os.getppid()
    dead, reused = root / "4194305-12", root / f"{parent}-1"
    living, foreign = root / f"{parent}-{process_start(parent)}", root / "notes"
    ended, elsewhere = root / f"4194305-12-{pid_namespace()}", root / "4194305-12-1"
    for folder in (dead, reused, living, foreign, ended, elsewhere):
        folder.mkdir()
        (folder / "0AB.k").write_bytes(b"x")
    KvFiles(root, None).close()
    assert [folder.exists() for folder in (dead, reused, living, foreign)] == [False, False, True, True]
    assert not ended.exists()
    assert not elsewhere.exists(), "nobody holds it locked"


@pytest.mark.root
def test_a_worker_in_another_container_keeps_its_folder_as_long_as_it_lives(tmp_path: Path) -> None:
    root = tmp_path / "kv"
    code = "files = KvFiles(Path(sys.argv[1]), None); print(files.path, flush=True); time.sleep(60)"
    with elsewhere(f"from pathlib import Path; from assistant.stages.kv_files import KvFiles; {code}", root) as (
        told,
        end,
    ):
        theirs = Path(told)
        KvFiles(root, None).close()
        assert theirs.exists()
        end()
        KvFiles(root, None).close()
        assert not theirs.exists()


def test_a_folder_whose_links_cannot_be_made_is_not_left(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        KvFiles(tmp_path / "kv", tmp_path / "none")
    assert not [*(tmp_path / "kv").iterdir()]


def test_a_folder_that_is_not_ours_alone_is_refused(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    link, open_to_all, file = tmp_path / "link", tmp_path / "open", tmp_path / "file"
    link.symlink_to(real)
    open_to_all.mkdir()
    open_to_all.chmod(0o755)
    file.touch()
    for root in (link, open_to_all, file):
        with pytest.raises(PermissionError):
            KvFiles(root, None)
    assert not list(real.iterdir())
