"""Who is connected to a ROUTER socket: told by libzmq's socket monitor, which knows of a client that has left at once.

The monitor speaks of descriptors, messages of routing ids; a message also says by which descriptor it came.
Imports zmq.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct

import zmq

log = logging.getLogger(__name__)

_EVENT = struct.Struct("=HI")
"""Event, value: the descriptor, for the events that are asked for."""


class Caller:
    """One client, from its first message on."""

    def __init__(self) -> None:
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done as soon as it is known to have gone."""

    def leave(self) -> None:
        if not self.left.done():
            self.left.set_result(None)


class Callers:
    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], router: zmq.Socket[bytes], path: str, most: int
    ) -> None:
        """Before `router` is bound, to `path`. `most` connections are kept; further ones are closed."""
        self._router, self._path, self._most = router, path, most
        self._connected: dict[int, dict[bytes, Caller]] = {}
        self._loop = asyncio.get_running_loop()
        place = f"inproc://{path}"
        router.monitor(place, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._monitor: zmq.Socket[bytes] = context.socket(zmq.PAIR)
        self._monitor.setsockopt(zmq.LINGER, 0)
        # without a bound, because libzmq's own thread would wait for us; an event has a few bytes
        self._monitor.setsockopt(zmq.RCVHWM, 0)
        self._monitor.connect(place)
        self._fd: int = self._monitor.getsockopt(zmq.FD)  # type: ignore[assignment]
        self._loop.add_reader(self._fd, self.look)
        self.look()  # libzmq signals only to whoever has found nothing before

    def look(self) -> None:
        """Takes all that has happened: the descriptor tells only that there is something new."""
        with contextlib.suppress(zmq.Again):
            while not self._monitor.closed:
                event, fd = _EVENT.unpack(self._monitor.recv_multipart(zmq.NOBLOCK)[0])
                if event == zmq.EVENT_ACCEPTED:
                    self._connected[fd] = {}
                    if len(self._connected) > self._most:
                        self._hang_up(fd)
                    elif len(self._connected) == self._most:
                        log.warning("%d clients are connected to %s; more are turned away", self._most, self._path)
                else:
                    for caller in self._connected.pop(fd, {}).values():
                        caller.leave()

    def of(self, routing_id: bytes, fd: int) -> Caller:
        """Who sent a message that has just been taken.

        The descriptor of one that sent it and left may be another's already: that one is found out when it is answered.
        """
        self.look()
        known = self._connected.get(fd)
        if known is None:
            gone = Caller()
            gone.leave()
            return gone
        return known.setdefault(routing_id, Caller())

    def _hang_up(self, fd: int) -> None:
        """libzmq has no call for this, but sees the end of the stream, and closes its descriptor."""
        with contextlib.suppress(OSError), socket.fromfd(fd, socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            # it may have closed it, and somebody opened another file meanwhile
            if connection.getsockname() == self._path:
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        self.look()
        self._router.disable_monitor()
        self._monitor.close()
