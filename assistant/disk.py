"""Work on disks that may not answer: a share of the network, a failing card, a stick that was pulled out.

A call that such a disk keeps returns when the disk answers, perhaps never, and nothing can end it. So it is made in a
thread that no exit waits for, and whoever wants its result waits for so long and no longer. Imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")

ANSWER_S = 8.0
"""Without a sign of life. A hard disk that slept needs most of it."""
_MOST_WRITES = 32
"""That wait for the disk; more are dropped."""

Alive = Callable[[], None]
"""To be called now and then by work that takes long: the disk does answer."""


class _Piece:
    """Work in a thread of its own."""

    def __init__(self, work: Callable[[Alive], Any], answer_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._work, self._answer_s = work, answer_s
        self._sign = time.monotonic()
        self._ended = False
        self.done: asyncio.Future[Callable[[], Any]] = self._loop.create_future()
        """Gives the result, or raises what the work has raised."""
        _started("disk", self._run)

    def _run(self) -> None:
        try:
            result = self._work(self._alive)
            give = lambda: result  # noqa: E731
        except BaseException as error:  # noqa: BLE001 - handed to the caller, whatever it is
            give = functools.partial(_raise, error)
        self._ended = True
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            self._loop.call_soon_threadsafe(self._settle, give)

    def _settle(self, give: Callable[[], Any]) -> None:
        if not self.done.done():
            self.done.set_result(give)

    def _alive(self) -> None:
        self._sign = time.monotonic()

    async def over(self) -> None:
        """Raises `TimeoutError` when there is no sign of life, at once when there has been none for long."""
        while not self.done.done():
            left = self._sign + self._answer_s - time.monotonic()
            if left <= 0 and not self._ended:
                raise TimeoutError(f"the disk has not answered for {self._answer_s:g} s")
            await asyncio.wait([self.done], timeout=max(left, 0.01))


class Disk:
    """One piece of work of each kind at a time: a disk that keeps one of them gets no more threads, and whoever comes
    while it does is told at once. Other kinds go on."""

    def __init__(self, answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._running: dict[str, _Piece] = {}

    async def ask(self, kind: str, work: Callable[[Alive], T]) -> T:
        """What `work` returns, or raises. Raises `TimeoutError` when the disk does not answer, `BlockingIOError` when
        there may be no more threads; a caller that is cancelled leaves at once. The thread then stays until the disk
        answers, or the process ends."""
        while (before := self._running.get(kind)) is not None and not before.done.done():
            await before.over()
        piece = self._running[kind] = _Piece(work, self._answer_s)
        piece.done.add_done_callback(lambda _: self._forget(kind, piece))
        await piece.over()
        result: T = piece.done.result()()
        return result

    def _forget(self, kind: str, piece: _Piece) -> None:
        """The loop calls this a step after the end: there may be another piece by then."""
        if self._running.get(kind) is piece:
            del self._running[kind]


def answered(work: Callable[[Alive], T], answer_s: float = ANSWER_S) -> T:
    """The same for whoever has no event loop: what `work` returns, or raises. Raises `TimeoutError`."""
    return asyncio.run(Disk(answer_s).ask("", work))


class Writes:
    """Writes in order, in one thread; `writes(work)` returns at once. `close` before the end, or the last ones may be
    missing. What `work` raises is its own mistake: it is logged."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(_MOST_WRITES)
        self._thread: threading.Thread | None = None

    def __call__(self, work: Callable[[], None]) -> None:
        try:
            if self._thread is None:
                self._thread = _started("writes", self._run)
            self._queue.put_nowait(work)
        except queue.Full:
            log.warning("the disk is too slow: something is not written")
        except BlockingIOError as error:
            log.warning("not written: %s", error)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except OSError as error:
                log.warning("not written: %s", error)
            except Exception:  # or nothing that comes after it would be written
                log.exception("not written")

    async def close(self, patience_s: float = 1.0) -> None:
        """Gives what waits so much time."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with contextlib.suppress(queue.Full, OSError):
            self._queue.put_nowait(None)
            await Disk(patience_s).ask("end", lambda alive: thread.join())


def _started(name: str, run: Callable[[], None]) -> threading.Thread:
    """Raises `BlockingIOError` when the kernel gives no more threads."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        limits = "the limit of the service (TasksMax) or of the user (ulimit -u) is reached"
        raise BlockingIOError(errno.EAGAIN, f"{error}: {limits}") from None
    return thread


def _raise(error: BaseException) -> Any:
    raise error
