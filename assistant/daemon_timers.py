"""The timers of a daemon: the book, its file, the moment at which one ends, and who rings.

Satisfies `skills.Timers` and what the sockets ask for. Everything is on the disk before the user is told that it is
set; a disk that takes nothing costs no timer, only its survival.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from assistant.errors import UsageError
from assistant.messages import Emit
from assistant.messages_timers import TimerChange, TimerStatus
from assistant.skills import Kept
from assistant.skills.state_file import StateFile
from assistant.skills.timer_book import Clocks, TimerBook
from assistant.skills.timer_choice import finished
from assistant.tasks import in_own_thread
from assistant.voice_ring import Ring

log = logging.getLogger(__name__)

TICK_S = 1.0
"""The longest sleep while a timer runs: the event loop's clock stands still while the machine sleeps."""
DISK_S = 3.0
_GLANCE_S = 0.1
"""For a disk that has kept somebody already."""
RETRY_TICKS = 30
"""After the disk took nothing."""


class Bell(Protocol):
    """Whoever can ring."""

    def ring(self, id: str, ring: Ring) -> None: ...
    def unring(self, id: str) -> None: ...


class Timers:
    def __init__(
        self,
        path: Path,
        *,
        emit: Emit,
        bell: Callable[[], Bell | None] = lambda: None,
        clocks: Clocks | None = None,
        tick_s: float = TICK_S,
        disk_s: float = DISK_S,
        file: Callable[[Path], StateFile] = StateFile,
    ) -> None:
        """`bell`: None = there is no speaker; then the event is all. `clocks`, `tick_s`, `disk_s`, `file`: seams."""
        self._tick_s, self._disk_s, self._retry_at = tick_s, disk_s, 0.0
        self._file, self._emit, self._bell = file(path), emit, bell
        self._book = TimerBook(clocks or Clocks())
        self._lock_fd, self._elsewhere = -1, False
        self._locking: asyncio.Task[None] | None = None
        self._version = self._saved = 0
        self._writing = asyncio.Lock()
        self._writes: set[asyncio.Task[None]] = set()
        self._late: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    # --- a daemon's life ----------------------------------------------------------------------------------------------
    async def open(self) -> None:
        """What an earlier daemon left goes on; what has ended meanwhile rings a moment later, when programs that wait
        for a daemon have heard of this one."""
        try:
            await self._lock()
        except OSError as error:
            log.error("%s cannot be written: %s; timers will not survive a restart", self._file.path, self._why(error))
        try:
            if not self._elsewhere:  # what a disk gives that takes nothing any more, is still there
                async with asyncio.timeout(self._disk_s):
                    data = await in_own_thread(functools.partial(self._file.load, self._checked))
                if data is not None:
                    self._book.restore(data)
        except OSError as error:
            log.error(
                "%s cannot be read: %s; timers that were set before are not there", self._file.path, self._why(error)
            )
        self._watch = asyncio.create_task(self._follow())

    def _checked(self, data: Any) -> Any:
        """In a thread that may be late, so it leaves our book alone. Raises `ValueError`."""
        TimerBook(self._book.clocks).restore(data)
        return data

    @property
    def _mine(self) -> bool:
        """Whether the file is ours to write: no other daemon has it."""
        return self._lock_fd >= 0

    async def _lock(self) -> None:
        """Until it is closed. A disk that is late may give it to us later. Raises `OSError` (a time-out is one)."""
        if self._locking is None or self._locking.done():
            self._locking = asyncio.create_task(self._locked())
            self._locking.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # looked at
        await self._in_time(self._locking)

    async def _locked(self) -> None:
        try:
            self._lock_fd = await in_own_thread(functools.partial(self._file.lock, wait=False))
        except BlockingIOError:
            self._elsewhere = True
            log.warning("another daemon keeps its timers in %s; those of this one end with it", self._file.path)

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            if self._mine and (self._saved < self._version or self._writes):
                await self._keep()
        if self._locking is not None:
            self._locking.cancel()
        if self._mine:
            os.close(self._lock_fd)
            self._lock_fd = -1

    # --- for skills -----------------------------------------------------------------------------------------------
    def all(self) -> tuple[TimerStatus, ...]:
        return self._book.all()

    async def start(self, name: str, seconds: float) -> Kept:
        return await self._told("timer-started", self._book.start(name, seconds))

    async def add(self, id: str, seconds: float) -> Kept:
        timer = self._book.add(id, seconds)
        self._unring(id)
        return await self._told("timer-updated", timer)

    async def pause(self, id: str) -> Kept:
        return await self._told("timer-updated", self._book.pause(id))

    async def resume(self, id: str) -> Kept:
        return await self._told("timer-updated", self._book.resume(id))

    async def cancel(self, *ids: str) -> tuple[TimerStatus, ...]:
        """Those that were there."""
        there = {timer.id for timer in self._book.all()}
        gone = tuple(self._cancelled(id) for id in ids if id in there)
        if gone:
            await self._keep()
        return gone

    # --- for the sockets ------------------------------------------------------------------------------------------
    def act(self, action: TimerChange, id: str) -> None:
        """At once; the disk follows. Raises `UsageError` code "timer-unknown", "timer-ended"."""
        try:
            if action != "cancel" and self._book.get(id).state == "ringing":
                raise UsageError(
                    f"timer {id} has ended; 'assistant timers cancel {id}' silences it", code="timer-ended"
                )
            if action == "cancel":
                self._cancelled(id)
            else:
                timer = self._book.pause(id) if action == "pause" else self._book.resume(id)
                self._tell("timer-updated", timer)
        except KeyError:
            raise UsageError(
                f"there is no timer {id[:64]!a}; 'assistant timers' lists them", code="timer-unknown"
            ) from None
        self._write()

    # --- in between -------------------------------------------------------------------------------------------------
    def _cancelled(self, id: str) -> TimerStatus:
        """Raises `KeyError`."""
        timer = self._book.remove(id)
        self._unring(id)
        self._tell("timer-cancelled", timer)
        return timer

    async def _told(self, event: str, timer: TimerStatus) -> Kept:
        self._tell(event, timer)
        return Kept(timer, await self._keep())

    def _tell(self, event: str, timer: TimerStatus) -> None:
        self._emit(event, {name: getattr(timer, name) for name in TimerStatus.__struct_fields__})
        self._version += 1
        self._changed.set()

    async def _follow(self) -> None:
        if self._book.all():
            await asyncio.sleep(self._tick_s)
        for timer in self._book.all():
            if timer.state == "ringing":  # when the daemon before ended
                self._finish(timer)
        while True:
            for timer in self._book.due():
                self._finish(timer)
            unsaved = self._mine and (self._saved < self._version or self._book.wall_moved())
            if unsaved and not self._writes and time.monotonic() >= self._retry_at:
                self._write()
            self._changed.clear()
            left_s = self._book.next_s()
            wait_s = self._tick_s if unsaved else None
            if left_s is not None:
                wait_s = min(self._tick_s, left_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()

    def _finish(self, timer: TimerStatus) -> None:
        self._tell("timer-finished", timer)
        bell = self._bell()
        if bell is None:
            log.warning("timer %s has ended, and there is no speaker to ring at", timer.id)
            self._over(timer.id)
            return
        bell.ring(timer.id, Ring(functools.partial(self._words, timer), functools.partial(self._over, timer.id)))

    def _words(self, timer: TimerStatus) -> str:
        with contextlib.suppress(KeyError):
            timer = self._book.get(timer.id)
        return finished(timer)

    def _over(self, id: str) -> None:
        """It has rung."""
        with contextlib.suppress(KeyError):
            if self._book.get(id).state == "ringing":
                self._book.remove(id)
                self._version += 1
                self._changed.set()

    def _unring(self, id: str) -> None:
        if (bell := self._bell()) is not None:
            bell.unring(id)

    # --- the disk -------------------------------------------------------------------------------------------------
    async def _keep(self) -> bool:
        """Whether all that was changed so far is on the disk. While that keeps something, nobody waits for it again;
        once it answers, `_follow` writes all."""
        if self._late is not None and not self._late.done():  # somebody has waited in vain, and it goes on
            await asyncio.wait([self._late], timeout=_GLANCE_S)
            if not self._late.done():
                return False
        if not self._mine and not self._elsewhere:
            with contextlib.suppress(OSError):  # the disk may take something again
                await self._lock()
        if not self._mine:
            return False
        wanted = self._version
        try:
            await self._in_time(self._write())
        except OSError as error:  # a time-out is one
            log.error("%s cannot be written: %s; timers will not survive a restart", self._file.path, self._why(error))
        return self._saved >= wanted

    async def _in_time(self, work: asyncio.Task[None]) -> None:
        """Raises `TimeoutError`, and what the work raises. It goes on."""
        try:
            async with asyncio.timeout(self._disk_s):
                await asyncio.shield(work)
        except TimeoutError:
            self._late = work
            raise

    def _write(self) -> asyncio.Task[None]:
        """Goes on when nobody waits for it any more; one after the other."""
        task = asyncio.create_task(self._written())
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # looked at
        return task

    def _why(self, error: OSError) -> str:
        return str(error) or f"the disk did not answer within {self._disk_s:g} s"  # a time-out has no words

    async def _written(self) -> None:
        wanted = self._version
        async with self._writing:
            if self._mine and (self._saved < wanted or self._book.wall_moved()):
                version, data = self._version, self._book.dump()
                self._retry_at = time.monotonic() + RETRY_TICKS * self._tick_s  # unless it succeeds
                await in_own_thread(functools.partial(self._file.save, data))
                self._saved, self._retry_at = version, 0.0
