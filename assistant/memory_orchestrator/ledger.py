"""The shared memory ledger: one POSIX shared-memory segment, one writer, any number of readers.

Layout, little endian (docs/ledger.md): a 128-byte header and `ROWS` rows of 128 bytes.

    header  magic 8s "VALEDGR1" | version u32 | rows u32 | sequence u64 | writer pid u32 | crc32 u32 |
            writer start u64 (clock ticks since boot) | budget u64 | margin u64 | base anon u64 | base file u64 |
            peak anon u64 | peak total u64 | updated u64 (ns, CLOCK_MONOTONIC) | mode u32 | pressure u32 |
            measured u64 (ns: when all processes were last read) | writer's PID namespace u64 | 1 = he holds a lock u32
    row     stage 16s | engine 16s | model 40s | pid u32 | state u32 | reserved u64 | anon u64 | file u64 | kv u64 |
            last used u64 (ns) | keep-alive deadline u64 (ns, 0 = none)

The sequence is odd while the writer writes (a seqlock); because Python cannot order its stores on every CPU, readers
also check the CRC-32 of everything behind it. A reader copies, checks, and repeats. A writer killed in the middle
leaves an odd sequence; the next owner writes a fresh segment. Sizes are bytes; a row whose stage is empty is free.
"""

from __future__ import annotations

import atexit
import contextlib
import mmap
import os
import struct
import time
import weakref
import zlib
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from assistant.errors import NotRunning
from assistant.machine import pid_namespace, process_start
from assistant.memory_orchestrator.segment import made_locked, not_made, opened, publish
from assistant.memory_orchestrator.writers import MAGIC, SHM, VERSION, lives, living_owner, segment_name
from assistant.messages import Level, Mode

__all__ = ["MAGIC", "SHM", "VERSION", "segment_name"]

ROWS = 16
_HEADER = struct.Struct("<8sIIQIIQQQQQQQQIIQQI")
_ROW = struct.Struct("<16s16s40sIIQQQQQQ")
_HEADER_SIZE = 128
_ROW_SIZE = 128
SIZE = _HEADER_SIZE + ROWS * _ROW_SIZE
_SEQUENCE = struct.Struct("<Q")
_SEQUENCE_AT = 16
_CRC = struct.Struct("<I")
_CRC_AT = 28
_CHECKED_FROM = 32
"""Everything behind the CRC field is covered by it."""
_READ_TRIES = 200


class RowState(IntEnum):
    FREE = 0
    RESERVED = 1
    LOADING = 2
    IDLE = 3
    IN_USE = 4
    LEAVING = 5
    PREPARED = 6
    """Forked, the engine imported, no weights yet."""


_STATES = frozenset(RowState)
MODES: tuple[Mode, ...] = ("sequential", "overlap", "resident")
"""By their number in the header."""
LEVELS: tuple[Level, ...] = ("normal", "elevated", "high", "critical")


@dataclass(frozen=True, slots=True)
class Row:
    stage: str
    engine: str
    model: str
    pid: int = 0
    state: RowState = RowState.RESERVED
    reserved: int = 0
    anon: int = 0
    file: int = 0
    kv: int = 0
    last_used_ns: int = 0
    keep_alive_until_ns: int = 0


@dataclass(frozen=True, slots=True)
class LedgerView:
    """One consistent copy of the segment."""

    writer_pid: int
    budget: int = 0
    margin: int = 0
    base_anon: int = 0
    base_file: int = 0
    peak_anon: int = 0
    peak_total: int = 0
    updated_ns: int = 0
    mode: Mode = "sequential"
    level: Level = "normal"
    measured_ns: int = 0
    rows: tuple[Row, ...] = ()


