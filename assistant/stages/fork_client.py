"""The daemon's handle of the fork server: new worker processes, their end, and what they print."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess

from assistant.errors import StageError, StageStartTimeout
from assistant.stages import spawn

log = logging.getLogger(__name__)

_STOP_GRACE_S = 1.0


class ForkServer:
    """One per daemon. The first `fork` waits for the server's interpreter, not for all of its preloads."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._pids: asyncio.Queue[int] = asyncio.Queue()
        self._exits: dict[int, asyncio.Future[int]] = {}
        self._turn = asyncio.Lock()
        self.pid = 0

    def start(self) -> None:
        """Takes the process that was started early, or starts one; returns at once."""
        self._process, self._control = spawn.taken()
        self.pid = self._process.pid
        asyncio.get_running_loop().add_reader(self._control, self._read)

    async def fork(self, sock: socket.socket, log_fd: int, deadline_s: float) -> int:
        """The pid of a new worker that speaks on `sock` and prints to `log_fd`; the caller closes its copies.

        Raises `StageError` when the server has gone, `StageStartTimeout` when it does not answer.
        """
        async with self._turn:
            if self._control is None:
                raise StageError("the fork server is not running")
            try:
                socket.send_fds(self._control, [b"fork"], [sock.fileno(), log_fd])
                async with asyncio.timeout(deadline_s):
                    pid = await self._pids.get()
            except OSError as error:
                raise StageError(f"the fork server has gone: {error}") from None
            except TimeoutError:
                raise StageStartTimeout(f"no new process within {deadline_s:g} s") from None
        if pid < 0:
            raise StageError("the fork server ended; the kernel may have been out of memory")
        return pid

    def exit_of(self, pid: int) -> asyncio.Future[int]:
        """Resolves to the exit status (negative = signal) once the process is reaped."""
        return self._exits.setdefault(pid, asyncio.get_running_loop().create_future())

    def _read(self) -> None:
        assert self._control is not None
        while True:
            try:
                message = self._control.recv(64)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._lost()
                return
            kind, *numbers = message.decode("ascii").split()
            if kind == "pid":
                # a fresh future: the number may have belonged to a worker of long ago
                self._exits[int(numbers[0])] = asyncio.get_running_loop().create_future()
                self._pids.put_nowait(int(numbers[0]))
            else:
                self._exited(int(numbers[0]), int(numbers[1]))

    def _exited(self, pid: int, status: int) -> None:
        future = self.exit_of(pid)
        if not future.done():
            future.set_result(status)

    def _lost(self) -> None:
        """The kernel kills the workers of a server that has gone, so all of them count as killed."""
        self._disconnect()
        self._pids.put_nowait(-1)
        for pid in list(self._exits):
            self._exited(pid, -signal.SIGKILL)

    def _disconnect(self) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
            self._control = None

    async def close(self) -> None:
        """Ends the server and with it every worker that is left."""
        self._disconnect()
        process, self._process = self._process, None
        if process is None:
            return
        try:
            await asyncio.to_thread(process.wait, _STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)


class LogPipe:
    """What a worker prints goes to the log at debug level only: engines print what users say."""

    def __init__(self, fd: int, who: str) -> None:
        os.set_blocking(fd, False)
        self._fd, self._who = fd, who
        asyncio.get_running_loop().add_reader(fd, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        for line in data.decode("utf-8", "replace").splitlines():
            log.debug("%s %s", self._who, line)
        if not data:
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
