"""Reads GGUF files (versions 2 and 3, little-endian), and trusts nothing in them. Imports `errors` and `gguf_types`.

Every length, count and offset is checked against the file before anything is allocated, so that a damaged or hostile
file costs a `ModelDamaged` and no memory. Tensors are read with pread, never mapped: a file that shrinks under us is
an error and not a SIGBUS, and no page of it counts as ours. Layout: the GGUF specification in ggml's `docs/gguf.md`.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from assistant.closing import Closing
from assistant.errors import ModelDamaged, ModelMissing, ModelUnsupported
from assistant.model_store.gguf_types import FORMATS, OTHER_TYPES, BlockFormat

MAX_HEADER = 64 << 20
"""Bytes of metadata and tensor table. A vocabulary of 256 k tokens with its merges takes about 12 MiB."""
MAX_COUNT = 1 << 22
"""Items of one array, and of the two tables."""
MAX_DIM = 1 << 31
MAX_ALIGNMENT = 1 << 20


_SCALARS = {
    0: struct.Struct("<B"), 1: struct.Struct("<b"), 2: struct.Struct("<H"), 3: struct.Struct("<h"),
    4: struct.Struct("<I"), 5: struct.Struct("<i"), 6: struct.Struct("<f"), 7: struct.Struct("<?"),
    10: struct.Struct("<Q"), 11: struct.Struct("<q"), 12: struct.Struct("<d"),
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_U32, _U64 = _SCALARS[4], _SCALARS[10]


class StringArray(Sequence[bytes]):
    """Strings of an array, cut out on demand: 8 bytes each instead of a Python object each."""

    def __init__(self, data: bytes, starts: NDArray[np.uint64]) -> None:
        self._data = data
        self._starts = starts

    @classmethod
    def of(cls, items: Sequence[bytes]) -> StringArray:
        """The same for strings that come from no file."""
        sizes = np.fromiter(map(len, items), np.uint64, len(items))
        starts = np.cumsum(sizes + np.uint64(8), dtype=np.uint64) - sizes
        return cls(b"".join([_U64.pack(len(item)) + item for item in items]), starts)

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        start = int(self._starts[index])
        return self._data[start : start + _U64.unpack_from(self._data, start - 8)[0]]

    def __iter__(self) -> Iterator[bytes]:
        data = self._data
        for start in self._starts.tolist():
            yield data[start : start + _U64.unpack_from(data, start - 8)[0]]


class TensorInfo(msgspec.Struct, frozen=True):
    name: str
    format: BlockFormat
    columns: int
    """Input channels: weights of one row. ggml's first dimension."""
    rows: int
    """Output channels: the product of the other dimensions; 1 for a vector."""
    offset: int
    """From the beginning of the file."""

    @property
    def row_bytes(self) -> int:
        return self.columns // self.format.weights * self.format.bytes

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes


class _Cursor:
    """Walks the header; every step is checked against its end."""

    def __init__(self, buffer: mmap.mmap, path: Path) -> None:
        self.buffer = buffer
        self.end = min(len(buffer), MAX_HEADER)
        self.at = 0
        self.path = path

    def damaged(self, what: str) -> ModelDamaged:
        return ModelDamaged(f"{self.path}: {what}; the file is damaged, fetch it again")

    def skip(self, size: int, what: str) -> int:
        """Moves on by `size` bytes and returns where they begin."""
        start = self.at
        if size > self.end - start:
            raise self.damaged(f"{what} of {size} bytes at byte {start} reaches beyond the header")
        self.at = start + size
        return start

    def number(self, kind: struct.Struct) -> Any:
        return kind.unpack_from(self.buffer, self.skip(kind.size, "a number"))[0]

    def raw(self) -> bytes:
        size = self.number(_U64)
        start = self.skip(size, "a string")
        return self.buffer[start : start + size]

    def text(self, what: str) -> str:
        try:
            return self.raw().decode()
        except UnicodeDecodeError:
            raise self.damaged(f"{what} is not UTF-8") from None

    def count(self, what: str, least_bytes: int) -> int:
        """A count of things that take at least so many bytes each."""
        found: int = self.number(_U64)
        if found > MAX_COUNT or found * least_bytes > self.end - self.at:
            raise self.damaged(f"it claims {found} {what}, which cannot be")
        return found


def _strings(cursor: _Cursor, count: int) -> StringArray:
    starts = np.empty(count, np.uint64)
    buffer, end, unpack = cursor.buffer, cursor.end, _U64.unpack_from
    begin = at = cursor.at
    for i in range(count):
        if at + 8 > end or (size := unpack(buffer, at)[0]) > end - at - 8:
            raise cursor.damaged(f"string {i} of an array at byte {at} reaches beyond the header")
        starts[i] = at + 8 - begin
        at += 8 + size
    cursor.at = at
    return StringArray(buffer[begin:at], starts)


