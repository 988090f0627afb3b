"""The quick check sees every truncation at once and every change of content by its time."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.errors import ModelDamaged
from assistant.messages import Stage
from assistant.model_store import manifest as manifests
from assistant.model_store.manifest import FileRecord, Manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.bin").write_bytes(b"a" * 100)
    (tmp_path / "deep/b.bin").write_bytes(b"b" * 50)
    manifests.write(tmp_path, make(manifests.records_of(tmp_path)))
    return tmp_path


def make(files: dict[str, FileRecord]) -> Manifest:
    return Manifest(name="m", kind="vosk", stage=Stage.ASR, engine="vosk", files=files)


def load(folder: Path) -> Manifest:
    found = manifests.read(folder)
    assert found is not None
    return found


def test_a_manifest_comes_back_as_it_was_written(folder: Path) -> None:
    found = load(folder)
    assert sorted(found.files) == ["a.bin", "deep/b.bin"]
    assert found.bytes == 150
    assert sorted(path.name for path in folder.iterdir()) == ["a.bin", "deep", "manifest.json"]
    assert manifests.quick_check(folder, found) == (None, found)


def test_a_file_shorter_by_one_byte_is_named_with_both_sizes(folder: Path) -> None:
    os.truncate(folder / "deep/b.bin", 49)
    problem, _ = manifests.quick_check(folder, load(folder))
    assert problem is not None
    assert problem.message == "deep/b.bin has 49 bytes instead of 50"


def test_a_change_of_the_same_size_is_seen_by_its_time(folder: Path) -> None:
    (folder / "a.bin").write_bytes(b"a" * 99 + b"X")
    problem, _ = manifests.quick_check(folder, load(folder))
    assert problem is not None
    assert problem.file == "a.bin"


def test_a_new_time_with_the_old_content_is_recorded(folder: Path) -> None:
    os.utime(folder / "a.bin", ns=(5, 5))
    problem, newer = manifests.quick_check(folder, load(folder))
    assert problem is None
    assert newer.files["a.bin"].mtime_ns == 5
    assert newer.digest == load(folder).digest


def test_a_full_check_reads_what_the_quick_one_trusts(folder: Path) -> None:
    before = (folder / "a.bin").stat()
    (folder / "a.bin").write_bytes(b"a" * 99 + b"X")
    os.utime(folder / "a.bin", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert manifests.quick_check(folder, load(folder))[0] is None
    assert [problem.file for problem in manifests.problems(folder, load(folder))] == ["a.bin"]


def test_a_missing_file_is_a_problem(folder: Path) -> None:
    (folder / "a.bin").unlink()
    problem, _ = manifests.quick_check(folder, load(folder))
    assert problem is not None
    assert "a.bin cannot be read" in problem.message


def test_the_digest_follows_content_and_place_and_nothing_else(folder: Path) -> None:
    found = load(folder)
    moved = msgspec.structs.replace(found, name="other", files=dict(reversed(found.files.items())))
    assert moved.digest == found.digest
    renamed = {path + "x": record for path, record in found.files.items()}
    assert msgspec.structs.replace(found, files=renamed).digest != found.digest


def test_no_manifest_is_none(tmp_path: Path) -> None:
    assert manifests.read(tmp_path) is None
    assert manifests.read(tmp_path / "none") is None


@pytest.mark.parametrize("path", ["../a.bin", "/etc/passwd", "", "a//b"])
def test_a_manifest_that_points_elsewhere_is_damaged(folder: Path, path: str) -> None:
    manifests.write(folder, make({path: FileRecord(bytes=1, sha256="a" * 64, mtime_ns=0)}))
    with pytest.raises(ModelDamaged, match="outside its folder"):
        manifests.read(folder)


@given(cut=st.integers(0, 400), junk=st.binary(max_size=20))
def test_a_damaged_manifest_is_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, cut: int, junk: bytes
) -> None:
    folder = tmp_path_factory.mktemp("m")
    manifests.write(folder, make({"a": FileRecord(bytes=1, sha256="a" * 64, mtime_ns=0)}))
    whole = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").write_bytes(whole[:cut] + junk)
    try:
        found = manifests.read(folder)
    except ModelDamaged:
        return
    assert found is not None
    assert list(found.files) == ["a"]
