"""The shared memory ledger: one POSIX shared-memory segment, one writer, any number of readers.

Layout, little endian (docs/ledger.md): a 128-byte header and `ROWS` rows of 128 bytes.

    header  magic 8s "VALEDGR1" | version u32 | rows u32 | sequence u64 | writer pid u32 | crc32 u32 |
            writer start u64 (clock ticks since boot) | budget u64 | margin u64 | base anon u64 | base file u64 |
            peak anon u64 | peak total u64 | updated u64 (ns, CLOCK_MONOTONIC) | mode u32 | pressure u32 |
            measured u64 (ns: when all processes were last read)
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
import zlib
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from assistant.errors import AssistantError, NotRunning
from assistant.machine import has_ended, process_start
from assistant.memory_orchestrator.segment import not_made, opened, publish, remove_left_behind
from assistant.messages import Level, Mode

MAGIC = b"VALEDGR1"
VERSION = 2
ROWS = 16
_HEADER = struct.Struct("<8sIIQIIQQQQQQQQIIQ")
_ROW = struct.Struct("<16s16s40sIIQQQQQQ")
_ANY_VERSION = struct.Struct("<8sI12xI")
"""What every version begins with: magic, version, rows, sequence, the writer's process."""
_HEADER_SIZE = 128
_ROW_SIZE = 128
SIZE = _HEADER_SIZE + ROWS * _ROW_SIZE
_SEQUENCE = struct.Struct("<Q")
_SEQUENCE_AT = 16
_CRC = struct.Struct("<I")
_CRC_AT = 28
_CHECKED_FROM = 32
"""Everything behind the CRC field is covered by it."""
SHM = Path("/dev/shm")  # noqa: S108 - where shm_open() puts segments on Linux; names are ours, mode is 0600
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


def segment_name(owner: str) -> str:
    """`owner` is "daemon" (see `paths.daemon_owner`) or the pid of a stand-alone query."""
    return f"assistant-{os.getuid()}-{owner}"


class LedgerWriter:
    """The one writer. Creates the segment (0600), replacing one whose owner has gone."""

    def __init__(self, name: str, directory: Path = SHM) -> None:
        """Raises `AssistantError` code "ledger-in-use" when a living process owns the segment."""
        self._path = directory / name
        self._sequence = 0
        fresh = self._path.with_name(f".{name}.{os.getpid()}")
        try:
            fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise not_made(fresh, error) from None
        try:
            # allocated now: a shared-memory file system that is full would kill us at the first write instead
            os.posix_fallocate(fd, 0, SIZE)
            self._map = mmap.mmap(fd, SIZE)
        except OSError as error:
            _remove(fresh)
            raise not_made(fresh, error) from None
        finally:
            os.close(fd)
        self._start = process_start(os.getpid())
        # the owner stands in it before others can see it, or they would take it for left behind
        self.write(LedgerView(writer_pid=os.getpid()))
        try:
            publish(fresh, self._path, _living_owner)
        finally:
            _remove(fresh)
        # for a process that leaves without closing (a second Ctrl-C); a killed one's is swept by the next start
        atexit.register(self.close)

    def write(self, view: LedgerView) -> None:
        if len(view.rows) > ROWS:
            raise ValueError(f"a ledger has {ROWS} rows, not {len(view.rows)}")
        body = bytearray(SIZE)
        _HEADER.pack_into(
            body, 0, MAGIC, VERSION, ROWS, 0, view.writer_pid, 0, self._start, view.budget, view.margin,
            view.base_anon, view.base_file, view.peak_anon, view.peak_total, view.updated_ns,
            MODES.index(view.mode), LEVELS.index(view.level), view.measured_ns,
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
            self._path.unlink(missing_ok=True)
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
        except OSError as error:
            raise NotRunning(f"there is no ledger {name}: {error.strerror}") from None

    def read(self) -> LedgerView:
        """Raises `NotRunning` when its writer has died or the segment is not a ledger of this version."""
        for attempt in range(_READ_TRIES):
            body = bytes(self._map)
            view = _decode(body)
            if view is not None:
                if not _alive(view.writer_pid, _HEADER.unpack_from(body)[6]):
                    raise NotRunning(f"the ledger's writer, process {view.writer_pid}, has gone")
                return view
            time.sleep(0.0001 * min(attempt, 10))
        raise NotRunning("the ledger's writer died while writing, or the segment is not a ledger of this version")

    def close(self) -> None:
        self._map.close()


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
    budget, margin, base_anon, base_file, peak_anon, peak_total, updated, mode, level, measured = rest
    if mode >= len(MODES) or level >= len(LEVELS):
        return None
    return LedgerView(
        pid, budget, margin, base_anon, base_file, peak_anon, peak_total, updated, MODES[mode], LEVELS[level],
        measured, tuple(rows),
    )  # fmt: skip


def stale_segments(directory: Path = SHM) -> list[Path]:
    """Segments of ours whose owners have gone (killed before they could remove them)."""
    found = []
    for path in directory.glob(f"assistant-{os.getuid()}-*"):
        owner = _owner(path)
        if owner is not None and not _alive(*owner):
            found.append(path)
    for path in directory.glob(f".assistant-{os.getuid()}-*"):
        pid = path.suffix[1:]
        if pid.isascii() and pid.isdigit() and has_ended(int(pid)):
            found.append(path)
    return found


def remove_stale(directory: Path = SHM) -> None:
    for path in stale_segments(directory):
        with contextlib.suppress(OSError, AssistantError):
            remove_left_behind(path, _living_owner)


def _remove(path: Path) -> None:
    """The folder is everybody's: a file of that name may be somebody else's, and then it is not ours to remove."""
    with contextlib.suppress(OSError):
        path.unlink()


def _living_owner(fd: int) -> int:
    """The pid of another process that owns this segment and lives; else 0."""
    pid, start = _writer(fd)
    return pid if pid != os.getpid() and _alive(pid, start) else 0


def _owner(path: Path) -> tuple[int, int] | None:
    """(pid, start) of the writer; None for no segment of ours; (0, 0) for one that is not a ledger."""
    try:
        with opened(path) as fd:
            return _writer(fd)
    except OSError:
        return None


def _writer(fd: int) -> tuple[int, int]:
    head = os.read(fd, _HEADER_SIZE)
    if len(head) < _HEADER_SIZE or head[:8] != MAGIC:
        return 0, 0
    fields = _HEADER.unpack_from(head)
    return fields[4], fields[6]


def other_version(name: str, directory: Path = SHM) -> tuple[int, int] | None:
    """(version, pid) when a living process writes a ledger of another layout under this name."""
    try:
        with opened(directory / name) as fd:
            head = os.read(fd, _ANY_VERSION.size)
    except OSError:
        return None
    if len(head) < _ANY_VERSION.size:
        return None
    magic, version, pid = _ANY_VERSION.unpack(head)
    if magic[:7] != MAGIC[:7] or (magic, version) == (MAGIC, VERSION) or has_ended(pid):
        return None
    return version, pid


def _alive(pid: int, start: int) -> bool:
    """The start time tells a process from a later one that was given the same number."""
    return pid > 0 and not has_ended(pid, start)


def _text(text: str, size: int) -> bytes:
    return text.encode("utf-8")[:size]


def _str(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode("utf-8", "ignore")