def _array(cursor: _Cursor, key: str) -> StringArray | NDArray[Any]:
    kind = cursor.number(_U32)
    if kind == _STRING:
        return _strings(cursor, cursor.count("strings", 8))
    if kind == _ARRAY:
        raise ModelUnsupported(f"{cursor.path}: {key} is an array of arrays, which no file of a known architecture has")
    if kind not in _SCALARS:
        raise cursor.damaged(f"{key} has the unknown value type {kind}")
    scalar = _SCALARS[kind]
    count = cursor.count("numbers", scalar.size)
    start = cursor.skip(count * scalar.size, key)
    return np.frombuffer(cursor.buffer[start : cursor.at], np.dtype(scalar.format))


def _value(cursor: _Cursor, key: str) -> Any:
    kind = cursor.number(_U32)
    if kind == _STRING:
        return cursor.raw()
    if kind == _ARRAY:
        return _array(cursor, key)
    if kind not in _SCALARS:
        raise cursor.damaged(f"{key} has the unknown value type {kind}")
    return cursor.number(_SCALARS[kind])


def _metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.text("a key")
        if key in found:
            raise cursor.damaged(f"it has the key {key[:80]!r} twice")
        found[key] = _value(cursor, key)
    return found


def _tensor(cursor: _Cursor) -> TensorInfo:
    """One row of the table; the offset is still relative to the data."""
    name = cursor.text("a tensor name")
    dims = [cursor.number(_U64) for _ in range(min(cursor.number(_U32), 5))]
    kind, offset = cursor.number(_U32), cursor.number(_U64)
    if not 1 <= len(dims) <= 4 or any(not 1 <= dim <= MAX_DIM for dim in dims):
        raise cursor.damaged(f"tensor {name[:80]!r} has the impossible shape {dims}")
    if kind not in FORMATS:
        raise ModelUnsupported(
            f"{cursor.path}: tensor {name[:80]!r} has the type {OTHER_TYPES.get(kind, kind)}; use a file with "
            f"{', '.join(form.name for form in FORMATS.values())}"
        )
    if dims[0] % FORMATS[kind].weights:
        raise cursor.damaged(
            f"tensor {name[:80]!r} has rows of {dims[0]} weights, not whole {FORMATS[kind].name} blocks"
        )
    rows = 1
    for dim in dims[1:]:
        rows *= dim
    return TensorInfo(name, FORMATS[kind], dims[0], rows, offset)


def _tensors(cursor: _Cursor, count: int, alignment: int, size: int) -> dict[str, TensorInfo]:
    """The table with absolute offsets; every tensor lies inside the file and apart from the others."""
    relative = [_tensor(cursor) for _ in range(count)]
    data = -(-cursor.at // alignment) * alignment
    placed = sorted((msgspec.structs.replace(t, offset=data + t.offset) for t in relative), key=lambda t: t.offset)
    free = data
    for tensor in placed:
        if tensor.offset < free:
            raise cursor.damaged(f"tensor {tensor.name[:80]!r} overlaps another")
        free = tensor.offset + tensor.nbytes
        if free > size:
            raise cursor.damaged(f"tensor {tensor.name[:80]!r} ends at byte {free}, the file at {size}")
    table = {tensor.name: tensor for tensor in placed}
    if len(table) != count:
        raise cursor.damaged("two tensors have the same name")
    return table


class GgufFile(Closing):
    """An open GGUF file. `metadata` values: int, float, bool, bytes (strings), numpy arrays, `StringArray`."""

    def __init__(self, path: Path) -> None:
        """Raises `ModelMissing`, `ModelDamaged`, `ModelUnsupported`."""
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise ModelMissing(f"{path}: cannot be read ({error.strerror})") from None
        try:
            self._parse()
        except BaseException:
            self.close()
            raise

    def _parse(self) -> None:
        try:
            size = os.fstat(self._fd).st_size
            header = mmap.mmap(self._fd, min(size, MAX_HEADER), access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            raise ModelDamaged(f"{self.path} is no GGUF file: it is empty, or no regular file") from None
        with header:
            cursor = _Cursor(header, self.path)
            if header[:4] != b"GGUF":
                raise ModelDamaged(f"{self.path} is no GGUF file: it does not begin with GGUF")
            cursor.at = 4
            version = cursor.number(_U32)
            if version not in (2, 3):
                raise ModelUnsupported(f"{self.path}: GGUF version {version}; versions 2 and 3 can be read")
            tensors, keys = cursor.count("tensors", 32), cursor.count("keys", 13)
            self.metadata = _metadata(cursor, keys)
            alignment = self.metadata.get("general.alignment", 32)
            if not isinstance(alignment, int) or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
                raise cursor.damaged(f"its alignment {alignment!r} is no power of two")
            self.tensors = _tensors(cursor, tensors, alignment, size)

    def read(self, tensor: TensorInfo, first: int = 0, rows: int | None = None) -> NDArray[np.uint8]:
        """Raw bytes of some rows, uint8 [rows, row_bytes]. Raises `ModelDamaged` when the file has shrunk."""
        count = tensor.rows - first if rows is None else rows
        out = np.empty((count, tensor.row_bytes), np.uint8)
        view, at = out.reshape(-1).data, tensor.offset + first * tensor.row_bytes
        while view:
            got = os.preadv(self._fd, [view], at)
            if got == 0:
                raise ModelDamaged(
                    f"{self.path}: ends within tensor {tensor.name!r}; the file has changed, fetch it again"
                )
            view, at = view[got:], at + got
        return out

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
