"""The daemon's two ROUTER sockets: commands, and controls that never wait behind them. Imports zmq; knows no pipeline.

Every message gets an answer, whatever is in it; nothing that a client sends or stops reading ends the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import zmq

from assistant import __version__
from assistant.api import sockets, wire
from assistant.api.endpoint import Endpoint, Peer, PeerGone, PeerSlow
from assistant.api.queries import Job, Queries, QueryEvents
from assistant.errors import AssistantError, BusyNow, EngineFailed, UsageError
from assistant.messages import Stage, Status
from assistant.query import Answer, Query

log = logging.getLogger(__name__)

_COMMAND_BACKLOG = 256
_CONTROL_BACKLOG = 64
_MAX_ORDERS = 8
"""Loads and unloads at the same time."""
_BUSY_ORDERS_MS = 1000
_LAST_REPLIES_S = 0.3


class Backend(Protocol):
    """What the server speaks for: the assistant of this process."""

    async def answer(self, query: Query) -> Answer: ...
    async def load(self, stage: Stage, keep_alive_s: float | None = None) -> None: ...
    async def unload(self, stage: Stage) -> bool: ...
    def status(self) -> Status: ...


class Server:
    """`async with Server(...)`: its sockets are there inside, and gone afterwards."""

    def __init__(self, backend: Backend, events: QueryEvents, folder: Path, stop: Callable[[], None]) -> None:
        """`folder` is prepared and locked by the caller; `stop` is called for `shutdown`."""
        self._backend, self._folder, self._stop = backend, folder, stop
        self._queries = Queries(backend.answer, events)
        self._orders: set[asyncio.Task[None]] = set()
        self._deliveries: set[asyncio.Task[None]] = set()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    async def __aenter__(self) -> Self:
        try:
            self._commands = Endpoint(
                self._context, self._folder / sockets.COMMAND, heard=self._command,
                max_frame_bytes=wire.MAX_PCM_BYTES, backlog=_COMMAND_BACKLOG,
            )  # fmt: skip
            self._controls = Endpoint(
                self._context, self._folder / sockets.CONTROL, heard=self._control,
                max_frame_bytes=wire.MAX_HEADER_BYTES, backlog=_CONTROL_BACKLOG,
            )  # fmt: skip
        except BaseException:
            self._context.destroy(linger=0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancels what runs and tells its callers, within a fraction of a second."""
        await self._queries.close()
        for order in self._orders:
            order.cancel()
        if leftover := self._orders | self._deliveries:
            _, late = await asyncio.wait(leftover, timeout=_LAST_REPLIES_S)
            for task in late:
                task.cancel()
        self._commands.close()
        self._controls.close()
        # waits for the last replies to leave, a tenth of a second at most
        self._context.term()

    # --- command.sock -----------------------------------------------------------------------------------------------
    def _command(self, peer: Peer, frames: list[bytes]) -> None:
        try:
            message = wire.decode(frames, wire.COMMANDS)
            if message.pcm and not isinstance(message.data, wire.Ask):
                raise UsageError("only `ask` takes sound", code="bad-message")
            match message.data:
                case wire.Ask():
                    self._ask(peer, message)
                case wire.Load(stage=stage, keep_alive_s=keep_alive_s):
                    self._order(peer, message.id, self._load(stage, keep_alive_s))
                case wire.Unload(stage=stage):
                    self._order(peer, message.id, self._unload(stage))
        except AssistantError as error:
            self._refuse(self._commands, peer, frames, error)

    def _ask(self, peer: Peer, message: wire.Received) -> None:
        ask: wire.Ask = message.data
        if (ask.text is None) != bool(message.pcm):
            raise UsageError("`ask` takes a `text` or PCM frames behind the header, and not both", code="bad-message")
        if len(message.pcm) % 2:
            raise UsageError("the PCM frames hold half a sample; s16le mono at 16 kHz is expected", code="bad-message")
        outbox: asyncio.Queue[list[bytes]] = asyncio.Queue()

        def tell(reply: wire.Reply, pcm: bytes) -> None:
            outbox.put_nowait(wire.encode(reply, parent=message.id, pcm=pcm))

        job = Job(ask, message.pcm, tell)
        self._queries.submit(job)
        self._keep(self._deliveries, self._deliver(peer, outbox, job))

    async def _deliver(self, peer: Peer, outbox: asyncio.Queue[list[bytes]], job: Job) -> None:
        """Sends what the query tells, in order, up to its last reply. A caller that has gone needs no answer."""
        while True:
            frames = await outbox.get()
            try:
                await self._commands.send(peer, frames)
            except PeerGone:
                log.info("the caller of query %s has gone", job.id)
                self._queries.cancel(job.id)
                return
            if job.ended and outbox.empty():
                return

    async def _load(self, stage: Stage, keep_alive_s: float | None) -> wire.Loaded:
        await self._backend.load(stage, keep_alive_s)
        rows = (row for row in self._backend.status().stages if row.name == stage)
        return wire.Loaded(stage=stage, status=next(rows, None))

    async def _unload(self, stage: Stage) -> wire.Unloaded:
        return wire.Unloaded(stage=stage, unloaded=await self._backend.unload(stage))

    def _order(self, peer: Peer, parent: str, work: Coroutine[Any, Any, wire.Reply]) -> None:
        if len(self._orders) >= _MAX_ORDERS:
            work.close()
            raise BusyNow(f"{_MAX_ORDERS} loads and unloads are under way", retry_after_ms=_BUSY_ORDERS_MS)
        self._keep(self._orders, self._fulfil(peer, parent, work))

    async def _fulfil(self, peer: Peer, parent: str, work: Coroutine[Any, Any, wire.Reply]) -> None:
        reply: wire.Reply
        try:
            reply = await work
        except AssistantError as error:
            reply = wire.failure(error)
        except Exception as error:
            log.exception("a command ended with an error of ours")
            told = f"the daemon made a mistake ({type(error).__name__}); its log has more"
            reply = wire.failure(EngineFailed(told, code="internal"))
        with contextlib.suppress(PeerGone):
            await self._commands.send(peer, wire.encode(reply, parent=parent))

    def _keep(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    # --- control.sock -----------------------------------------------------------------------------------------------
    def _control(self, peer: Peer, frames: list[bytes]) -> None:
        """Answered on the spot: nothing here waits for anything."""
        try:
            message = wire.decode(frames, wire.CONTROLS)
            reply = self._answer_control(message.data)
        except AssistantError as error:
            return self._refuse(self._controls, peer, frames, error)
        self._reply(self._controls, peer, wire.encode(reply, parent=message.id))

    def _answer_control(self, data: Any) -> wire.Reply:
        match data:
            case wire.Ping():
                return wire.Pong(version=__version__, pid=os.getpid())
            case wire.GetStatus():
                return self._backend.status()
            case wire.Cancel(query_id=query_id):
                found = self._queries.cancel(query_id)
                if query_id is not None and not found:
                    raise UsageError(f"no query {query_id[:64]!r} runs or waits here", code="query-unknown")
                return wire.Cancelling(query_ids=found)
            case _:
                log.info("a client asks for the end")
                # once the reply has left
                asyncio.get_running_loop().call_soon(self._stop)
                return wire.Stopping(pid=os.getpid())

    def _refuse(self, endpoint: Endpoint, peer: Peer, frames: list[bytes], error: AssistantError) -> None:
        self._reply(endpoint, peer, wire.encode(wire.failure(error), parent=wire.id_of(frames)))

    def _reply(self, endpoint: Endpoint, peer: Peer, frames: list[bytes]) -> None:
        """A client that floods us without reading loses replies; nobody waits for it."""
        with contextlib.suppress(PeerGone, PeerSlow):
            endpoint.send_now(peer, frames)
