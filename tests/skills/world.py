"""What skills are given in tests: clocks that the test sets, and a speaker that notes its level."""

from __future__ import annotations

from assistant.messages_timers import TimerStatus
from assistant.skills.context import Kept
from assistant.skills.timer_book import Clocks, TimerBook


class Time:
    """Both clocks of a machine; `sleep` moves both, `set_wall` one, `reboot` is off for a while."""

    def __init__(self) -> None:
        self.boot, self.wall, self.id = 1000.0, 1_800_000_000.0, "boot-1"

    @property
    def clocks(self) -> Clocks:
        return Clocks(boot=lambda: self.boot, wall=lambda: self.wall, boot_id=lambda: self.id)

    def sleep(self, seconds: float) -> None:
        self.boot += seconds
        self.wall += seconds

    def reboot(self, off_s: float) -> None:
        self.boot, self.wall, self.id = 5.0, self.wall + off_s, self.id + "'"


class Book:
    """A real book behind the protocol that skills know; `kept` says whether its disk takes anything."""

    def __init__(self, time: Time | None = None, *, kept: bool = True) -> None:
        self.time = time or Time()
        self.book = TimerBook(self.time.clocks)
        self.kept = kept

    def all(self) -> tuple[TimerStatus, ...]:
        return self.book.all()

    async def start(self, name: str, seconds: float) -> Kept:
        return Kept(self.book.start(name, seconds), self.kept)

    async def add(self, id: str, seconds: float) -> Kept:
        return Kept(self.book.add(id, seconds), self.kept)

    async def pause(self, id: str) -> Kept:
        return Kept(self.book.pause(id), self.kept)

    async def resume(self, id: str) -> Kept:
        return Kept(self.book.resume(id), self.kept)

    async def cancel(self, *ids: str) -> tuple[TimerStatus, ...]:
        there = {timer.id for timer in self.book.all()}
        return tuple(self.book.remove(id) for id in ids if id in there)


class Loud:
    """A `Speaker`."""

    def __init__(self, percent: float = 50) -> None:
        self.percent = percent
        self._before: float | None = None

    @property
    def muted(self) -> bool:
        return self._before is not None

    def set(self, percent: float) -> None:
        self.percent, self._before = percent, None

    def mute(self) -> None:
        if self._before is None:
            self.percent, self._before = 0.0, self.percent

    def unmute(self) -> float:
        if self._before is not None:
            self.set(self._before)
        return self.percent
