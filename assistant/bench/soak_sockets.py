"""Bare sockets at a daemon, for clients that do what ours never would. Imports zmq."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import zmq

from assistant.api import sockets
from assistant.api.feed import WELCOME


@contextmanager
def talking(folder: Path, name: str) -> Iterator[zmq.Socket[bytes]]:
    """Connected to the socket of that name; behind the `with` the connection is gone, whatever was under way."""
    with _connected(folder / name, zmq.DEALER) as socket:
        yield socket


@contextmanager
def hearing(folder: Path, topics: Sequence[bytes]) -> Iterator[zmq.Socket[bytes]]:
    """Subscribed to the events under these names, and to the welcome behind them."""
    with _connected(folder / sockets.EVENTS, zmq.SUB) as socket:
        for topic in [*topics, WELCOME]:
            socket.subscribe(topic)
        yield socket


@contextmanager
def _connected(path: Path, kind: int) -> Iterator[zmq.Socket[bytes]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        socket = context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(sockets.ipc(path))
        yield socket
    finally:
        context.destroy(linger=0)
