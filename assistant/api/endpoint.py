"""One ROUTER socket inside the asyncio loop: peers come, send messages, are answered, leave. Knows frames, no messages.

What a peer can make us hold has a bound, whatever it sends or does not read: so many peers, so many bytes of messages
that still arrive (`zmtp.Room`), and nothing is read from a peer that does not read us. When a peer leaves we know it
at once. Imports `errors`, `zmtp`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from assistant.api import zmtp
from assistant.errors import AssistantError, ConfigError

log = logging.getLogger(__name__)

MAX_PEERS = 32
"""Connections at a time; further ones are closed."""
_AT_ONCE = 16
"""Messages of a peer before others have their turn."""
_UNREAD_BYTES = 256 * 1024
"""Replies that a peer has not read; nothing more is read from it until it has."""
_SLOWEST_S = 10.0
"""For the rest of a message that has begun, and for reading what we say."""
_LAST_WORDS_S = 0.1
_LAST_TURNS = 4


class PeerGone(Exception):
    """It has left, or has not read for seconds."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who sent a message, and how a reply finds back."""

    connection: Connection
    enveloped: bool

    @property
    def left(self) -> asyncio.Future[None]:
        """Done as soon as it has gone."""
        return self.connection.left


Heard = Callable[[Peer, list[bytes], AssistantError | None], None]
"""Takes a message; the error says why it was not kept whole (its header may be there)."""


class Connection(asyncio.Protocol):
    def __init__(self, reader: zmtp.Reader, heard: Heard, peers: set[Connection]) -> None:
        self._reader, self._heard, self._peers = reader, heard, peers
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.Handle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._readable = asyncio.Event()
        self._readable.set()
        self._transport: asyncio.Transport
        self.left: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._peers.add(self)
        if len(self._peers) > MAX_PEERS:
            log.warning("a client is turned away: %d are connected", MAX_PEERS)
            return self._transport.abort()
        self._transport.set_write_buffer_limits(high=_UNREAD_BYTES)
        self._transport.write(zmtp.GREETING + zmtp.ready())
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._peers.discard(self)
        self._reader.drop()
        for handle in (self._again, self._deadline):
            if handle is not None:
                handle.cancel()
        self._readable.set()
        if not self.left.done():
            self.left.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._pump()

    def pause_writing(self) -> None:
        self._readable.clear()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._readable.set()
        self._pump_soon()

    def _pump(self) -> None:
        """Hands over what has arrived, a few messages at a time."""
        self._again = None
        for _ in range(_AT_ONCE):
            if not self._readable.is_set() or self._transport.is_closing():
                return
            try:
                found = self._reader.next()
            except zmtp.NotZmtp:
                return self._transport.abort()
            if found is None:
                self._watch()
                return self._transport.resume_reading()
            self._take(found)
        self._transport.pause_reading()
        self._pump_soon()

    def _pump_soon(self) -> None:
        if self._again is None:
            self._again = self._loop.call_soon(self._pump)

    def _take(self, found: zmtp.Message | bytes) -> None:
        if isinstance(found, bytes):
            if found.startswith(b"\4PING"):
                self._transport.write(zmtp.command(b"PONG", found[7:23]))
            return
        self._in_time()
        try:
            self._heard(Peer(self, found.enveloped), found.frames, found.refused)
        except Exception:
            log.exception("a message ended with an error of ours")  # the next one is heard all the same

    def _watch(self) -> None:
        """What has begun must end in time: a message that stands still would keep the room of others."""
        if not self._reader.unfinished:
            self._in_time()
        elif self._deadline is None:
            self._deadline = self._loop.call_later(_SLOWEST_S, self._transport.abort)

    def _in_time(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # --- to the peer ------------------------------------------------------------------------------------------------
    def write(self, data: bytes) -> None:
        """Raises `PeerGone`."""
        if self._transport.is_closing():
            raise PeerGone
        self._transport.write(data)

    async def read_by_peer(self) -> None:
        """Waits until it has read most of what it was told. Raises `PeerGone`."""
        try:
            await asyncio.wait_for(self._readable.wait(), _SLOWEST_S)
        except TimeoutError:
            self._transport.abort()
            raise PeerGone from None

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


class Endpoint:
    def __init__(self, path: Path, limits: zmtp.Limits, room: zmtp.Room, heard: Heard) -> None:
        self._path, self._limits, self._room, self._heard = path, limits, room, heard
        self._peers: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Binds the path (0600), replacing a file that a killed daemon left there; the caller holds the daemon's lock.

        Raises `ConfigError`.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            self._path.unlink(missing_ok=True)
            listener.bind(str(self._path))
        except OSError as error:
            listener.close()
            raise ConfigError(f"the socket {self._path} cannot be made: {error}", code="runtime-dir") from None
        finally:
            os.umask(mask)
        self._server = await asyncio.get_running_loop().create_unix_server(self._connection, sock=listener)

    def _connection(self) -> Connection:
        return Connection(zmtp.Reader(self._limits, self._room), self._heard, self._peers)

    def send_now(self, peer: Peer, frames: list[bytes]) -> None:
        """Raises `PeerGone`. What a peer does not read is bounded by what is read from it."""
        peer.connection.write(zmtp.encoded(frames, peer.enveloped))

    async def send(self, peer: Peer, frames: list[bytes]) -> None:
        """Waits for a slow peer, a while. Raises `PeerGone`."""
        await peer.connection.read_by_peer()
        self.send_now(peer, frames)

    async def close(self) -> None:
        """Removes the socket. What was just said has a moment to leave."""
        if self._server is None:
            return
        self._server.close()
        self._path.unlink(missing_ok=True)
        leaving = list(self._peers)
        for connection in leaving:
            connection.close()
        if leaving:
            await asyncio.wait([connection.left for connection in leaving], timeout=_LAST_WORDS_S)
        for _ in range(_LAST_TURNS):  # of the loop: some were just accepted
            for connection in list(self._peers):
                connection.abort()
            await asyncio.sleep(0)
