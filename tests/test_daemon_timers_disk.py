"""Timers on a disk that keeps its callers: the daemon goes on meanwhile, and nothing is promised too early."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from assistant.daemon_timers import Timers
from assistant.skills.state_file import StateFile

HANG_S = 0.3


class Card(StateFile):
    """A card that answers when it likes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.locks, self.takes = threading.Event(), threading.Event()
        self.locks.set()
        self.takes.set()

    def lock(self, *, wait: bool) -> int:
        self.locks.wait(10)
        return super().lock(wait=wait)

    def save(self, data: Any) -> None:
        self.takes.wait(10)
        super().save(data)


async def longest_gap(work: Awaitable[Any], seconds: float) -> tuple[float, asyncio.Future[Any]]:
    """For how long the event loop was kept at most, while `work` ran for so long."""
    task, longest, end = asyncio.ensure_future(work), 0.0, time.monotonic() + seconds
    while (before := time.monotonic()) < end:
        await asyncio.sleep(0.005)
        longest = max(longest, time.monotonic() - before)
    return longest, task


def with_card(tmp_path: Path, test: Callable[[Timers, Card], Awaitable[None]], disk_s: float = 5.0) -> Path:
    card = Card(tmp_path / "timers.json")

    async def run() -> None:
        timers = Timers(card.path, emit=lambda name, data: None, disk_s=disk_s, file=lambda _: card)
        try:
            await test(timers, card)
        finally:
            await timers.close()

    asyncio.run(run())
    return card.path


def names(path: Path) -> list[str]:
    return [row["name"] for row in json.loads(path.read_text())["timers"]]


def test_a_slow_write_keeps_nobody_waiting_but_who_was_promised_it(tmp_path: Path) -> None:
    async def test(timers: Timers, card: Card) -> None:
        await timers.open()
        card.takes.clear()
        gap, pasta = await longest_gap(timers.start("pasta", 600), HANG_S)
        assert gap < HANG_S / 2
        assert [timer.name for timer in timers.all()] == ["pasta"]  # `status` has it already
        tea = asyncio.ensure_future(timers.start("tea", 60))
        await asyncio.sleep(0.02)
        assert not pasta.done()
        assert not tea.done()
        assert not card.path.exists()
        card.takes.set()
        assert (await pasta).kept
        assert (await tea).kept
        assert sorted(names(card.path)) == ["pasta", "tea"]

    with_card(tmp_path, test)


def test_a_lock_that_hangs_keeps_nobody_waiting_and_is_ours_when_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(timers: Timers, card: Card) -> None:
        card.locks.clear()
        gap, opened = await longest_gap(timers.open(), HANG_S)
        assert gap < HANG_S / 2
        await opened
        gap, started = await longest_gap(timers.start("pasta", 600), HANG_S)
        assert gap < HANG_S / 2
        assert not (await started).kept
        card.locks.set()
        assert (await timers.start("tea", 60)).kept
        assert sorted(names(card.path)) == ["pasta", "tea"]

    with_card(tmp_path, test, disk_s=HANG_S / 3)
    assert "timers.json cannot be written: the disk did not answer within 0.1 s" in caplog.text


def test_a_write_that_hangs_is_waited_for_once(tmp_path: Path) -> None:
    async def test(timers: Timers, card: Card) -> None:
        await timers.open()
        card.takes.clear()
        begun = time.monotonic()
        assert not (await timers.start("pasta", 600)).kept
        assert time.monotonic() - begun >= 0.5
        begun = time.monotonic()
        for name in ("tea", "eggs"):
            assert not (await timers.start(name, 600)).kept
        assert time.monotonic() - begun < 0.5
        card.takes.set()
        async with asyncio.timeout(5):  # all are kept, though nobody asks for it
            while not card.path.exists() or sorted(names(card.path)) != ["eggs", "pasta", "tea"]:
                await asyncio.sleep(0.01)
        assert (await timers.start("rice", 600)).kept

    with_card(tmp_path, test, disk_s=0.5)


@pytest.mark.parametrize("rounds", [20])
def test_writes_keep_their_order(tmp_path: Path, rounds: int) -> None:
    async def test(timers: Timers, card: Card) -> None:
        await timers.open()
        kept = await asyncio.gather(*(timers.start(f"t{at}", 60 + at) for at in range(rounds)))
        assert all(one.kept for one in kept)
        await timers.cancel(*(one.timer.id for one in kept[1:]))
        assert names(card.path) == ["t0"]

    with_card(tmp_path, test)
