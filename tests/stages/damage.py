"""Files that were whole, and are damaged in one of the ways in which files are."""

from __future__ import annotations

from pathlib import Path

HARMS = ("cut", "longer", "empty", "other magic", "missing")


def damaged(path: Path, harm: str) -> Path:
    """`path`, which begins with four bytes that say what it is. `harm`: one of `HARMS`."""
    data = path.read_bytes()
    path.unlink()
    if harm != "missing":
        path.write_bytes(
            {"cut": data[:-3], "longer": data + b"x", "empty": b"", "other magic": b"XXXX" + data[4:]}[harm]
        )
    return path
