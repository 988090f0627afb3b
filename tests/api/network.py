"""A server that listens at TCP on loopback, with real keys, and clients with the keys that they like."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import zmq

from assistant.api import keys, security, sockets
from assistant.api.queries import QueryEvents
from assistant.api.rights import Right
from assistant.api.security import Place
from assistant.api.server import Server
from tests.api.backend import Backend

T = TypeVar("T")


def free_port() -> int:
    """The first of three that nobody uses; each process looks from somewhere else on, for others look at the same time.

    Below 32768, from where the kernel gives ports to whoever connects."""
    start = os.getpid() * 21 % 12_000
    for port in (20_000 + (start + step) % 12_000 for step in range(0, 12_000, 3)):
        with socket.socket() as one, socket.socket() as two, socket.socket() as three:
            try:
                for at, probe in enumerate((one, two, three)):
                    probe.bind(("127.0.0.1", port + at))
            except OSError:
                continue
            return port
    raise AssertionError("there is no free port")


class House:
    """Keys of a server and of its clients in `folder`, and where it listens."""

    def __init__(self, folder: Path) -> None:
        self.keys = folder / "keys"
        self.runtime = folder / "run"
        self.port = free_port()
        self.server, _ = keys.make_server(self.keys)
        self.pairs: dict[str, keys.Keys] = {}

    def client(self, name: str, *rights: Right) -> keys.Keys:
        pair = keys.Keys(*(half.decode() for half in zmq.curve_keypair()))
        keys.make_client(self.keys, name, rights, pair.public)
        self.pairs[name] = pair
        return pair

    def revoke(self, name: str) -> None:
        (self.keys / keys.CLIENTS / f"{name}.toml").unlink()

    def run(self, scenario: Callable[[Backend], Awaitable[T]]) -> T:
        async def served() -> T:
            events = QueryEvents()
            backend = Backend(events)
            network = security.network(("127.0.0.1", self.port), self.keys)
            async with Server(backend, events, sockets.prepared(self.runtime), lambda: None, network=network):
                return await asyncio.wait_for(scenario(backend), 15)

        return asyncio.run(served())


class Distant:
    """A client at TCP. `pair` None: without CURVE."""

    def __init__(
        self, house: House, place: Place, pair: keys.Keys | None, server: str | None = None, kind: int = zmq.DEALER
    ) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket: zmq.Socket[bytes] = self._context.socket(kind)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 50)
        if pair is not None:
            self.socket.setsockopt(zmq.CURVE_SERVERKEY, (server or house.server.public).encode())
            self.socket.setsockopt(zmq.CURVE_PUBLICKEY, pair.public.encode())
            self.socket.setsockopt(zmq.CURVE_SECRETKEY, pair.secret.encode())
        self.socket.connect(f"tcp://127.0.0.1:{house.port + place}")

    def send(self, kind: str, data: Any = None, *pcm: bytes) -> None:
        header = {"v": 1, "id": "i", "type": kind, "data": data or {}}
        self.socket.send_multipart([json.dumps(header).encode(), *pcm])

    async def reply(self, timeout_s: float = 3) -> dict[str, Any] | None:
        """The header of the next reply; None when none comes."""
        if not await asyncio.to_thread(self.socket.poll, int(timeout_s * 1000)):
            return None
        reply: dict[str, Any] = json.loads(self.socket.recv_multipart()[0])
        return reply

    async def asked(self, kind: str, data: Any = None, timeout_s: float = 3) -> dict[str, Any] | None:
        self.send(kind, data)
        return await self.reply(timeout_s)

    async def until(self, kind: str) -> dict[str, Any]:
        while (reply := await self.reply()) is not None:
            if reply["type"] in (kind, "error"):
                return reply
        raise AssertionError(f"no {kind} came")

    def __enter__(self) -> Distant:
        return self

    def __exit__(self, *exc: object) -> None:
        self._context.destroy(linger=0)
