"""Programs that make other sound quieter: in order, not for long, and never an obstacle."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path

import pytest

from assistant.voice_duck import Ducker


def log_of(folder: Path) -> list[str]:
    return (folder / "log").read_text().split() if (folder / "log").exists() else []


@pytest.fixture
def ducker(tmp_path: Path) -> Ducker:
    return Ducker(
        ("sh", "-c", f"echo 'duck<' >>{tmp_path}/log; sleep 0.2; echo 'duck>' >>{tmp_path}/log"),
        ("sh", "-c", f"echo 'unduck' >>{tmp_path}/log"),
    )


def test_one_after_the_other_even_when_called_at_once(tmp_path: Path, ducker: Ducker) -> None:
    async def run() -> None:
        await asyncio.gather(ducker.duck(), ducker.unduck(), ducker.duck(), ducker.unduck())

    asyncio.run(run())
    assert log_of(tmp_path) == ["duck<", "duck>", "unduck"] * 2


def test_what_is_asked_for_twice_is_done_once(tmp_path: Path, ducker: Ducker) -> None:
    async def run() -> None:
        await ducker.unduck()
        await asyncio.gather(ducker.duck(), ducker.duck())
        await ducker.duck()
        await ducker.close()
        await ducker.close()

    asyncio.run(run())
    assert log_of(tmp_path) == ["duck<", "duck>", "unduck"]


def test_at_the_end_other_sound_is_as_it_was(tmp_path: Path, ducker: Ducker) -> None:
    """Also when whoever ducked was cancelled before the program had ended."""

    async def run() -> None:
        task = asyncio.create_task(ducker.duck())
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        await ducker.close()

    asyncio.run(run())
    assert log_of(tmp_path) == ["duck<", "duck>", "unduck"]


def test_one_that_hangs_is_killed_with_its_children_and_reaped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = f"trap '' TERM; sleep 60 & echo $$ $! > {tmp_path}/pids; wait"
    ducker = Ducker(("sh", "-c", script), ("sh", "-c", f"echo unduck >>{tmp_path}/log"), limit_s=0.3)

    async def run() -> float:
        started = time.monotonic()
        await ducker.duck()
        took = time.monotonic() - started
        await ducker.close()
        return took

    assert 0.3 <= asyncio.run(run()) < 1
    shell, child = map(int, (tmp_path / "pids").read_text().split())
    assert not Path(f"/proc/{shell}").exists()
    assert is_gone(child)
    assert log_of(tmp_path) == ["unduck"]
    assert "ran for 0.3 s and was killed" in caplog.text


def is_gone(pid: int) -> bool:
    """The grandchild is reaped by whoever is init, or waits for that."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def test_a_child_that_stays_behind_is_not_waited_for(tmp_path: Path) -> None:
    """It holds stderr open."""
    ducker = Ducker(("sh", "-c", f"sleep 1.5 & echo $! > {tmp_path}/pid"))
    started = time.monotonic()
    asyncio.run(ducker.duck())
    assert time.monotonic() - started < 1
    assert not is_gone_now(int((tmp_path / "pid").read_text()))


def is_gone_now(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_a_missing_program_is_one_warning(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    ducker = Ducker(("/no/such/program",), ("", "x"))

    async def run() -> None:
        for _ in range(3):
            await ducker.duck()
            await ducker.unduck()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    said = [one.getMessage() for one in caplog.records]
    assert len(said) == 2
    assert "audio.duck_command: /no/such/program cannot be run: No such file" in said[0]
    assert "audio.unduck_command" in said[1]


def test_a_program_that_fails_or_chatters_is_only_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    loud = ("sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x >&2; echo out; exit 3")
    with caplog.at_level(logging.DEBUG, "assistant.voice_duck"):
        asyncio.run(Ducker(loud).duck())
    (said,) = [one.getMessage() for one in caplog.records if one.name == "assistant.voice_duck"]
    assert "ended with 3: xxx" in said
    assert len(said) < 3000


def test_nothing_is_set_nothing_is_run() -> None:
    async def run() -> set[str]:
        ducker = Ducker()
        await ducker.duck()
        await ducker.unduck()
        await ducker.close()
        return set(os.listdir("/proc/self/fd"))

    before = set(os.listdir("/proc/self/fd"))
    assert len(asyncio.run(run())) <= len(before) + 4


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    async def run() -> tuple[int, int]:
        ducker = Ducker(("true",), ("/no/such/program",))
        await ducker.duck()
        await ducker.unduck()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            await ducker.duck()
            await ducker.unduck()
        return before, len(os.listdir("/proc/self/fd"))

    before, after = asyncio.run(run())
    assert after == before
