"""Serves one page over HTTP to this machine alone: an asyncio server, because a thread would cost more. Imports
`api.loopback`; knows no figures.

Answers `GET /metrics` and nothing else. A `Host` that is no address of this machine is refused: a web page could make
its visitor's browser ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Self

from assistant.api.loopback import checked_loopback, closed, tcp_listener
from assistant.errors import ConfigError

log = logging.getLogger(__name__)

MAX_CLIENTS = 8
MAX_HEAD_BYTES = 8 * 1024
PATIENCE_S = 5.0
_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_WHY = "the figures are for nobody else"


def checked_address(address: str) -> str:
    """`metrics.address`, "localhost" as a number. Raises `ConfigError` for one that others can reach."""
    return checked_loopback(address, "metrics.address", _WHY)


class MetricsServer:
    """`async with MetricsServer(figures.page, "127.0.0.1", 9107)`."""

    def __init__(self, page: Callable[[], bytes], address: str, port: int, *, patience_s: float = PATIENCE_S) -> None:
        self._page, self._address, self._wanted = page, address, port
        self._patience_s = patience_s
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self.port = 0
        """At which it listens."""

    async def __aenter__(self) -> Self:
        """Raises `ConfigError` for an address that others can reach, or that cannot be had."""
        address = checked_address(self._address)
        listener = tcp_listener(address, self._wanted, "metrics.port")
        self.port = listener.getsockname()[1]
        self._server = await asyncio.start_server(self._met, sock=listener, limit=MAX_HEAD_BYTES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        await closed(self._server, self._clients)

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            async with asyncio.timeout(self._patience_s):
                if len(self._clients) > MAX_CLIENTS:
                    answer = _answer("503 Service Unavailable", b"too many at once\n")
                else:
                    answer = self._answered(await reader.readuntil(b"\r\n\r\n"))
                writer.write(answer)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._clients.discard(task)
            writer.close()

    def _answered(self, request: bytes) -> bytes:
        first, *lines = request.decode("latin-1").split("\r\n")
        method, _, rest = first.partition(" ")
        target = rest.partition(" ")[0].partition("?")[0]
        hosts = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("host:")]
        if not all(map(_of_this_machine, hosts)):
            return _answer("403 Forbidden", b"ask by an address of this machine\n")
        if target != "/metrics":
            return _answer("404 Not Found", b"the figures are at /metrics\n")
        if method != "GET":
            return _answer("405 Method Not Allowed", b"GET it\n")
        try:
            return _answer("200 OK", self._page(), _TYPE)
        except Exception:
            log.exception("the figures cannot be given")
            return _answer("500 Internal Server Error", b"the daemon's log has more\n")


def _of_this_machine(host: str) -> bool:
    name, _, port = host.rpartition(":")
    with contextlib.suppress(ConfigError):
        checked_loopback((name if port.isdecimal() and name else host).strip("[]").lower(), "host", "")
        return True
    return False


def _answer(status: str, body: bytes, kind: str = "text/plain") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode("ascii") + body
