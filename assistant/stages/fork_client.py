"""The daemon's handle of the fork server: new worker processes, their end, and what they print."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from assistant.errors import StageError, StageStartTimeout
from assistant.stages import spawn

log = logging.getLogger(__name__)

_STOP_GRACE_S = 1.0
WORKER = "assistant.stages.worker"


@dataclass(frozen=True, slots=True)
class Forked:
    pid: int
    exit: asyncio.Future[int]
    """Resolves to the exit status (negative = signal) once the process is reaped."""


class ForkServer:
    """One per daemon. The first `fork` waits for the server's interpreter, not for all of its preloads.

    A server that has died (its workers die with it) is started again by the next `fork`.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._requests: dict[int, asyncio.Future[Forked]] = {}
        self._exits: dict[int, asyncio.Future[int]] = {}
        self._count = 0
        self._closed = False
        self._starting = asyncio.Lock()
        self.pid = 0

    def start(self) -> None:
        """Takes the process that was started early, or starts one; returns at once."""
        self._process, self._control = spawn.taken()
        self.pid = self._process.pid
        asyncio.get_running_loop().add_reader(self._control, self._read, self._control)

    @property
    def forking(self) -> bool:
        """Whether somebody waits for a process that may be there already."""
        return bool(self._requests)

    async def fork(self, sock: socket.socket, log_fd: int, deadline_s: float, main: str = WORKER) -> Forked:
        """A new process that speaks on `sock` and prints to `log_fd`; the caller closes its copies. `main`: the module
        whose `main(sock)` it runs.

        Raises `StageError` when there is no process to be had, `StageStartTimeout` when the server does not answer.
        """
        async with self._starting:  # of two who find it gone, one starts another
            if self._control is None:
                if self._closed:
                    raise StageError("the fork server was closed")
                log.warning("the fork server has gone; starting another")
                await self._reap()
                self.start()
        assert self._control is not None
        self._count += 1
        request, answer = self._count, asyncio.get_running_loop().create_future()
        self._requests[request] = answer
        try:
            socket.send_fds(self._control, [f"fork {request} {main}".encode()], [sock.fileno(), log_fd])
            async with asyncio.timeout(deadline_s):
                forked: Forked = await answer
                return forked
        except TimeoutError:  # an OSError itself, so it comes first
            self.kill()  # the next one finds a fresh server
            raise StageStartTimeout(
                f"the fork server gave no new process within {deadline_s:g} s (start_timeout_s of the stage)"
            ) from None
        except OSError as error:
            raise StageError(f"the fork server does not listen: {error}") from None
        finally:
            # an answer that comes later finds nobody, and its process is killed
            self._requests.pop(request, None)

    def _read(self, control: socket.socket) -> None:
        while True:
            try:
                message = control.recv(64)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._lost()
                return
            kind, *numbers = message.decode("ascii").split()
            self._heard(kind, *map(int, numbers))

    def _heard(self, kind: str, first: int, second: int) -> None:
        if kind == "exit":
            exited = self._exits.pop(first, None)
            if exited is not None:
                exited.set_result(second)
            return
        answer = self._requests.get(first)
        waiting = answer is not None and not answer.done()
        if kind == "pid":
            exit_future = self._exits[second] = asyncio.get_running_loop().create_future()
            if waiting:
                assert answer is not None
                answer.set_result(Forked(second, exit_future))
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(second, signal.SIGKILL)
        elif waiting:
            assert answer is not None
            answer.set_exception(StageError(f"no new process: {os.strerror(second)}"))

    def _lost(self) -> None:
        """The kernel kills the workers of a server that has gone, so all of them count as killed."""
        self._disconnect()
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(StageError("the fork server ended; the kernel may have been out of memory"))
        exits, self._exits = self._exits, {}
        for exited in exits.values():
            exited.set_result(-signal.SIGKILL)

    def kill(self) -> None:
        """For a server that does not answer. All of its workers go with it, and their exits are known at once."""
        if self._process is not None:
            self._process.kill()
        if self._control is not None:
            self._lost()

    def end(self) -> None:
        """As `kill`, and no other one is started."""
        self._closed = True
        self.kill()

    def _disconnect(self) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
            self._control = None

    async def close(self) -> None:
        """Ends the server and with it every worker that is left."""
        self._closed = True
        self._disconnect()
        await self._reap()

    async def _reap(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            await asyncio.to_thread(process.wait, _STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)


class LogPipe:
    """What a process prints goes to the log; that of a worker at debug level only: engines print what users say."""

    def __init__(self, fd: int, who: str, level_of: Callable[[str], int] = lambda text: logging.DEBUG) -> None:
        """`level_of`: by what was printed at once."""
        os.set_blocking(fd, False)
        self._fd, self._who, self._level_of = fd, who, level_of
        asyncio.get_running_loop().add_reader(fd, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        text = data.decode("utf-8", "replace")
        level = self._level_of(text)
        for line in text.splitlines():
            log.log(level, "%s %s", self._who, line)
        if not data:
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
