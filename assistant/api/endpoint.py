"""One ROUTER socket inside the asyncio loop. Knows frames, no messages.

Not `zmq.asyncio`: there, one client that does not read would hold up the replies to all others, because sends wait in
one line. Here a send succeeds, or says at once that this peer is slow or gone.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import zmq

from assistant.errors import ConfigError

Peer = tuple[bytes, ...]
"""Who sent a message: the frames that lead a reply back (a REQ socket adds an empty one)."""

_AT_ONCE = 16
"""Messages taken before other work of the loop has its turn."""
_RETRY_S = 0.02
_SLOWEST_S = 10.0
_LAST_WORDS_MS = 100


class PeerGone(Exception):
    """Nobody has that address any more, or it has not read for seconds."""


class PeerSlow(Exception):
    """Its queue is full just now."""


class Endpoint:
    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        path: Path,
        *,
        max_frame_bytes: int,
        backlog: int,
        heard: Callable[[Peer, list[bytes]], None],
    ) -> None:
        """Binds `path` (0600), replacing a file that a killed daemon left there; the caller holds the daemon's lock.

        `backlog`: messages per client that wait in either direction. `heard` gets each message. Raises `ConfigError`.
        """
        self._heard = heard
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.Handle | None = None
        self._socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.LINGER, 0),
            (zmq.MAXMSGSIZE, max_frame_bytes),
            (zmq.RCVHWM, backlog),
            (zmq.SNDHWM, backlog),
        ):
            self._socket.setsockopt(option, value)
        mask = os.umask(0o177)
        try:
            path.unlink(missing_ok=True)
            self._socket.bind(f"ipc://{path}")
        except OSError as error:  # zmq.ZMQError is one
            self._socket.close()
            raise ConfigError(f"the socket {path} cannot be made: {error}", code="runtime-dir") from None
        finally:
            os.umask(mask)
        self._fd: int = self._socket.getsockopt(zmq.FD)  # type: ignore[assignment]
        self._loop.add_reader(self._fd, self._drain)

    def _drain(self) -> None:
        """Takes what has arrived. The descriptor tells only that something changed, so nothing may be left behind."""
        self._again = None
        for _ in range(_AT_ONCE):
            if self._socket.closed:
                return
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._take(frames)
        self._look_again()

    def _take(self, frames: list[bytes]) -> None:
        enveloped = len(frames) > 2 and not frames[1]
        body = 2 if enveloped else 1
        self._heard(tuple(frames[:body]), frames[body:])

    def _look_again(self) -> None:
        if self._again is None:
            self._again = self._loop.call_soon(self._drain)

    def send_now(self, peer: Peer, frames: list[bytes]) -> None:
        """Raises `PeerGone`, `PeerSlow`."""
        if self._socket.closed:
            raise PeerGone
        try:
            self._socket.send_multipart([*peer, *frames], zmq.NOBLOCK)
        except zmq.Again:
            raise PeerSlow from None
        except zmq.ZMQError:  # EHOSTUNREACH
            raise PeerGone from None
        finally:
            # a send may have swallowed the descriptor's sign that something arrived
            self._look_again()

    async def send(self, peer: Peer, frames: list[bytes]) -> None:
        """Waits for a slow peer, a while. Raises `PeerGone`."""
        give_up = time.monotonic() + _SLOWEST_S
        while True:
            try:
                return self.send_now(peer, frames)
            except PeerSlow:
                if time.monotonic() > give_up:
                    raise PeerGone from None
            await asyncio.sleep(_RETRY_S)

    def close(self) -> None:
        """Removes the socket. What was just sent has a moment to leave."""
        if self._socket.closed:
            return
        self._loop.remove_reader(self._fd)
        if self._again is not None:
            self._again.cancel()
        self._socket.close(linger=_LAST_WORDS_MS)
        self._path.unlink(missing_ok=True)
