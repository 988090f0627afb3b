"""The word table of a small encoder in 4 bits, on disk: rows are gathered from a map. Imports `errors`.

The file: magic `LVWT`, version (uint16), group (uint16), rows (uint32), columns (uint32); then the rows, each of
`columns / 2` bytes (two values in a byte, the even column in the low four bits) and, for each group of columns, a
float16 scale and a float16 minimum: value = quantum x scale + minimum. All little-endian. One row is one piece of the
file, so that a word costs one page and not three.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from assistant.errors import ModelDamaged

MAGIC = b"LVWT"
VERSION = 1
GROUP = 32
_HEAD = struct.Struct("<4sHHII")
_STEPS = 15

Floats = NDArray[np.float32]


def quantised(table: Floats, group: int = GROUP) -> tuple[NDArray[np.uint8], NDArray[np.float16], NDArray[np.float16]]:
    """`table` float32 [rows, columns] -> quanta [rows, groups, group], scales and minima float16 [rows, groups]."""
    blocks = table.reshape(len(table), -1, group)
    low = blocks.min(2).astype(np.float16)
    scale = ((blocks.max(2) - low.astype(np.float32)) / _STEPS).astype(np.float16)
    step = np.where(scale > 0, scale, 1).astype(np.float32)[..., None]
    quanta = np.clip(np.rint((blocks - low.astype(np.float32)[..., None]) / step), 0, _STEPS)
    return quanta.astype(np.uint8), scale, low


def write_table(table: Floats, path: Path) -> None:
    """`table` float32 [rows, columns], columns a multiple of `GROUP`."""
    quanta, scale, low = quantised(table)
    rows, columns = table.shape
    pairs = quanta.reshape(rows, columns // 2, 2)
    packed = pairs[..., 0] | (pairs[..., 1] << 4)
    ends = np.stack([scale, low], 2).reshape(rows, -1).view(np.uint8)
    head = _HEAD.pack(MAGIC, VERSION, GROUP, rows, columns)
    path.write_bytes(head + np.concatenate([packed, ends], 1).tobytes())


class WordTable:
    """Raises `ModelDamaged` for a file that is no table."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                head = file.read(_HEAD.size)
            magic, version, group, rows, self.columns = _HEAD.unpack(head)
            width = self.columns // 2 + 4 * (self.columns // group)
            if magic != MAGIC or version != VERSION or path.stat().st_size != _HEAD.size + rows * width:
                raise ValueError("its head or its length is wrong")
            self._rows = np.memmap(path, np.uint8, "r", _HEAD.size, (rows, width))
        except (OSError, ValueError, ZeroDivisionError, struct.error) as error:
            raise ModelDamaged(f"{path} is no word table that this version reads ({error}); install again") from None
        self._group = group

    def __len__(self) -> int:
        return len(self._rows)

    def gather(self, ids: list[int]) -> Floats:
        """float32 [len(ids), columns]. Raises `IndexError` for an id that has no row."""
        rows = np.asarray(self._rows[ids])
        packed, ends = np.split(rows, [self.columns // 2], axis=1)
        quanta = np.stack([packed & 15, packed >> 4], 2).reshape(len(ids), -1, self._group)
        scale_low = np.ascontiguousarray(ends).view(np.float16).astype(np.float32).reshape(len(ids), -1, 2)
        values = quanta * scale_low[..., :1] + scale_low[..., 1:]
        return values.reshape(len(ids), self.columns).astype(np.float32)
