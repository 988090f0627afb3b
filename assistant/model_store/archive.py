"""Unpacking of zip, wheel and tar files that may be hostile. Imports `errors` and `catalog`'s path rule.

Writes regular files below one folder and nothing else: no absolute or upward path, no link, no device, no second file
of the same name; and never more bytes, files or inflation than the caller allows, whatever the headers claim.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from assistant.errors import ModelDamaged
from assistant.model_store.catalog import relative_path

MAX_FILES = 10_000
MAX_RATIO = 200
"""Unpacked bytes per packed byte; weights deflate to a half at best, a bomb by a thousand and more."""
_FREE_OF_RATIO = 1 << 20
"""Small archives of text deflate well; up to this size the ratio is not looked at."""
_BLOCK = 1 << 18
_TAR_OVERHEAD = 64 << 20
_FOREIGN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError,
            RuntimeError, LookupError, struct.error, ValueError, UnicodeError, OverflowError)  # fmt: skip


class Member(NamedTuple):
    """One file of an archive as its header describes it."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]


def extract_members(archive: Path, wanted: Mapping[str, tuple[Path, int]]) -> None:
    """Unpacks single members of a zip: `{member: (target file, exact size in bytes)}`.

    The targets must not exist. Raises `ModelDamaged` when a member is absent or is not exactly as large.
    """
    with _mapped(archive), zipfile.ZipFile(archive) as packed:
        for name, (target, size) in wanted.items():
            try:
                info = packed.getinfo(name)
            except KeyError:
                raise _refused(archive, f"it does not hold {name}") from None
            _check_zip_info(archive, info)
            if info.file_size != size:
                raise _refused(archive, f"{name} has {info.file_size:,} bytes in it instead of {size:,}")
            target.parent.mkdir(parents=True, exist_ok=True)
            with packed.open(info) as source:
                _copy(archive, source, target, name, size)


def extract_all(
    archive: Path, into: Path, *, root: str = "", max_bytes: int, max_files: int = MAX_FILES, max_ratio: int = MAX_RATIO
) -> list[str]:
    """Unpacks what lies below the archive's folder `root` into `into`, an empty folder of the caller's.

    Gives the relative paths of the files written. Raises `ModelDamaged`; what was written until then stays for the
    caller to throw away.
    """
    limit = min(max_bytes, max(_FREE_OF_RATIO, max_ratio * archive.stat().st_size))
    written: set[str] = set()
    left = limit
    into.mkdir(parents=True, exist_ok=True)
    with _mapped(archive), _members(archive, max_bytes, max_files) as members:
        for member in members:
            path = _below_root(archive, member.name, root)
            if path is None:
                continue
            if path in written:
                raise _refused(archive, f"{member.name!r} is in it twice")
            if member.size > left:
                raise _refused(archive, f"it unpacks to more than the {limit:,} bytes allowed")
            try:
                (into / path).parent.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise _refused(archive, f"{member.name!r} is both a file and a folder") from None
            with member.open() as source:
                _copy(archive, source, into / path, member.name, member.size)
            written.add(path)
            left -= member.size
    if not written:
        raise _refused(archive, f"it holds no files below {root or 'its top'!r}")
    return sorted(written)


def _below_root(archive: Path, name: str, root: str) -> str | None:
    path = relative_path(name.removeprefix("./"))
    if path is None:
        raise _refused(archive, f"the path {name!r} is not allowed")
    text = str(path)
    if not root:
        return text
    return text.removeprefix(root + "/") if text.startswith(root + "/") else None


def _copy(archive: Path, source: IO[bytes], target: Path, name: str, size: int) -> None:
    """Exactly `size` bytes, counted as they come; the digest is the business of whoever knows it."""
    try:
        file = target.open("xb")
    except (FileExistsError, IsADirectoryError):
        raise _refused(archive, f"{name!r} is both a file and a folder, or in it twice") from None
    count = 0
    with file:
        while block := source.read(_BLOCK):
            count += len(block)
            if count > size:
                break
            file.write(block)
    if count != size:
        raise _refused(archive, f"{name!r} is not as large as its header says")


@contextmanager
def _members(archive: Path, max_bytes: int, max_files: int) -> Iterator[Iterator[Member]]:
    """Regular files in the order of the archive; folders are skipped, everything else is refused."""
    with ExitStack() as stack:
        if zipfile.is_zipfile(archive):
            yield _zip_members(archive, stack.enter_context(zipfile.ZipFile(archive)), max_files)
        else:
            raw = stack.enter_context(_decompressed(archive))
            # a stream is read once from front to back, so the budget bounds headers, padding and skipped files too
            budget = _Budget(raw, max_bytes + _TAR_OVERHEAD)
            packed = stack.enter_context(tarfile.open(fileobj=budget, mode="r|"))
            yield _tar_members(archive, packed, max_files)


def _zip_members(archive: Path, packed: zipfile.ZipFile, max_files: int) -> Iterator[Member]:
    infos = packed.infolist()
    if len(infos) > max_files:
        raise _refused(archive, f"it holds {len(infos):,} entries, more than the {max_files:,} allowed")
    for info in infos:
        if info.orig_filename.endswith("/"):
            continue
        _check_zip_info(archive, info)

        def opener(info: zipfile.ZipInfo = info) -> IO[bytes]:
            return packed.open(info)

        yield Member(info.orig_filename.replace("\0", "\x7f"), info.file_size, opener)


def _check_zip_info(archive: Path, info: zipfile.ZipInfo) -> None:
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise _refused(archive, f"{info.filename!r} is a link or a device")
    if info.flag_bits & 0x1:
        raise _refused(archive, f"{info.filename!r} is encrypted")


def _tar_members(archive: Path, packed: tarfile.TarFile, max_files: int) -> Iterator[Member]:
    for count, info in enumerate(packed):
        packed.members = []  # type: ignore[attr-defined]  # a stream needs no list of what has passed
        if count >= max_files:
            raise _refused(archive, f"it holds more than the {max_files:,} entries allowed")
        if info.isdir():
            continue
        if not info.isreg() or info.issparse():
            raise _refused(archive, f"{info.name!r} is a link, a device or sparse")

        def opener(info: tarfile.TarInfo = info) -> IO[bytes]:
            file = packed.extractfile(info)
            assert file is not None
            return file

        yield Member(info.name, info.size, opener)


_OPENERS: tuple[tuple[bytes, Callable[[IO[bytes]], Any]], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\0", lzma.LZMAFile),
)


@contextmanager
def _decompressed(archive: Path) -> Iterator[IO[bytes]]:
    with archive.open("rb") as file:
        head = file.read(6)
        file.seek(0)
        for magic, opener in _OPENERS:
            if head.startswith(magic):
                with opener(file) as opened:
                    yield opened
                return
        yield file


class _Budget(io.RawIOBase):
    """Reads at most `limit` bytes of what it wraps, then raises."""

    def __init__(self, source: IO[bytes], limit: int) -> None:
        super().__init__()
        self._source = source
        self._left = limit

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise tarfile.ReadError("it unpacks to more than allowed")
        return data


@contextmanager
def _mapped(archive: Path) -> Iterator[None]:
    """The archive libraries' many exceptions become one of ours; the disk's own errors pass."""
    try:
        yield
    except _FOREIGN as error:
        raise _refused(archive, str(error) or type(error).__name__) from None
    except OSError as error:
        if error.errno is None:  # gzip and bz2 report damaged data as an OSError without a number
            raise _refused(archive, str(error)) from None
        raise


def _refused(archive: Path, why: str) -> ModelDamaged:
    return ModelDamaged(f"archive {archive.name} is damaged or unsafe: {why}")
