"""The segment between processes: consistent reads under a busy writer, a writer killed mid-write, take-over."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.errors import AssistantError, NotRunning
from assistant.memory_orchestrator import ledger, writers
from assistant.memory_orchestrator.ledger import LedgerReader, LedgerView, LedgerWriter, Row, RowState
from tests.stages.disks import read_only

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


def view(number: int) -> LedgerView:
    """A view whose every figure is `number`, so that a torn read shows."""
    row = Row("llm", "mnn", f"m{number}", number % 4_000_000, RowState.IN_USE, *([number] * 6))
    n = number
    return LedgerView(os.getpid(), n, n, n, n, n, n, n, rows=(row, row))


def whole(seen: LedgerView) -> bool:
    figures = {seen.budget, seen.margin, seen.base_anon, seen.base_file, seen.peak_anon, seen.peak_total}
    figures |= {seen.updated_ns}
    for row in seen.rows:
        figures |= {row.reserved, row.anon, row.file, row.kv, row.last_used_ns, row.keep_alive_until_ns}
    return len(figures) == 1


def child(code: str, tmp_path: Path, stdin: int | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", f"from tests.memory_orchestrator.test_ledger import *\n{code}", str(tmp_path)],
        cwd=ROOT,
        stdin=stdin,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    writer = LedgerWriter("a", tmp_path)
    writer.write(view(7 * MIB))
    reader = LedgerReader("a", tmp_path)
    assert reader.read() == view(7 * MIB)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    reader.close()
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_a_new_ledger_is_readable_before_its_first_write(tmp_path: Path) -> None:
    writer = LedgerWriter("a", tmp_path)
    assert LedgerReader("a", tmp_path).read().writer_pid == os.getpid()
    writer.close()


def test_readers_never_see_half_a_write(tmp_path: Path) -> None:
    busy = child(
        "import itertools\n"
        "writer = LedgerWriter('a', Path(sys.argv[1]))\n"
        "print('on', flush=True)\n"
        "for n in itertools.count(1): writer.write(view(n % 1000))\n",
        tmp_path,
    )
    try:
        assert busy.stdout is not None
        busy.stdout.readline()
        reader = LedgerReader("a", tmp_path)
        seen = set()
        until = time.monotonic() + 1
        while time.monotonic() < until:
            now = reader.read()
            assert whole(now), now
            seen.add(now.budget)
        assert len(seen) > 10
    finally:
        busy.kill()
        busy.wait()
        if busy.stdout:
            busy.stdout.close()


def test_a_writer_killed_in_mid_write_is_reported_and_taken_over(tmp_path: Path) -> None:
    dead = child(
        "writer = LedgerWriter('a', Path(sys.argv[1]))\n"
        "writer.write(view(5))\n"
        "ledger._SEQUENCE.pack_into(writer._map, ledger._SEQUENCE_AT, 3)\n"
        "writer._map[200:300] = b'x' * 100\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n",
        tmp_path,
    )
    dead.communicate()
    assert dead.returncode == -signal.SIGKILL
    with pytest.raises(NotRunning):
        LedgerReader("a", tmp_path).read()
    writer = LedgerWriter("a", tmp_path)
    writer.write(view(9))
    assert LedgerReader("a", tmp_path).read() == view(9)
    writer.close()


def test_a_living_owner_keeps_its_ledger(tmp_path: Path) -> None:
    owner = child(
        "writer = LedgerWriter('a', Path(sys.argv[1]))\nprint('on', flush=True)\ntime.sleep(30)\n",
        tmp_path,
    )
    try:
        assert owner.stdout is not None
        owner.stdout.readline()
        with pytest.raises(AssistantError, match=str(owner.pid)) as caught:
            LedgerWriter("a", tmp_path)
        assert caught.value.code == "ledger-in-use"
    finally:
        owner.kill()
        owner.communicate()


def test_segments_of_the_dead_are_removed_and_of_the_living_kept(tmp_path: Path) -> None:
    mine = LedgerWriter(ledger.segment_name("mine"), tmp_path)
    dead = child(
        "LedgerWriter(ledger.segment_name('dead'), Path(sys.argv[1]))\nos.kill(os.getpid(), signal.SIGKILL)\n",
        tmp_path,
    )
    dead.communicate()
    (tmp_path / f".{ledger.segment_name('torn')}.{dead.pid}").touch()
    writers.remove_stale(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [ledger.segment_name("mine")]
    mine.close()


@pytest.mark.root
def test_another_clock_since_boot_makes_nobody_dead(tmp_path: Path) -> None:
    """In a time namespace the kernel tells another start of every process: a living daemon lost its ledger by it."""
    later = ["unshare", "--time", "--boottime", "7200", "--fork"]
    if subprocess.run([*later, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no time namespace can be made here")
    mine = LedgerWriter(ledger.segment_name("mine"), tmp_path)
    sweep = "import sys, pathlib; from assistant.memory_orchestrator import ledger, writers; "
    sweep += "writers.remove_stale(pathlib.Path(sys.argv[1])); "
    sweep += "assert ledger.LedgerReader(ledger.segment_name('mine'), pathlib.Path(sys.argv[1])).read().writer_pid"
    done = subprocess.run([*later, sys.executable, "-c", sweep, str(tmp_path)], cwd=ROOT, check=False)
    assert done.returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == [ledger.segment_name("mine")]
    mine.close()


NO_DESCRIPTORS = """
import contextlib, resource
from assistant.machine import has_ended
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
with contextlib.suppress(OSError):
    while True:
        os.dup(0)
