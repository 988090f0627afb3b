"""What models were measured to hold, kept between runs: one small JSON file in the state directory.

Keyed by model, engine and the settings that change memory. A figure is of a load that found its derived files (the
layout of weights for this machine) ready; it counts only while they still are, because making them takes more. A file
that cannot be read or written costs a less exact first estimate, nothing else.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
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

    def counts(self) -> bool:
        if min(self.anon, self.file) < 0 or not 0 < self.anon + self.file < _ABSURD:
            return False
        try:
            return not self.derived or Path(self.derived).exists()
        except (OSError, ValueError):  # no name that a folder can have
            return False


class Calibration:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = _read(file)

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
        return next((known for known in found if known is not None and known.counts()), None)

    def learn(self, key: str, measured: Usage, derived: str = "") -> None:
        """Remembers a peak, in bytes; writes the file when that changed anything."""
        if measured.total <= 0:
            return
        old = self.peak(key)
        if old is not None:
            # mapped files do not shrink: less of them is what another process that maps them, too, has a share of
            measured = Usage(_merge(old.anon, measured.anon), max(old.file, measured.file))
        new = _Measured(measured.anon, measured.file, derived)
        if new == self._known.get(key):
            return
        # what other processes have learned since stays
        self._known = {**self._known, **_read(self._file), key: new}
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = self._file.with_name(f".{self._file.name}.{os.getpid()}")
            try:
                temporary.write_bytes(msgspec.json.encode(self._known))
                temporary.rename(self._file)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            log.info("what was measured is not kept: %s", error)


def _merge(old: int, new: int) -> int:
    return max(new, int(_DECAY * old + (1 - _DECAY) * new))


def _read(file: Path) -> dict[str, _Measured]:
    try:
        if not file.is_file():  # a pipe would block us
            return {}
        return msgspec.json.decode(file.read_bytes(), type=dict[str, _Measured])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