class LedgerWriter:
    """The one writer. Creates the segment (0600), replacing one whose owner has gone."""

    def __init__(self, name: str, directory: Path = SHM) -> None:
        """Raises `AssistantError` code "ledger-in-use" when a living process owns the segment."""
        self._path = directory / name
        self._sequence = 0
        fresh = self._path.with_name(f".{name}.{os.getpid()}")
        try:
            # locked before others can see it, and for as long as we live, or they would take it for left behind
            self._fd = made_locked(fresh)
        except OSError as error:
            raise not_made(fresh, error) from None
        try:
            self._publish(fresh)
        except BaseException:
            os.close(self._fd)
            raise
        finally:
            _remove(fresh)
        # for a process that leaves without closing (a second Ctrl-C); a killed one's is swept by the next start
        atexit.register(self.close)

    def _publish(self, fresh: Path) -> None:
        try:
            # allocated now: a shared-memory file system that is full would kill us at the first write instead
            os.posix_fallocate(self._fd, 0, SIZE)
            self._map = mmap.mmap(self._fd, SIZE)
        except OSError as error:
            _remove(fresh)
            raise not_made(fresh, error) from None
        self._start, self._namespace = process_start(os.getpid()), pid_namespace()
        self.write(LedgerView(writer_pid=os.getpid()))
        publish(fresh, self._path, living_owner)

    def write(self, view: LedgerView) -> None:
        if len(view.rows) > ROWS:
            raise ValueError(f"a ledger has {ROWS} rows, not {len(view.rows)}")
        body = bytearray(SIZE)
        _HEADER.pack_into(
            body, 0, MAGIC, VERSION, ROWS, 0, view.writer_pid, 0, self._start, view.budget, view.margin,
            view.base_anon, view.base_file, view.peak_anon, view.peak_total, view.updated_ns,
            MODES.index(view.mode), LEVELS.index(view.level), view.measured_ns,
            self._namespace, 1,
        )  # fmt: skip
        for index, row in enumerate(view.rows):
            _ROW.pack_into(
                body, _HEADER_SIZE + index * _ROW_SIZE, _text(row.stage, 16), _text(row.engine, 16),
                _text(row.model, 40), row.pid, row.state, row.reserved, row.anon, row.file, row.kv, row.last_used_ns,
                row.keep_alive_until_ns,
            )  # fmt: skip
        _CRC.pack_into(body, _CRC_AT, zlib.crc32(body[_CHECKED_FROM:]))
        _SEQUENCE.pack_into(self._map, _SEQUENCE_AT, self._sequence + 1)
        self._map[:_SEQUENCE_AT] = bytes(body[:_SEQUENCE_AT])
        self._map[_SEQUENCE_AT + 8 :] = bytes(body[_SEQUENCE_AT + 8 :])
        self._sequence += 2
        _SEQUENCE.pack_into(self._map, _SEQUENCE_AT, self._sequence)

    def close(self) -> None:
        """Unmaps and removes the segment; safe to repeat."""
        if not self._map.closed:
            self._map.close()
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._fd), self._path.lstat()):  # else it lost its name to somebody
                    self._path.unlink()
            os.close(self._fd)
            atexit.unregister(self.close)


class LedgerReader:
    """Attaches read-only; needs nothing from the daemon but its segment."""

    def __init__(self, name: str, directory: Path = SHM) -> None:
        """Raises `NotRunning` when there is no such segment."""
        try:
            with opened(directory / name) as fd:
                if os.fstat(fd).st_size < SIZE:
                    raise NotRunning(f"the ledger {name} is not of this version")
                self._map = mmap.mmap(fd, SIZE, access=mmap.ACCESS_READ)
                self._fd = os.dup(fd)
                self._close = weakref.finalize(self, os.close, self._fd)
        except OSError as error:
            raise NotRunning(f"there is no ledger {name}: {error.strerror}") from None

    def read(self) -> LedgerView:
        """Raises `NotRunning` when its writer has died or the segment is not a ledger of this version."""
        for attempt in range(_READ_TRIES):
            body = bytes(self._map)
            view = _decode(body)
            if view is not None:
                if not lives(self._fd):
                    raise NotRunning(f"the ledger's writer, process {view.writer_pid}, has gone")
                return view
            time.sleep(0.0001 * min(attempt, 10))
        raise NotRunning("the ledger's writer died while writing, or the segment is not a ledger of this version")

    def close(self) -> None:
        self._map.close()
        self._close()


def _decode(body: bytes) -> LedgerView | None:
    magic, version, count, sequence, pid, crc, _start, *rest = _HEADER.unpack_from(body)
    if magic != MAGIC or version != VERSION or count != ROWS or sequence % 2:
        return None
    if crc != zlib.crc32(body[_CHECKED_FROM:]):
        return None
    rows = []
    for index in range(ROWS):
        stage, engine, model, worker, state, *numbers = _ROW.unpack_from(body, _HEADER_SIZE + index * _ROW_SIZE)
        if stage.strip(b"\0"):
            if state not in _STATES:
                return None
            rows.append(Row(_str(stage), _str(engine), _str(model), worker, RowState(state), *numbers))
    budget, margin, base_anon, base_file, peak_anon, peak_total, updated, mode, level, measured, *_ = rest
    if mode >= len(MODES) or level >= len(LEVELS):
        return None
    return LedgerView(
        pid, budget, margin, base_anon, base_file, peak_anon, peak_total, updated, MODES[mode], LEVELS[level],
        measured, tuple(rows),
    )  # fmt: skip


def _remove(path: Path) -> None:
    """The folder is everybody's: a file of that name may be somebody else's, and then it is not ours to remove."""
    with contextlib.suppress(OSError):
        path.unlink()


def _text(text: str, size: int) -> bytes:
    return text.encode("utf-8")[:size]


def _str(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode("utf-8", "ignore")
