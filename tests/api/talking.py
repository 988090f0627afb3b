"""Servers and clients for the tests of the sockets: well-behaved ones, and ones that send what they like."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import zmq

from assistant.api.client import Client
from tests.api.backend import Backend, served

T = TypeVar("T")

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
"""The first words of ZeroMQ's protocol, version 3.0 (rfc.zeromq.org/spec/23), with the mechanism NULL."""
READY = b"\x04\x1c\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
HELLO = GREETING + READY
SUBSCRIBER = GREETING + b"\x04\x19\x05READY\x0bSocket-Type" + struct.pack(">I", 3) + b"SUB"
"""For `Bytes` that subscribes with `say`."""


def serve(folder: Path, scenario: Callable[[Backend], Awaitable[T]], stop: Callable[[], None] = lambda: None) -> T:
    async def run() -> T:
        async with served(folder, stop) as backend:
            return await asyncio.wait_for(scenario(backend), 15)

    return asyncio.run(run())


def with_client(folder: Path, work: Callable[[Client], T]) -> Awaitable[T]:
    def run() -> T:
        with Client(folder) as client:
            return work(client)

    return asyncio.to_thread(run)


class Raw:
    """A client that sends what it likes."""

    def __init__(self, folder: Path, socket: str, kind: int = zmq.DEALER) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket: zmq.Socket[bytes] = self._context.socket(kind)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(f"ipc://{folder}/{socket}.sock")

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    def reply(self, timeout_s: float = 3) -> dict[str, Any] | None:
        if not self.socket.poll(int(timeout_s * 1000)):
            return None
        reply: dict[str, Any] = json.loads(self.socket.recv_multipart()[0])
        return reply

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exc: object) -> None:
        self._context.destroy(linger=0)


class Bytes:
    """A client that speaks ZeroMQ's protocol by hand, and says what no library would."""

    def __init__(self, path: Path, first: bytes = HELLO) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(3)
        self._socket.connect(str(path))
        self._socket.sendall(first)
        if first in (HELLO, SUBSCRIBER):  # libzmq hangs up on whoever says more before it was greeted
            self._read(len(GREETING))
            self._read(self._read(2)[1])

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            assert more, "it hung up"
            found += more
        return found

    def begin(self, size: int, flags: int = 1) -> None:
        """Announces a frame; by default, more follow it."""
        self._socket.sendall(struct.pack(">BQ", flags | 2, size))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def say(self, message: bytes) -> None:
        """A short message of one frame."""
        self._socket.sendall(bytes((0, len(message))) + message)

    def rest(self, within_s: float) -> bytes:
        """What comes until there is nothing for so long."""
        self._socket.settimeout(within_s)
        found = bytearray()
        with contextlib.suppress(TimeoutError):
            while more := self._socket.recv(65536):
                found += more
        return bytes(found)

    def gone(self, within_s: float = 3) -> bool:
        """Whether the other side closes the connection."""
        self._socket.settimeout(within_s)
        try:
            while self._socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    def __enter__(self) -> Bytes:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()


def header(kind: str, data: Any = None, **more: Any) -> bytes:
    return json.dumps({"v": 1, "id": "i", "type": kind, "data": data or {}} | more).encode()
