"""Files of a CTranslate2 whisper model: checks them, and keeps an int8 copy. Imports numpy, `model_store`; no engine.

Published models hold float16. Converting them at each start costs 0.1 s and 90 MiB at its peak, so `int8_copy` does it
once, one tensor at a time, into the worker's cache (`model_store.derived`). Losing the copy costs time and nothing
else.

The format (version 6): u32 version, string spec, u32 revision, u32 count, then per variable: string name, u8 rank,
u32 per dimension, u8 type, u32 bytes, data; then u32 count of aliases, two strings each. A string is u16 length and
bytes with a closing NUL. Little-endian throughout.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from assistant.errors import EngineFailed, ModelDamaged, ModelMissing, ModelUnsupported
from assistant.model_store.derived import Derived, Found, Free
from assistant.model_store.derived_make import building
from assistant.model_store.manifest import sha256_of
from assistant.stages.base import EngineConfig

_VERSION = 6
_INT8, _FLOAT16, _FLOAT32 = 1, 4, 0
_NEEDED = ("config.json", "model.bin")
_SMALL_FILES = ("config.json", "vocabulary.txt", "vocabulary.json", "tokenizer.json", "preprocessor_config.json")
_COPY_FORMAT = 1
"""Raise it when `_write_int8` writes something else for the same model."""


class Variable(msgspec.Struct, frozen=True):
    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int
    """Of its data, in the file."""
    size: int
    """Bytes."""


class Layout(msgspec.Struct, frozen=True):
    spec: str
    revision: int
    variables: tuple[Variable, ...]
    aliases: tuple[tuple[str, str], ...]


def check_files(model: str, directory: Path) -> Layout:
    """Looks before the C++ library does. Raises `ModelMissing`, `ModelDamaged`, `ModelUnsupported`."""
    missing = [name for name in _NEEDED if not (directory / name).is_file()]
    if not any(directory.glob("vocabulary.*")):
        missing.append("vocabulary.txt")
    if missing:
        raise ModelMissing(
            f"Model {model} is not complete: {directory} has no {', '.join(missing)}. "
            f"Get it with `assistant models fetch {model}`."
        )
    try:
        layout = read_layout(directory / "model.bin")
    except (struct.error, UnicodeDecodeError, ValueError, OSError) as error:
        raise ModelDamaged(
            f"Model {model} is damaged: {directory / 'model.bin'}: {error}. "
            f"Remove it with `assistant models rm {model}` and fetch it again."
        ) from None
    if layout.spec != "WhisperSpec":
        raise ModelUnsupported(f"Model {model} is a {layout.spec or 'nameless'} model; this engine runs whisper alone.")
    return layout


def read_layout(path: Path) -> Layout:
    """The table of contents. Raises `ValueError` or `struct.error` when the file ends early or goes on too long."""
    total = path.stat().st_size
    with path.open("rb") as file:
        version = _u32(file)
        if version != _VERSION:
            raise ValueError(f"format version {version}, expected {_VERSION}")
        spec, revision, count = _text(file), _u32(file), _u32(file)
        variables = []
        for _ in range(count):
            name, rank = _text(file), _exactly(file, 1)[0]
            shape = struct.unpack(f"<{rank}I", _exactly(file, 4 * rank))
            type_id, size = struct.unpack("<BI", _exactly(file, 5))
            variables.append(Variable(name, shape, type_id, file.tell(), size))
            if file.seek(size, os.SEEK_CUR) > total:
                raise ValueError(f"ends inside {name}")
        aliases = tuple((_text(file), _text(file)) for _ in range(_u32(file)))
        if file.tell() != total:
            raise ValueError(f"has {total - file.tell()} bytes too many")
    return Layout(spec, revision, tuple(variables), aliases)


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise ValueError("ends early")
    return data


def _u32(file: BinaryIO) -> int:
    return int(struct.unpack("<I", _exactly(file, 4))[0])


def _text(file: BinaryIO) -> str:
    (size,) = struct.unpack("<H", _exactly(file, 2))
    return _exactly(file, size)[:-1].decode()


def cache_of(config: EngineConfig, free: Free | None = None) -> Derived:
    """The folder of the int8 copy of this model."""
    digest = config.digest or sha256_of(config.model_dir / "model.bin")
    return Derived(config.cache_dir, "int8", digest, {"format": _COPY_FORMAT}, free=free)


def int8_copy(directory: Path, layout: Layout, cache: Derived) -> Found:
    """Makes a directory with the same model in int8. Nothing half-written stays behind.

    Raises `EngineFailed` codes "cache-not-writable" and "cache-disk-full".
    """
    source = directory / "model.bin"
    with building(cache, source.stat().st_size * 6 // 10) as work:
        _write_int8(source, layout, work / "model.bin")
        for name in _SMALL_FILES:
            if (directory / name).is_file():
                shutil.copyfile(directory / name, work / name)
    found = cache.find()
    if found is None:
        raise EngineFailed(f"{cache.path} was removed as soon as it was made; try again", code="cache-not-writable")
    return found


def _write_int8(source: Path, layout: Layout, target: Path) -> None:
    with source.open("rb") as file, target.open("wb") as out:
        weights = sum(_is_weight(variable) for variable in layout.variables)
        out.write(struct.pack("<I", _VERSION) + _packed(layout.spec))
        out.write(struct.pack("<II", layout.revision, len(layout.variables) + weights))
        for variable in layout.variables:
            file.seek(variable.offset)
            data = _exactly(file, variable.size)
            if not _is_weight(variable):
                _put(out, variable.name, variable.shape, variable.type_id, data)
                continue
            quantised, scale = quantise(np.frombuffer(data, "<f2").reshape(variable.shape))
            _put(out, variable.name, variable.shape, _INT8, quantised.tobytes())
            _put(out, variable.name + "_scale", scale.shape, _FLOAT32, scale.tobytes())
        out.write(struct.pack("<I", len(layout.aliases)))
        for alias, name in layout.aliases:
            out.write(_packed(alias) + _packed(name))


def _is_weight(variable: Variable) -> bool:
    """Matrices of linear layers and embeddings; convolutions have rank 3 and stay as they are."""
    return variable.type_id == _FLOAT16 and len(variable.shape) == 2 and variable.name.endswith("weight")


def quantise(weight: NDArray[np.float16]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """CTranslate2's int8: per row, scale = 127 / max |w|, q = round(w * scale); a row of zeros has scale 1."""
    quantised = np.empty(weight.shape, np.int8)
    scale = np.empty(len(weight), np.float32)
    for at, rows in _row_blocks(weight):
        block = rows.astype(np.float32)
        largest = np.abs(block).max(axis=1)
        part = np.where(largest > 0, np.float32(127) / np.where(largest > 0, largest, 1), np.float32(1))
        scale[at : at + len(rows)] = part
        quantised[at : at + len(rows)] = np.rint(block * part[:, None])
    return quantised, scale


def _row_blocks(weight: NDArray[np.float16], rows: int = 4096) -> Iterator[tuple[int, NDArray[np.float16]]]:
    for at in range(0, len(weight), rows):
        yield at, weight[at : at + rows]


def _put(out: BinaryIO, name: str, shape: tuple[int, ...], type_id: int, data: bytes) -> None:
    out.write(_packed(name) + struct.pack(f"<B{len(shape)}IBI", len(shape), *shape, type_id, len(data)))
    out.write(data)


def _packed(text: str) -> bytes:
    data = text.encode() + b"\0"
    return struct.pack("<H", len(data)) + data
