"""The sockets of the asynchronous client: does the steps of `dialogue`, and gives each message to whoever waits for it.

Imports zmq.asyncio.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import zmq
import zmq.asyncio

from assistant.api import framing, sockets, wire
from assistant.api.addresses import SEND_S, Address, Local
from assistant.api.dialogue import Dialogue, Send, Steps, Told, Wait, Walk, closed
from assistant.errors import AssistantError

T = TypeVar("T")

_MOST_LEFT = 256
"""Some of them were never sent."""


class AsyncSteps:
    def __init__(self, folder: Path | None = None, *, address: Address | None = None) -> None:
        """Of the daemon whose sockets are in `folder` (default: this user's), or of the one at `address`."""
        self._given = folder, address
        self._context: zmq.asyncio.Context
        self._open: dict[str, zmq.asyncio.Socket] = {}
        self._readers: set[asyncio.Task[None]] = set()
        self._arrived: dict[str, asyncio.Event] = {}
        """By command that somebody waits for."""
        self._left: deque[str] = deque(maxlen=_MOST_LEFT)
        """Queries that nobody follows any more, and of which we do not know yet how the daemon calls them."""
        self._broken: AssistantError | None = None
        self._closed = True

    async def __aenter__(self) -> Self:
        """Raises `NotRunning` when nobody listens, `ConfigError` when it may be somebody else who does."""
        folder, address = self._given
        self._address = address or Local(folder)
        self._address.check()
        self._dialogue = Dialogue(self._address)
        self._context = zmq.asyncio.Context()
        self._closed = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What runs for us ends at the daemon, too: it notices at once that we have gone."""
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        self._closed = True
        for arrived in self._arrived.values():  # other tasks, which wait for what will not come
            arrived.set()
        self._context.destroy(linger=0)

    # --- steps ------------------------------------------------------------------------------------------------------
    async def _run(self, steps: Steps[T]) -> T:
        walk, came = Walk(steps), None
        while (step := walk.on(came)) is not None:
            came = await self._do(step)
        return walk.result

    async def _told(self, steps: Steps[None]) -> AsyncIterator[Told]:
        walk, came = Walk(steps), None
        while (step := walk.on(came)) is not None:
            came = await self._do(step)
            if isinstance(step, Told):
                yield step

    async def _do(self, step: Send | Wait | Told) -> framing.Received | None:
        match step:
            case Send(socket=name, frames=frames):
                try:
                    async with asyncio.timeout(SEND_S):
                        await self._socket(name).send_multipart(frames)
                except TimeoutError:
                    raise self._address.silent("takes nothing") from None
            case Wait(parent=parent, timeout_s=timeout_s):
                if (message := self._dialogue.take(parent)) is not None:
                    return message
                self._check_open()
                if self._broken is not None:
                    raise self._broken
                arrived = self._arrived[parent] = asyncio.Event()
                try:
                    async with asyncio.timeout(timeout_s):
                        await arrived.wait()
                except TimeoutError:
                    return None
                finally:
                    self._arrived.pop(parent, None)
                return self._dialogue.take(parent)
        return None

    def _check_open(self) -> None:
        if self._closed:
            raise closed()

    def _socket(self, name: str) -> zmq.asyncio.Socket:
        self._check_open()
        if name not in self._open:
            socket = self._open[name] = self._context.socket(zmq.DEALER)
            socket.setsockopt(zmq.LINGER, 0)
            self._address.connect(socket, name)
            self._readers.add(asyncio.create_task(self._read(socket)))
        return self._open[name]

    async def _read(self, socket: zmq.asyncio.Socket) -> None:
        """Every message to whoever waits for it."""
        try:
            while True:
                message = self._dialogue.put(await socket.recv_multipart())
                parent = message.parent or ""
                if parent in self._left and isinstance(message.data, wire.Accepted | wire.Failure):
                    self._left.remove(parent)
                    if isinstance(message.data, wire.Accepted):
                        self._leave(parent, message.data.query_id)
                if parent in self._arrived:
                    self._arrived[parent].set()
        except AssistantError as error:
            self._broken = error
            for arrived in self._arrived.values():
                arrived.set()

    def _leave(self, asked: str, query_id: str) -> None:
        """Ends a query, without a wait for the reply."""
        while not query_id and (message := self._dialogue.take(asked)) is not None:
            if isinstance(message.data, wire.Accepted):  # it had come, and was not read yet
                query_id = message.data.query_id
            elif isinstance(message.data, wire.Failure):
                return self._dialogue.forget(asked)
        self._dialogue.forget(asked)
        if self._closed:
            return  # the daemon has seen us go
        if not query_id:
            self._left.append(asked)
            return
        # sent on the spot, and kept by the socket if it cannot be
        self._socket(sockets.CONTROL).send_multipart(framing.encode(wire.Cancel(query_id=query_id)))
