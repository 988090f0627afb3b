"""What models were measured to hold, kept between runs: one small JSON file in the state directory.

Keyed by model, engine and the settings that change memory. A figure is of a load that found its derived files (the
layout of weights for this machine) ready; it counts only while they still are, because making them takes more. A file
that cannot be read or written costs a less exact first estimate, nothing else. The disk is asked in `look` and in what
`later` is given, never when somebody wants a figure.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from assistant.memory_orchestrator.probe import Usage

log = logging.getLogger(__name__)

_DECAY = 0.8
"""A smaller peak is believed slowly, a larger one at once: promising too little is what hurts."""
_ABSURD = 1 << 40
"""Bytes. A larger figure was not measured, whoever wrote it."""


class _Measured(msgspec.Struct, frozen=True):
    anon: int
    file: int
    derived: str = ""
    """The folder of derived files that the load used; empty = none."""

    @property
    def credible(self) -> bool:
        return min(self.anon, self.file) >= 0 and 0 < self.anon + self.file < _ABSURD


class Calibration:
    def __init__(self, file: Path, later: Callable[[Callable[[], None]], None] = lambda work: work()) -> None:
        """`later` does what is to be written, in order; at once by default."""
        self._file, self._later = file, later
        self._known = _read(file)
        self._gone: set[str] = set()
        """Folders of derived files that were not there when they were last looked for."""
        self.look()

    def look(self, beginning: str = "") -> None:
        """Whether derived files are where they were, of the keys that begin so. Asks the disk."""
        for folder in {known.derived for key, known in self._known.items() if key.startswith(beginning)}:
            if folder and not _exists(folder):
                self._gone.add(folder)
            else:
                self._gone.discard(folder)

    def peak(self, *keys: str) -> Usage | None:
        """The peak, in bytes, that another load of the same will have: of the first of `keys` for which it is known."""
        known = self._first(keys)
        return Usage(known.anon, known.file) if known is not None else None

    def derived(self, *keys: str) -> Path | None:
        """The folder of derived files that loads of the same have used, if there is one."""
        known = self._first(keys)
        return Path(known.derived) if known is not None and known.derived else None

    def _first(self, keys: Iterable[str]) -> _Measured | None:
        found = (self._known.get(key) for key in keys)
        return next((one for one in found if one and one.credible and one.derived not in self._gone), None)

    def learn(self, key: str, measured: Usage, derived: str = "") -> None:
        """Remembers a peak, in bytes; the file is written when that changed anything."""
        if measured.total <= 0:
            return
        old = self.peak(key)
        if old is not None:
            # mapped files do not shrink: less of them is what another process that maps them, too, has a share of
            measured = Usage(_merge(old.anon, measured.anon), max(old.file, measured.file))
        new = _Measured(measured.anon, measured.file, derived)
        if new == self._known.get(key):
            return
        self._known = {**self._known, key: new}
        self._gone.discard(derived)  # it was used just now
        known = self._known
        self._later(lambda: self._write({**known, **_read(self._file), key: new}))  # what others have learned stays

    def _write(self, known: dict[str, _Measured]) -> None:
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = self._file.with_name(f".{self._file.name}.{os.getpid()}")
            try:
                temporary.write_bytes(msgspec.json.encode(known))
                temporary.rename(self._file)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            log.info("what was measured is not kept: %s", error)


def _exists(folder: str) -> bool:
    try:
        return Path(folder).exists()
    except (OSError, ValueError):  # no name that a folder can have
        return False


def _merge(old: int, new: int) -> int:
    return max(new, int(_DECAY * old + (1 - _DECAY) * new))


def _read(file: Path) -> dict[str, _Measured]:
    try:
        if not file.is_file():  # a pipe would block us
            return {}
        return msgspec.json.decode(file.read_bytes(), type=dict[str, _Measured])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