print(has_ended(os.getppid()), has_ended(os.getppid(), 5), flush=True)
"""


def test_who_cannot_look_takes_nobody_for_dead(tmp_path: Path) -> None:
    """Without a free descriptor /proc cannot be read."""
    told, _ = child(NO_DESCRIPTORS, tmp_path).communicate()
    assert told.split() == ["False", "False"]


def test_files_of_others_in_the_common_folder_are_left_alone(tmp_path: Path) -> None:
    odd = [tmp_path / f".{ledger.segment_name('a')}.b", tmp_path / f".{ledger.segment_name('a')}.", tmp_path / ".x"]
    odd += [tmp_path / f".{ledger.segment_name('a')}.²"]
    for path in odd:
        path.touch()
    (tmp_path / ledger.segment_name("folder")).mkdir()
    os.mkfifo(tmp_path / ledger.segment_name("pipe"))
    (tmp_path / ledger.segment_name("link")).symlink_to("/etc/hostname")
    writers.remove_stale(tmp_path)
    assert all(path.exists() for path in odd)


def test_what_stands_in_the_way_of_a_new_segment_is_named(tmp_path: Path) -> None:
    (tmp_path / f".a.{os.getpid()}").mkdir()
    with pytest.raises(AssistantError, match="in the way"):
        LedgerWriter("a", tmp_path)


@pytest.mark.parametrize("folder", ["none", "/proc"])
def test_a_folder_that_cannot_be_written_is_named_and_not_a_file_that_is_not_there(tmp_path: Path, folder: str) -> None:
    with pytest.raises(AssistantError, match="cannot be written") as caught:
        LedgerWriter("a", tmp_path / folder)
    assert str(tmp_path / folder) in caught.value.message
    assert "remove" not in caught.value.message


@pytest.mark.root
def test_a_read_only_folder_for_the_ledger_is_named(tmp_path: Path) -> None:
    (tmp_path / "shm").mkdir()
    with read_only(tmp_path / "shm"), pytest.raises(AssistantError, match="cannot be written") as caught:
        LedgerWriter("a", tmp_path / "shm")
    assert "remove" not in caught.value.message


@pytest.mark.parametrize("content", [b"", b"short", b"x" * ledger.SIZE, ledger.MAGIC + b"\0" * ledger.SIZE])
def test_what_is_no_ledger_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(NotRunning):
        LedgerReader("a", tmp_path).read()


def test_too_many_rows_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    writer = LedgerWriter("a", tmp_path)
    writer.write(view(1))
    row = Row("llm", "mnn", "m")
    with pytest.raises(ValueError, match="16 rows"):
        writer.write(LedgerView(1, rows=(row,) * 17))
    assert LedgerReader("a", tmp_path).read() == view(1)
    writer.close()


def figures_of(number: int) -> LedgerView:
    """A view whose every figure, and whose number of rows, follows from `number`."""
    rows = tuple(
        Row(f"s{row}", "mnn", f"m{number}", number + row, RowState(1 + number % 6), *([number + row] * 6))
        for row in range(number % (ledger.ROWS + 1))
    )
    n = number
    return LedgerView(os.getpid(), n, n, n, n, n, n, n, ledger.MODES[n % 3], ledger.LEVELS[n % 4], n, rows)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_hundred_thousand_writes_and_no_torn_read(tmp_path: Path) -> None:
    busy = child(
        "writer = LedgerWriter('a', Path(sys.argv[1]))\n"
        "print('on', flush=True)\n"
        "for n in range(100_000): writer.write(figures_of(n))\n"
        "print('done', flush=True)\n"
        "time.sleep(30)\n",
        tmp_path,
    )
    try:
        assert busy.stdout is not None
        busy.stdout.readline()
        reader = LedgerReader("a", tmp_path)
        seen = 0
        last = reader.read()
        while last.budget < 99_999:
            now = reader.read()
            assert now == replace(figures_of(now.budget), writer_pid=busy.pid)
            assert now.budget >= last.budget
            seen += now.budget > last.budget
            last = now
        assert seen > 1000
        reader.close()
    finally:
        busy.kill()
        busy.communicate()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_writer_killed_at_any_moment_is_taken_over(tmp_path: Path) -> None:
    for wait_ms in range(0, 20, 2):
        dead = child(
            "import itertools\n"
            "writer = LedgerWriter('a', Path(sys.argv[1]))\n"
            "print('on', flush=True)\n"
            "for n in itertools.count(): writer.write(figures_of(n))\n",
            tmp_path,
        )
        assert dead.stdout is not None
        dead.stdout.readline()
        time.sleep(wait_ms / 1000)
        dead.kill()
        dead.communicate()
        with pytest.raises(NotRunning, match="writer"):
            LedgerReader("a", tmp_path).read()
    writer = LedgerWriter("a", tmp_path)
    writer.write(figures_of(3))
    assert LedgerReader("a", tmp_path).read() == figures_of(3)
    writer.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("left_behind", [False, True])
def test_of_many_who_want_the_same_ledger_at_once_one_gets_it(tmp_path: Path, left_behind: bool) -> None:
    for _ in range(3):
        if left_behind:
            child(
                "LedgerWriter('a', Path(sys.argv[1]))\nos.kill(os.getpid(), signal.SIGKILL)\n", tmp_path
            ).communicate()
        rivals = [
            child(
                "print('ready', flush=True)\n"
                "go = float(input())\n"
                "while time.monotonic() < go: pass\n"
                "try: LedgerWriter('a', Path(sys.argv[1]))\n"
                "except AssistantError as error: print(error.code, flush=True); sys.exit()\n"
                "print('mine', flush=True)\n"
                "time.sleep(30)\n",
                tmp_path,
                stdin=subprocess.PIPE,
            )
            for _ in range(3)
        ]
        for rival in rivals:
            assert rival.stdout is not None
            assert rival.stdout.readline() == "ready\n"
        go = time.monotonic() + 0.05
        for rival in rivals:
            assert rival.stdin is not None
            rival.stdin.write(f"{go}\n")
            rival.stdin.flush()
        said = []
        for rival in rivals:
            assert rival.stdout is not None
            said.append(rival.stdout.readline().strip())
        owner = LedgerReader("a", tmp_path).read().writer_pid
        for rival in rivals:
            rival.kill()
            rival.communicate()
        assert sorted(said) == ["ledger-in-use", "ledger-in-use", "mine"]
        assert owner == rivals[said.index("mine")].pid


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_what_has_the_name_of_a_ledger_and_is_none_is_named_and_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to("/etc/hostname")
    with pytest.raises(AssistantError, match="in the way"):
        LedgerWriter("a", tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_what_only_looks_like_a_ledger_is_said_to_be_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotRunning):
        LedgerReader("pipe", tmp_path)
    writer = LedgerWriter("a", tmp_path)
    try:
        with (tmp_path / "a").open("r+b") as file:  # a later version's mode, with the right checksum
            body = bytearray(file.read())
            body[96] = 77
            body[28:32] = zlib.crc32(body[32:]).to_bytes(4, "little")
            file.seek(0)
            file.write(body)
        with pytest.raises(NotRunning, match="version"):
            LedgerReader("a", tmp_path).read()
    finally:
        writer.close()


def test_somebody_who_locks_what_was_left_behind_does_not_keep_us(tmp_path: Path) -> None:
    writer = child("w = LedgerWriter('a', Path(sys.argv[1])); print('on', flush=True); time.sleep(60)", tmp_path)
    assert writer.stdout is not None
    writer.stdout.readline()
    writer.kill()
    writer.communicate()
    with (tmp_path / "a").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        started = time.monotonic()
        with pytest.raises(AssistantError, match="in the way"):
            LedgerWriter("a", tmp_path)
        assert time.monotonic() - started < 3
    LedgerWriter("a", tmp_path).close()
