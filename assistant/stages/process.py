"""The daemon's handle of one worker process: prepare, load, run, cancel, stop. Knows no policy and no memory.

A worker that ends fails everything that waits for it at once. One request at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import AsyncGenerator, AsyncIterator

from assistant.errors import StageDied, StageError, StageHung, StageStartTimeout
from assistant.machine import process_start
from assistant.messages import Stage, StageOutput, StageRequest
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.channel import (
    Cancel,
    Done,
    Failure,
    FromWorker,
    Load,
    Output,
    Prepare,
    Prepared,
    Ready,
    Run,
    Splitter,
    Stop,
    ToWorker,
    Waiting,
    decode_from_worker,
    encode,
)
from assistant.stages.feeding import Feeding
from assistant.stages.fork_client import ForkServer, LogPipe
from assistant.stages.lifecycle import Rung, WorkerState, death
from assistant.stages.placement import ANYWHERE, Placement
from assistant.tasks import uninterrupted

log = logging.getLogger(__name__)

_CANCEL_GRACE_S = 2.0
"""A worker that has not left its request by then is stopped by the ladder."""
_STOP_GRACE_S = 1.0
"""Each rung of the ladder."""
_KILL_GRACE_S = 5.0
"""Beyond the last one, for a kernel that takes back gigabytes on a machine that swaps."""
_FORK_S = 10.0
"""A fork takes milliseconds, and the interpreter of the fork server some seconds on a slow board."""
_EXIT_S = 1.0
"""From the end of a worker's socket to the word of its end."""


