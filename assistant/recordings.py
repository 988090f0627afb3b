"""Debug recordings: what was said to the assistant, and what it made of it. Imports `errors, messages, audio, paths`.

Off unless somebody wants it. Each query leaves a WAV and a JSON in a folder that its owner alone can read; the oldest
go when the folder is too large or they are too old. Whatever goes wrong is said once in the log and disturbs nobody.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from assistant import paths
from assistant.audio.wav_writer import WavWriter
from assistant.errors import AssistantError
from assistant.messages import ASR_RATE, QueryReport

log = logging.getLogger(__name__)

MOST_WAITING = 8
"""Recordings that wait for the disk; more are dropped."""
_DAY_S = 86_400.0
_NAME = re.compile(r"(\d{8}T\d{6})\.\d{3}Z-[\w-]+\.(?:wav|json)", re.ASCII)
_LEFTOVER = re.compile(r"\.\d{8}T\d{6}\.\d{3}Z-.*\.part", re.ASCII)
_LEFTOVER_S = 3600.0
"""What was being written that long ago was left by a process that was killed."""


class Recordings:
    """`keep` returns at once; a thread of its own writes. `close` before the end, or the last ones may be missing."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        max_mib: float = 100,
        max_age_days: float = 7,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`folder`: "recordings" in the state directory by default. `clock`: seconds since 1970, a seam."""
        self.folder = folder or paths.state_dir() / "recordings"
        self._max_bytes = max_mib * 2**20
        self._max_age_s = max_age_days * _DAY_S
        self._clock = clock
        self._queue: queue.Queue[tuple[str, bytes, QueryReport] | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._failing = False

    def keep(self, report: QueryReport, pcm: bytes) -> None:
        """`pcm`: s16le mono at 16 kHz; empty for a query that was typed, which has no WAV."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, name="recordings", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait((self._stem(report.query_id), pcm, report))
        except queue.Full:
            self._complain("the disk is too slow")

    def close(self, timeout_s: float = 0.5) -> None:
        """Gives what waits so much time to be written."""
        if self._thread is None:
            return
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=timeout_s)
            self._thread.join(timeout_s)

    @property
    def idle(self) -> bool:
        """Nothing waits or is being written."""
        return self._queue.unfinished_tasks == 0

    def _stem(self, query_id: str) -> str:
        when = datetime.fromtimestamp(self._clock(), UTC)
        name = re.sub(r"[^A-Za-z0-9_-]", "_", query_id)[:64] or "query"
        return f"{when:%Y%m%dT%H%M%S}.{when.microsecond // 1000:03d}Z-{name}"

    # --- in the thread ----------------------------------------------------------------------------------------------
    def _write_all(self) -> None:
        while (one := self._queue.get()) is not None:
            try:
                self._write(*one)
            except AssistantError as error:
                self._complain(error.message)
            except OSError as error:
                self._complain(f"{error.filename or self.folder}: {error.strerror or error}")
            except ValueError as error:  # text that UTF-8 has not
                self._complain(str(error))
            else:
                self._failing = False
            self._queue.task_done()

    def _write(self, stem: str, pcm: bytes, report: QueryReport) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.folder.stat().st_mode & 0o077:
            self.folder.chmod(0o700)
        # before, so that a disk that is full because of us has room again
        self._prune(len(pcm))
        if pcm:
            path = self.folder / f"{stem}.wav"
            with WavWriter(path) as wav:
                wav.write(pcm, ASR_RATE)
            path.chmod(0o600)
        _write_private(self.folder / f"{stem}.json", msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
        self._prune(0)

    def _prune(self, coming: int) -> None:
        """Removes the oldest until `coming` more bytes fit, and all that are too old. Other people's files stay."""
        now = self._clock()
        found: list[tuple[str, int, Path]] = []
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if _NAME.fullmatch(path.name):
                    found.append((path.name, path.stat().st_size, path))
                elif _LEFTOVER.fullmatch(path.name) and now - path.stat().st_mtime > _LEFTOVER_S:
                    path.unlink()
        total = sum(size for _, size, _ in found) + coming
        oldest = f"{datetime.fromtimestamp(max(0.0, now - self._max_age_s), UTC):%Y%m%dT%H%M%S}"
        for stem in sorted({name.rpartition(".")[0] for name, _, _ in found}):
            if total <= self._max_bytes and stem >= oldest:
                break
            for name, size, path in found:
                if name.rpartition(".")[0] == stem:
                    path.unlink(missing_ok=True)
                    total -= size

    def _complain(self, reason: str) -> None:
        if not self._failing:
            log.warning("Recordings are not kept, until it works again: %s", reason)
        self._failing = True


def _write_private(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
