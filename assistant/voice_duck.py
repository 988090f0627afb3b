"""Makes other sound quieter while the assistant listens and speaks, by programs of the user's. Imports nothing of ours.

A program runs without a shell, for `LIMIT_S` at most; then it is killed. It is not ours, so nothing that it does or
fails to do stops a query: that is in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Sequence
from typing import Self

log = logging.getLogger(__name__)

LIMIT_S = 2.0
CLOSING_S = 0.5
"""The same at the end of the daemon."""
_MOST_STDERR = 2_000
"""Bytes of it that are kept for the log."""


class Ducker:
    """One `duck` for each `unduck`: what is asked for twice is done once. They run in the order in which they were
    asked for, also when the caller is cancelled meanwhile. Nothing is done for a program that is not set."""

    def __init__(self, duck: Sequence[str] = (), unduck: Sequence[str] = (), *, limit_s: float = LIMIT_S) -> None:
        """Each a program and its arguments."""
        self._programs = {"duck": tuple(duck), "unduck": tuple(unduck)}
        self._limit_s = limit_s
        self._wanted = False
        self._last: asyncio.Task[None] | None = None
        self._missing: set[str] = set()
        self._hurry = asyncio.Event()

    async def duck(self) -> None:
        """Returns when the program has ended; never raises but when the caller is cancelled, which does not end it."""
        if not self._wanted:
            self._wanted = True
            self._last = asyncio.create_task(self._run("duck", self._last))
        await self._done()

    async def unduck(self) -> None:
        """As `duck`, after it."""
        if self._wanted:
            self._wanted = False
            self._last = asyncio.create_task(self._run("unduck", self._last))
        await self._done()

    async def close(self) -> None:
        """Other sound is as it was; at the end of the daemon, which waits for no program any more."""
        self._limit_s = min(self._limit_s, CLOSING_S)
        self._hurry.set()
        await self.unduck()

    async def _done(self) -> None:
        if self._last is not None:
            await asyncio.shield(self._last)

    async def _run(self, what: str, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        program = self._programs[what]
        if not program:
            return
        try:
            with _Stderr() as stderr:
                process = await asyncio.create_subprocess_exec(
                    *program,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=stderr.inner,
                    start_new_session=True,  # so that it can be killed with its children
                )
                await self._ended(what, process)
                said = stderr.said_so_far()
        except (OSError, ValueError) as error:
            self._not_run(what, error)
        else:
            log.debug("audio.%s_command: %s ended with %s: %s", what, program[0], process.returncode, said)

    async def _ended(self, what: str, process: asyncio.subprocess.Process) -> None:
        try:
            await self._in_time(process)
        except TimeoutError:
            program = self._programs[what][0]
            log.warning("audio.%s_command: %s ran for %g s and was killed", what, program, self._limit_s)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    async def _in_time(self, process: asyncio.subprocess.Process) -> None:
        """Raises `TimeoutError`; the time that is left becomes shorter when the daemon ends."""
        ended, hurry = asyncio.create_task(process.wait()), asyncio.create_task(self._hurry.wait())
        try:
            await asyncio.wait([ended, hurry], timeout=self._limit_s, return_when=asyncio.FIRST_COMPLETED)
            if self._hurry.is_set():
                await asyncio.wait([ended], timeout=CLOSING_S)
            if not ended.done():
                raise TimeoutError
        finally:
            hurry.cancel()
            ended.cancel()

    def _not_run(self, what: str, error: OSError | ValueError) -> None:
        """A warning the first time, since it will be the same at every query."""
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        level = logging.DEBUG if what in self._missing else logging.WARNING
        self._missing.add(what)
        log.log(level, "audio.%s_command: %s cannot be run: %s", what, self._programs[what][0], reason)


class _Stderr:
    """A pipe of our own. asyncio's would keep `wait` waiting until the last of a program's children closes it."""

    def __enter__(self) -> Self:
        self._outer, self.inner = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.inner, True)
        self._said = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._outer, self._read)
        return self

    def __exit__(self, *raised: object) -> None:
        self._loop.remove_reader(self._outer)
        os.close(self._outer)
        os.close(self.inner)

    def _read(self) -> bool:
        """All of it is read, so that nobody waits for a full pipe; the beginning is kept."""
        try:
            piece = os.read(self._outer, 65_536)
        except BlockingIOError:
            return False
        self._said = (self._said + piece)[:_MOST_STDERR]
        return bool(piece)

    def said_so_far(self) -> str:
        for _ in range(16):
            if not self._read():
                break
        return self._said.decode("utf-8", "replace").strip() or "no words"
