"""What models were measured to hold, kept between runs: one small JSON file in the state directory.

Keyed by model, engine and the settings that change memory. A file that cannot be read or written costs a less exact
first estimate, nothing else.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from pathlib import Path

from assistant.memory_orchestrator.probe import Usage

log = logging.getLogger(__name__)

_DECAY = 0.8
"""A smaller peak is believed slowly, a larger one at once: promising too little is what hurts."""


class Calibration:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = _read(file)

    def peak(self, key: str) -> Usage | None:
        return self._known.get(key)

    def learn(self, key: str, measured: Usage) -> None:
        """Remembers a peak, in bytes; writes the file when that changed anything."""
        if measured.total <= 0:
            return
        old = self._known.get(key)
        new = measured if old is None else Usage(_merge(old.anon, measured.anon), _merge(old.file, measured.file))
        if new == old:
            return
        self._known[key] = new
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._file.with_name(f".{self._file.name}.{os.getpid()}")
            try:
                temporary.write_text(
                    json.dumps({name: {"anon": use.anon, "file": use.file} for name, use in self._known.items()}),
                    "utf-8",
                )
                temporary.rename(self._file)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            log.info("what was measured is not kept: %s", error)


def _merge(old: int, new: int) -> int:
    return max(new, int(_DECAY * old + (1 - _DECAY) * new))


def _read(file: Path) -> dict[str, Usage]:
    known: dict[str, Usage] = {}
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        for name, entry in json.loads(file.read_text("utf-8")).items():
            known[str(name)] = Usage(int(entry["anon"]), int(entry["file"]))
    return known
