"""Disks that do not answer, with pipes in their place: opening one waits until somebody writes to it."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.disk import Alive, Disk, Writes, answered


class Silent:
    """A file whose disk answers when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "silent"
        os.mkfifo(self.path)

    def read(self, alive: Alive) -> str:
        return self.path.read_text()

    def answers(self, text: str) -> None:
        self.path.write_text(text)


def test_one_that_does_not_answer_keeps_nobody_longer_than_so_long_and_nobody_twice(tmp_path: Path) -> None:
    async def test() -> None:
        silent, disk = Silent(tmp_path), Disk(0.1)
        threads: list[int] = []
        with pytest.raises(TimeoutError, match=r"not answered for 0\.1 s"):
            await disk.ask("llm", silent.read)
        begun = time.monotonic()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await disk.ask("llm", lambda alive: threads.append(1))
        assert await disk.ask("tts", lambda alive: 7) == 7
        assert time.monotonic() - begun < 0.1
        silent.answers("back")
        await asyncio.sleep(0.05)
        assert await disk.ask("llm", lambda alive: 8) == 8
        assert not threads

    asyncio.run(test())


def test_who_comes_meanwhile_waits_and_then_looks_for_himself(tmp_path: Path) -> None:
    def number(n: int, alive: Alive) -> int:
        return n

    async def test() -> None:
        silent, disk = Silent(tmp_path), Disk(5)
        first = asyncio.create_task(disk.ask("llm", silent.read))
        others = [asyncio.create_task(disk.ask("llm", functools.partial(number, n))) for n in range(3)]
        await asyncio.sleep(0.02)
        first.cancel()  # the thread goes on
        await asyncio.sleep(0.02)
        assert first.cancelled()
        assert not any(other.done() for other in others)
        silent.answers("late")
        assert await asyncio.gather(*others) == [0, 1, 2]

    asyncio.run(test())


def test_who_comes_in_the_moment_in_which_it_ends_keeps_nobody_either() -> None:
    """The loop hears of the end, and tells those who wait a step later: whoever asks in between must not wait for it
    without a step of his own."""

    async def asks(disk: Disk, times: int) -> int:
        found = 0
        for _ in range(times):
            await asyncio.sleep(0)
            found += await disk.ask("llm", lambda alive: 1)
        return found

    async def test() -> None:
        disk, ended = Disk(5), asyncio.Event()

        async def ticks() -> None:
            while not ended.is_set():
                await disk.ask("llm", lambda alive: 1)
                await asyncio.sleep(0)

        ticking = asyncio.create_task(ticks())
        assert await asyncio.gather(*(asks(disk, 30) for _ in range(20))) == [30] * 20
        ended.set()
        await ticking

    asyncio.run(test())


def test_work_that_shows_signs_of_life_may_take_longer() -> None:
    def long(alive: Alive) -> str:
        for _ in range(8):
            time.sleep(0.05)
            alive()
        return "read"

    assert asyncio.run(Disk(0.2).ask("llm", long)) == "read"


def test_without_an_event_loop_one_waits_no_longer_either(tmp_path: Path) -> None:
    silent, begun = Silent(tmp_path), time.monotonic()
    with pytest.raises(TimeoutError, match=r"not answered for 0\.1 s"):
        answered(silent.read, 0.1)
    assert time.monotonic() - begun < 1
    silent.answers("")

    def long(alive: Alive) -> str:
        for _ in range(4):
            time.sleep(0.05)
            alive()
        return "read"

    assert answered(long, 0.15) == "read"
    with pytest.raises(FileNotFoundError):
        answered(lambda alive: (tmp_path / "none").read_text())


@pytest.fixture
def no_threads() -> Iterator[None]:
    """The kernel has no room for another thread."""
    before = threading.stack_size(1 << 46)
    yield
    threading.stack_size(before)


@pytest.mark.usefixtures("no_threads")
def test_where_no_thread_can_be_started_that_is_said_and_nothing_stays(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        disk, writes = Disk(5), Writes()
        with pytest.raises(BlockingIOError, match="TasksMax"):
            await disk.ask("llm", lambda alive: 1)
        writes(lambda: None)
        await writes.close()
        threading.stack_size(0)
        assert await disk.ask("llm", lambda alive: 1) == 1
        writes(lambda: None)
        await writes.close()

    asyncio.run(test())
    assert caplog.text.count("not written: ") == 1


def test_what_the_work_raises_is_raised() -> None:
    def fails(alive: Alive) -> None:
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError, match="gone"):
        asyncio.run(Disk().ask("llm", fails))


def test_no_process_waits_for_a_disk_at_its_end(tmp_path: Path) -> None:
    silent = Silent(tmp_path)
    script = f"""
import asyncio, pathlib
from assistant.disk import Disk, Writes
async def main():
    writes = Writes()
    writes(lambda: pathlib.Path({str(silent.path)!r}).write_text("x"))
    task = asyncio.create_task(Disk(0.1).ask("llm", lambda alive: pathlib.Path({str(tmp_path)!r}, "no").read_text()))
    try:
        await task
    except OSError:
        print("no file")
    try:
        await Disk(0.1).ask("llm", lambda alive: open(pathlib.Path({str(tmp_path)!r}, "silent2")).read())
    except TimeoutError:
        print("silent")
    await writes.close(0.1)
asyncio.run(main())
"""
    os.mkfifo(tmp_path / "silent2")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=5, check=True)
    assert done.stdout.split("\n")[:2] == ["no file", "silent"]


def test_writes_come_in_order_and_are_there_at_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> list[int]:
        done: list[int] = []
        writes = Writes()
        for number in range(5):
            writes(functools.partial(done.append, number))
        writes(lambda: (tmp_path / "none" / "folder").mkdir())
        writes(lambda: done.remove(9))
        writes(lambda: done.append(5))
        await writes.close()
        return done

    assert asyncio.run(test()) == [0, 1, 2, 3, 4, 5]
    assert "not written" in caplog.text
    assert "ValueError" in caplog.text


def test_writes_that_a_disk_does_not_take_keep_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        silent, writes = Silent(tmp_path), Writes()
        begun = time.monotonic()
        for _ in range(40):
            writes(lambda: silent.path.open("w").close())
        await writes.close(0.1)
        assert time.monotonic() - begun < 1
        assert "too slow" in caplog.text

    asyncio.run(test())
