"""Whatever an archive holds, unpacking writes regular files below one folder, within the limits, or raises."""

from __future__ import annotations

import io
import stat
import tarfile
import tempfile
import warnings
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.errors import ModelDamaged
from assistant.model_store.archive import extract_all, extract_members

LIMIT = 10_000_000
_PART = st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0x2FF), max_size=6)
_HOSTILE = st.sampled_from(["..", ".", "", "/", "\\", "C:", "a\0b", "con", "x" * 300])
NAMES = st.lists(_PART | _HOSTILE, min_size=1, max_size=4).map("/".join)


def make_zip(path: Path, files: list[tuple[str, bytes]]) -> Path:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        warnings.simplefilter("ignore")  # two files of one name are what some tests are about
        for name, data in files:
            packed.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return path


def make_tar(path: Path, files: list[tuple[str, bytes]], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as packed:  # type: ignore[call-overload]
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            packed.addfile(info, io.BytesIO(data))
    return path


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@settings(deadline=None, max_examples=150)
@given(files=st.lists(st.tuples(NAMES, st.binary(max_size=50)), max_size=4), kind=st.sampled_from(["zip", "tar"]))
def test_no_name_escapes(files: list[tuple[str, bytes]], kind: str) -> None:
    with tempfile.TemporaryDirectory() as text:
        top = Path(text)
        archive = top / "archive"
        try:
            if kind == "zip":
                make_zip(archive, files)
            else:
                make_tar(archive, files)
        except (ValueError, UnicodeError):
            return  # the library itself will not write such a name
        before = archive.read_bytes()
        try:
            written = extract_all(archive, top / "in" / "side", max_bytes=LIMIT)
        except ModelDamaged:
            written = None
        outside = {name for name in tree(top) if not name.startswith("in/side/")}
        assert outside == {"archive"}
        assert archive.read_bytes() == before
        if written is not None:
            assert sorted(tree(top / "in/side")) == written
            assert not any(path.is_symlink() for path in top.rglob("*"))


_SAFE = st.from_regex(r"[a-z]{1,5}(/[a-z]{1,5}){0,2}\.bin", fullmatch=True)


@settings(deadline=None, max_examples=60)
@given(files=st.dictionaries(_SAFE, st.binary(max_size=3000), min_size=1, max_size=5), kind=st.integers(0, 4))
def test_what_was_packed_comes_out(files: dict[str, bytes], kind: int) -> None:
    with tempfile.TemporaryDirectory() as text:
        archive = Path(text) / "archive"
        rooted = [(f"model-1/{name}", data) for name, data in files.items()]
        if kind == 0:
            make_zip(archive, rooted)
        else:
            make_tar(archive, rooted, ["w", "w:gz", "w:bz2", "w:xz"][kind - 1])
        written = extract_all(archive, Path(text) / "out", root="model-1", max_bytes=LIMIT)
        assert tree(Path(text) / "out") == files
        assert written == sorted(files)


@settings(deadline=None, max_examples=150)
@given(data=st.data(), kind=st.sampled_from(["zip", "w", "w:gz", "w:bz2", "w:xz"]))
def test_damaged_archives_raise_our_error_or_give_files_of_the_right_size(data: st.DataObject, kind: str) -> None:
    with tempfile.TemporaryDirectory() as text:
        archive = Path(text) / "archive"
        files = [("a.bin", b"hello " * 200), ("b/c.bin", bytes(range(256)) * 4)]
        if kind == "zip":
            make_zip(archive, files)
        else:
            make_tar(archive, files, kind)
        raw = bytearray(archive.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        archive.write_bytes(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)
        try:
            written = extract_all(archive, Path(text) / "out", max_bytes=LIMIT)
        except ModelDamaged:
            return
        assert sorted(tree(Path(text) / "out")) == written


def link(kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo("link")
    info.type = kind
    info.linkname = "../../outside"
    return info


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE],
)
def test_tar_links_and_devices_are_refused(kind: bytes, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as packed:
        packed.addfile(link(kind))
    with pytest.raises(ModelDamaged):
        extract_all(tmp_path / "a.tar", tmp_path / "out", max_bytes=LIMIT)
    assert list((tmp_path / "out").iterdir()) == []


def test_zip_link_is_refused(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr(info, "../outside")
    with pytest.raises(ModelDamaged, match="a link or a device"):
        extract_all(tmp_path / "a.zip", tmp_path / "out", max_bytes=LIMIT)


@pytest.mark.parametrize("kind", ["zip", "w:gz", "w:xz"])
def test_bomb_is_refused_before_it_is_unpacked(kind: str, tmp_path: Path) -> None:
    files = [("zeros.bin", bytes(20_000_000))]
    path = make_zip(tmp_path / "a", files) if kind == "zip" else make_tar(tmp_path / "a", files, kind)
    with pytest.raises(ModelDamaged, match="more than"):
        extract_all(path, tmp_path / "out", max_bytes=1 << 30)
    assert sum(len(data) for data in tree(tmp_path / "out").values()) == 0


def test_a_second_file_of_the_same_name_is_refused(tmp_path: Path) -> None:
    files = [("a.bin", b"one"), ("a.bin", b"two")]
    for path in (make_zip(tmp_path / "a.zip", files), make_tar(tmp_path / "a.tar", files)):
        with pytest.raises(ModelDamaged, match="twice"):
            extract_all(path, tmp_path / (path.name + "1"), max_bytes=LIMIT)


def test_total_size_and_number_are_bounded(tmp_path: Path) -> None:
    files = [(f"{i}.bin", bytes([i]) * 1000) for i in range(20)]
    for path in (make_zip(tmp_path / "a.zip", files), make_tar(tmp_path / "a.tar", files)):
        with pytest.raises(ModelDamaged, match="more than"):
            extract_all(path, tmp_path / (path.name + "1"), max_bytes=10_000)
        with pytest.raises(ModelDamaged, match="entries"):
            extract_all(path, tmp_path / (path.name + "2"), max_bytes=LIMIT, max_files=19)


@pytest.mark.parametrize("claimed", [4000, 6000])
def test_a_zip_that_lies_about_a_size_is_refused(tmp_path: Path, claimed: int) -> None:
    path = make_zip(tmp_path / "a.zip", [("a.bin", b"x" * 5000)])
    raw = path.read_bytes().replace((5000).to_bytes(4, "little"), claimed.to_bytes(4, "little"))
    path.write_bytes(raw)
    with pytest.raises(ModelDamaged):
        extract_all(path, tmp_path / "out", max_bytes=LIMIT)


def test_a_huge_extended_header_does_not_fill_the_memory(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as packed:
        info = tarfile.TarInfo("a")
        info.pax_headers = {"comment": "x" * 90_000_000}
        packed.addfile(info)
    with pytest.raises(ModelDamaged, match="more than allowed"):
        extract_all(tmp_path / "a.tar.gz", tmp_path / "out", max_bytes=1000)


def test_single_members_come_out_with_their_exact_size(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.whl", [("pkg/a.bin", b"abc"), ("pkg/b.bin", b"defg")])
    extract_members(path, {"pkg/b.bin": (tmp_path / "out/b", 4)})
    assert tree(tmp_path / "out") == {"b": b"defg"}
    with pytest.raises(ModelDamaged, match="4 bytes in it instead of 5"):
        extract_members(path, {"pkg/b.bin": (tmp_path / "c", 5)})
    with pytest.raises(ModelDamaged, match="does not hold"):
        extract_members(path, {"pkg/none": (tmp_path / "d", 5)})


def test_not_an_archive(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"certainly no archive" * 100)
    with pytest.raises(ModelDamaged):
        extract_all(tmp_path / "a", tmp_path / "out", max_bytes=LIMIT)
    with pytest.raises(ModelDamaged):
        extract_members(tmp_path / "a", {"x": (tmp_path / "x", 1)})


def test_a_name_that_is_both_a_file_and_a_folder_is_refused(tmp_path: Path) -> None:
    for number, names in enumerate((("a", "a/b"), ("a/b", "a"))):
        files = [(name, b"x") for name in names]
        for path in (make_zip(tmp_path / f"{number}.zip", files), make_tar(tmp_path / f"{number}.tar", files)):
            with pytest.raises(ModelDamaged, match="both a file and a folder"):
                extract_all(path, tmp_path / (path.name + "1"), max_bytes=LIMIT)


def test_a_zip_with_a_password_is_refused(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.zip", [("a.bin", b"one")])
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1  # the flag in the directory at its end
    path.write_bytes(data)
    with pytest.raises(ModelDamaged, match="encrypted"):
        extract_all(path, tmp_path / "out", max_bytes=LIMIT)
