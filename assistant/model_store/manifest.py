"""What a model directory says of itself: `manifest.json`. Imports `errors`, `messages`, `choices`, `reach`, a rule
of `catalog`.

Owns the hashing of files and the quick check before each load: size and modification time of every file, and its
sha256 only when the time is not the recorded one. Never touches the network.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from assistant.errors import ModelDamaged
from assistant.messages import Stage
from assistant.model_store import reach
from assistant.model_store.catalog import relative_path
from assistant.model_store.choices import OWN, Choices

FILE_NAME = "manifest.json"
FORMAT = 1
_CHUNK = 1 << 20
Alive = Callable[[], None]
"""Called now and then while a file is read: its disk answers."""


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    bytes: int
    sha256: str
    mtime_ns: int


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The file that a converted model was made from."""

    file: str
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    stage: Stage | None
    """None for a wake word."""
    engine: str
    files: dict[str, FileRecord]
    """By path relative to the model's directory, with '/'."""
    shape: dict[str, int | bool] | None = None
    converted_from: Origin | None = None
    converter_version: str = ""
    mnn_version: str = ""
    choices: Choices = OWN
    """How an LLM was converted."""
    synthetic: str = ""
    """The shape of a model whose weights are random."""
    archive_sha256: str = ""
    """Digest of the archive that the files were unpacked from, if they were."""
    added_from: str = ""
    """Where a model of the user's own was copied or converted from."""
    format: int = FORMAT

    @property
    def bytes(self) -> int:
        return sum(record.bytes for record in self.files.values())

    @property
    def digest(self) -> str:
        """sha256 over paths and digests of the files in sorted order: equal for equal content, wherever it lies."""
        lines = (f"{path}\0{record.sha256}\n" for path, record in sorted(self.files.items()))
        return hashlib.sha256("".join(lines).encode()).hexdigest()


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One file that is not what the manifest says."""

    file: str
    message: str


def sha256_of(path: Path, alive: Alive = lambda: None) -> str:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_CHUNK))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(buffer):
            digest.update(buffer[:size])
            alive()
    return digest.hexdigest()


def record_of(path: Path, alive: Alive = lambda: None) -> FileRecord:
    """Reads the whole file."""
    sha256 = sha256_of(path, alive)
    stat = path.stat()
    return FileRecord(bytes=stat.st_size, sha256=sha256, mtime_ns=stat.st_mtime_ns)


def records_of(folder: Path, prefix: str = "") -> dict[str, FileRecord]:
    """Records of all files below the folder except the manifest itself; `prefix` stands before each path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    relative = ((path.relative_to(folder).as_posix(), path) for path in paths)
    return {prefix + name: record_of(path) for name, path in relative if name != FILE_NAME}


def read(folder: Path) -> Manifest | None:
    """The manifest, or None when there is none. Raises `ModelDamaged` when it cannot be understood,
    `ModelUnreachable` when its disk fails."""
    path = folder / FILE_NAME
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if isinstance(error, OSError):
            reach.check(error, path)
        raise ModelDamaged(f"{path} cannot be read: {error}") from None
    if manifest.format != FORMAT:
        raise ModelDamaged(f"{path} has format {manifest.format}; this version knows {FORMAT}")
    if not manifest.files or any(relative_path(name) is None for name in manifest.files):
        raise ModelDamaged(f"{path} lists no files, or files outside its folder")
    return manifest


def write(folder: Path, manifest: Manifest) -> None:
    """Replaces the manifest in one step, so that a reader sees the old one or the new one."""
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    temp = folder / f".{FILE_NAME}.{os.getpid()}-{threading.get_ident()}"
    try:
        temp.write_bytes(data)
        temp.replace(folder / FILE_NAME)
    finally:
        temp.unlink(missing_ok=True)


def problems(folder: Path, manifest: Manifest, alive: Alive = lambda: None) -> Iterator[Problem]:
    """Full check: reads every byte of every file. Raises `ModelUnreachable`."""
    for name, record in manifest.files.items():
        found = _wrong_size(folder, name, record) or _wrong_content(folder, name, record, alive)[0]
        if found is not None:
            yield found


def quick_check(folder: Path, manifest: Manifest, alive: Alive = lambda: None) -> tuple[Problem | None, Manifest]:
    """Sizes and times of all files; a file with a new time is read and compared.

    Gives the first problem, and the manifest with the times brought up to date (the same object if none changed).
    """
    newer: dict[str, FileRecord] = {}
    for name, record in manifest.files.items():
        found = _wrong_size(folder, name, record)
        if found is None and (folder / name).stat().st_mtime_ns != record.mtime_ns:
            found, newer[name] = _wrong_content(folder, name, record, alive)
        if found is not None:
            return found, manifest
    if newer:
        manifest = msgspec.structs.replace(manifest, files={**manifest.files, **newer})
    return None, manifest


def distrusted(manifest: Manifest, found: Iterable[Problem]) -> Manifest:
    """With times that no file has for those with a problem, so that each quick check reads them."""
    files = {
        one.file: msgspec.structs.replace(manifest.files[one.file], mtime_ns=-1)
        for one in found
        if one.file in manifest.files
    }
    return msgspec.structs.replace(manifest, files={**manifest.files, **files})


def _wrong_content(
    folder: Path, name: str, record: FileRecord, alive: Alive = lambda: None
) -> tuple[Problem | None, FileRecord]:
    """The problem, if any, and the record as it is now."""
    try:
        now = record_of(folder / name, alive)
    except OSError as error:
        reach.check(error, folder / name)
        return Problem(file=name, message=f"{name} cannot be read: {error.strerror}"), record
    if now.sha256 != record.sha256:
        return Problem(file=name, message=f"{name} has the right size, but its content has changed"), now
    return None, now


def _wrong_size(folder: Path, name: str, record: FileRecord) -> Problem | None:
    try:
        size = (folder / name).stat().st_size
    except OSError as error:
        reach.check(error, folder / name)
        return Problem(file=name, message=f"{name} cannot be read: {error.strerror}")
    if size != record.bytes:
        return Problem(file=name, message=f"{name} has {size:,} bytes instead of {record.bytes:,}")
    return None