class Worker:
    """One worker process. `prepare`, `load`, then any number of `run`s; `stop` at the end, always."""

    def __init__(self, stage: Stage, server: ForkServer) -> None:
        self.stage = stage
        self.state = WorkerState.STOPPED
        self.pid = 0
        self._server = server
        self._sock: socket.socket | None = None
        self._frames: asyncio.Queue[FromWorker | None] = asyncio.Queue()
        self._receiver: asyncio.Task[None] | None = None
        self._log: LogPipe | None = None
        self._exit: asyncio.Future[int] | None = None
        self._request = 0
        self._feeding: Feeding | None = None
        self._killed_for = ""

    @property
    def alive(self) -> bool:
        return self._exit is not None and not self._exit.done()

    async def prepare(self, engine: str, deadline_s: float, placement: Placement = ANYWHERE) -> float:
        """Forks the process, puts it in its place, imports the engine; returns the import time in ms."""
        self.state = WorkerState.STARTING
        ours, theirs = socket.socketpair()
        log_read, log_write = os.pipe2(os.O_CLOEXEC)
        try:
            with theirs:
                forked = await self._server.fork(theirs, log_write, min(deadline_s, _FORK_S))
        except BaseException as error:
            if isinstance(error, StageError):
                error.stage = self.stage.value
            ours.close()
            os.close(log_read)
            self.state = WorkerState.FAILED
            raise
        finally:
            os.close(log_write)
        ours.setblocking(False)
        self._sock = ours
        self.pid, self._exit = forked.pid, forked.exit
        self._log = LogPipe(log_read, f"{self.stage}[{self.pid}]")
        self._receiver = asyncio.create_task(self._receive(ours))
        prepare = Prepare(stage=self.stage.value, engine=engine, placement=placement)
        prepared = await self._starting(deadline_s, prepare, Prepared)
        assert isinstance(prepared, Prepared)
        return prepared.import_ms

    async def load(self, config: EngineConfig, deadline_s: float) -> tuple[EngineInfo, float]:
        """Loads the weights; returns what the engine says of itself and the load time in ms."""
        ready = await self._starting(deadline_s, Load(config=config), Ready)
        assert isinstance(ready, Ready)
        self.state = WorkerState.READY
        return ready.info, ready.load_ms

    async def _starting(self, deadline_s: float, order: ToWorker, wanted: type[FromWorker]) -> FromWorker:
        try:
            async with asyncio.timeout(deadline_s):
                await self._send(order)
                frame = await self._next()
        except TimeoutError:
            await self._give_up()
            raise StageStartTimeout(
                f"{self.stage} was not ready within {deadline_s:g} s; "
                f"raise stages.{self.stage}.start_timeout_s if the machine is that slow",
                stage=self.stage.value,
            ) from None
        except BaseException:
            self.state = WorkerState.FAILED
            raise
        if isinstance(frame, wanted):
            return frame
        self.state = WorkerState.FAILED
        if isinstance(frame, Failure):
            raise frame.to_error(self.stage.value)
        raise StageError(f"unexpected {type(frame).__name__} from the worker", stage=self.stage.value)

    async def run(
        self, request: StageRequest, step_timeout_s: float, more: AsyncIterator[bytes] | None = None
    ) -> AsyncGenerator[StageOutput]:
        """Streams the results of one request. Leaving early, or a cancelled task, cancels it in the worker.

        `more`: the sound of a live request, as it comes. Raises what the engine or `more` raised, `StageDied`, or
        `StageHung` after `step_timeout_s` without progress though there was something to do.
        """
        if self.state is not WorkerState.READY:
            raise StageError(f"{self.stage} is {self.state.value}, not ready", stage=self.stage.value)
        self.state = WorkerState.BUSY
        self._request += 1
        finished = False
        order: ToWorker | None = Run(id=self._request, request=request)
        feeding = self._feeding = Feeding(self.stage.value, self._request, more, self._send, step_timeout_s)
        try:
            while True:
                frame = await self._step(feeding, order)
                order = None
                match frame:
                    case Output(id=self._request, body=body):
                        yield body
                    case Waiting(id=self._request, taken=taken):
                        feeding.taken = taken
                    case Done(id=self._request):
                        finished = True
                        return
                    case Failure(id=self._request):
                        finished = True
                        raise frame.to_error(self.stage.value)
        finally:
            if self.state is not WorkerState.BUSY:
                await feeding.abandon()
            elif finished and more is None:
                self.state = WorkerState.READY
            else:
                await uninterrupted(self._leave(feeding, finished))

    async def _step(self, feeding: Feeding, order: ToWorker | None) -> FromWorker:
        """The next frame. Raises `StageHung`, or what ended the sound."""
        try:
            async with feeding.watched():
                if order is not None:  # a recording is more than a socket holds: a worker that stands still does not
                    await self._send(order)  # even take it
                    feeding.start()
                return await self._next()
        except StageHung:
            await self._give_up()
            raise

    async def _leave(self, feeding: Feeding, finished: bool) -> None:
        """Ends the sound and, after a cancel, the request; a worker that ignores the cancel is stopped."""
        self.state = WorkerState.DRAINING
        try:
            async with asyncio.timeout(_CANCEL_GRACE_S):
                await feeding.stop()
                if not finished:
                    await self._send(Cancel(id=self._request))
                    while not isinstance(await self._next(), Done | Failure):
                        pass
            self.state = WorkerState.READY
        except (TimeoutError, StageError):
            await self._give_up()

    async def _give_up(self) -> None:
        self.state = WorkerState.FAILED
        await self.stop(kill=True)

    def kill(self, why: str) -> None:
        """At once; whoever waits for a result gets `StageDied` code "stage-over-memory" that says `why`."""
        self._killed_for = why
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        """To our own process alone: a reaped one's number may be somebody else's by now."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def stop(self, *, kill: bool = False) -> Rung:
        """Request → SIGTERM → SIGKILL, each with a grace time; always reaped; safe to repeat.

        With `kill`, straight to SIGKILL: for a worker that is known not to listen. A cancel does not interrupt it.
        """
        return await uninterrupted(self._stop(kill))

    async def _stop(self, kill: bool) -> Rung:
        if self._exit is None:
            return Rung.ALREADY_GONE
        rung = Rung.ALREADY_GONE
        if not self._exit.done():
            for step in (Rung.SIGKILL,) if kill else (Rung.REQUEST, Rung.SIGTERM, Rung.SIGKILL):
                rung = step
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_STOP_GRACE_S):
                        await self._push(step)
                        await asyncio.shield(self._exit)
                        break
            else:
                if process_start(self.pid):  # and is no zombie
                    await asyncio.wait([self._exit], timeout=_KILL_GRACE_S)
                if not self._exit.done():  # it has ended, and the fork server does not tell us
                    self._server.kill()
                await asyncio.shield(self._exit)
        await self._close()
        if self.state is not WorkerState.FAILED:
            self.state = WorkerState.STOPPED
        return rung

    async def _push(self, rung: Rung) -> None:
        if rung is Rung.REQUEST:
            with contextlib.suppress(StageError):
                await self._send(Stop())
            return
        self._signal(signal.SIGTERM if rung is Rung.SIGTERM else signal.SIGKILL)

    async def _close(self) -> None:
        if self._feeding is not None:
            await self._feeding.abandon()
        if self._receiver is not None:
            self._receiver.cancel()
            await asyncio.gather(self._receiver, return_exceptions=True)
            self._receiver = None
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    async def _send(self, frame: ToWorker) -> None:
        if self._sock is None:
            raise await self._died()
        try:
            await asyncio.get_running_loop().sock_sendall(self._sock, encode(frame))
        except OSError:
            raise await self._died() from None

    async def _next(self) -> FromWorker:
        frame = await self._frames.get()
        if frame is None:
            self._frames.put_nowait(None)  # for whoever asks next
            raise await self._died()
        return frame

    async def _died(self) -> StageDied:
        self.state = WorkerState.FAILED
        if self._exit is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_EXIT_S):
                    await asyncio.shield(self._exit)
        status = self._exit.result() if self._exit is not None and self._exit.done() else None
        return death(self.stage.value, status, self._killed_for)

    async def _receive(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        splitter = Splitter()
        try:
            while data := await loop.sock_recv(sock, 1 << 18):
                for body in splitter.feed(data):
                    self._frames.put_nowait(decode_from_worker(body))
        except (OSError, StageError) as error:
            log.debug("%s: connection lost: %s", self.stage, error)
            self._signal(signal.SIGKILL)
        finally:
            self._frames.put_nowait(None)
