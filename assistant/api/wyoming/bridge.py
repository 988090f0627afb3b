"""The bridge: listens where only this machine can connect, and keeps its clients few. Imports `api.loopback`.

The Wyoming protocol has no passwords and no encryption. Whoever can connect can use the assistant: over TCP every
program of this machine, over a socket of the file system the programs of this user.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from wyoming.info import Info

from assistant import __version__
from assistant.api.loopback import checked_loopback, closed, tcp_listener, unix_listener
from assistant.api.queries import Queries
from assistant.api.wyoming.backend import Backend
from assistant.api.wyoming.describing import described
from assistant.api.wyoming.framing import MAX_LINE_BYTES
from assistant.api.wyoming.session import IDLE_S, Session, refuse
from assistant.api.wyoming.sound import Room
from assistant.api.wyoming.wishes import Wishes
from assistant.errors import BusyNow, ConfigError

log = logging.getLogger(__name__)

MAX_CLIENTS = 16
_KEY = "wyoming.uri"
_WHY = "the Wyoming protocol has no authentication: anybody there could use the assistant"


class Bridge:
    """`async with Bridge(assistant, server.queries, "tcp://127.0.0.1:10700")`: clients are served inside."""

    def __init__(
        self,
        backend: Backend,
        queries: Queries,
        uri: str,
        *,
        max_clients: int = MAX_CLIENTS,
        idle_s: float = IDLE_S,
        room: Room | None = None,
    ) -> None:
        """`queries`: the line in which questions wait. `room`: what all recordings have together."""
        self._backend, self._queries, self._uri = backend, queries, uri
        self._max_clients, self._idle_s = max_clients, idle_s
        self._room = room or Room()
        self._wishes = Wishes(backend.services.programs)
        self._sessions: dict[asyncio.Task[Any], Session] = {}
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self.address: Any = None
        """Where it listens: a path, or address and port."""

    async def __aenter__(self) -> Self:
        """Raises `ConfigError` for an address that others can reach, or that cannot be had."""
        listener, self._path = listener_of(self._uri)
        self.address = listener.getsockname()
        start: Callable[..., Any] = asyncio.start_unix_server if self._path else asyncio.start_server
        self._server = await start(self._met, sock=listener, limit=MAX_LINE_BYTES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the work of all clients."""
        assert self._server is not None
        await closed(self._server, self._sessions)
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def follow(self, name: str, data: dict[str, Any]) -> None:
        """Of the assistant's events, wake words go to whoever wants to hear of them."""
        if name == "wake_word-end":
            for session in list(self._sessions.values()):
                session.woke(str(data.get("word")))

    def _info(self) -> Info:
        voice = self._backend.voice
        words = voice.status().words if voice is not None else ()
        return described(self._backend.services.programs(), words, __version__)

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if len(self._sessions) >= self._max_clients:
                await refuse(writer, BusyNow(f"{self._max_clients} clients are served already", retry_after_ms=1000))
                return
            session = Session(
                self._backend, self._queries, self._info, self._room, self._wishes, reader, writer, self._idle_s
            )
            self._sessions[task] = session
            with contextlib.suppress(asyncio.CancelledError):  # the bridge closes, and asyncio would complain of it
                await session.run()
        finally:
            self._sessions.pop(task, None)
            writer.close()


def listener_of(uri: str) -> tuple[socket.socket, Path | None]:
    """The socket, and its path if it has one. Raises `ConfigError`."""
    where = checked_uri(uri)
    if isinstance(where, Path):
        return unix_listener(where, _KEY), where
    return tcp_listener(*where, _KEY), None


def checked_uri(uri: str) -> Path | tuple[str, int]:
    """The path, or address and port, of `wyoming.uri`. Raises `ConfigError` for what others can reach."""
    kind, _, rest = uri.partition("://")
    if kind == "unix" and rest.startswith("/"):
        return Path(rest)
    address, _, port = rest.rpartition(":")
    if kind == "tcp" and address and port.isdecimal():
        return checked_loopback(address.strip("[]"), _KEY, _WHY), int(port)
    raise ConfigError(f"{_KEY} is {uri!r}; write tcp://127.0.0.1:10700 or unix:///path/of/a/socket")
