"""Who is connected to a socket: told by libzmq's socket monitor, which knows of a client that has left at once.

The monitor speaks of descriptors, messages of routing ids; a message also says by which descriptor it came.
Connections from the network have bounds of their own, so that they cannot take the places of local ones.
Imports zmq.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import zmq

log = logging.getLogger(__name__)

_EVENT = struct.Struct("=HI")
"""Event, value: the descriptor, for those that come and go."""
_FAILED = {
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "said nothing that we understand",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "no CURVE, or made for another server's key",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "",  # whoever refused it has told why
}
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
_EVENTS_TCP = _EVENTS | zmq.EVENT_HANDSHAKE_SUCCEEDED | sum(_FAILED)
_GONE = "somebody who has left"
"""The address of a connection that had ended before we looked at it."""
MOST_TCP = 64
"""Connections from the network to one socket."""
MOST_EACH = 16
"""Of them, from one address."""


class Door(Protocol):
    """Hears of connections from the network that nothing came of."""

    def refused(self, address: str, why: str) -> None: ...


class Caller:
    """One client, from its first message on."""

    def __init__(self) -> None:
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done as soon as it is known to have gone."""

    def leave(self) -> None:
        if not self.left.done():
            self.left.set_result(None)


@dataclass(slots=True)
class _Connection:
    remote: tuple[str, int] | None
    """Address and port; None for one of this machine."""
    callers: dict[bytes, Caller] = field(default_factory=dict)
    key: str = ""
    """The public key of a client from the network, from its first message on."""


class Callers:
    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        router: zmq.Socket[bytes],
        path: str,
        most: int,
        door: Door | None = None,
    ) -> None:
        """Before `router` is bound, to `path`. `most` local connections are kept; further ones are closed.

        `door`: the socket is bound to TCP as well.
        """
        self._router, self._path, self._most, self._door = router, path, most, door
        self._connected: dict[int, _Connection] = {}
        self._failing: str | None = None
        """Why the connection is closed that ends next: the monitor's events of one connection follow each other."""
        self._greeted = 0
        """Handshakes from the network that succeeded, of connections that have sent no message yet."""
        self._loop = asyncio.get_running_loop()
        place = f"inproc://callers-{id(self):x}"
        router.monitor(place, _EVENTS if door is None else _EVENTS_TCP)
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
                frames = self._monitor.recv_multipart(zmq.NOBLOCK)
                event, value = _EVENT.unpack(frames[0])
                if event == zmq.EVENT_ACCEPTED:
                    self._came(value, frames[1].startswith(b"tcp:"))
                elif event == zmq.EVENT_DISCONNECTED:
                    self._went(value)
                elif frames[1].startswith(b"tcp:"):
                    if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                        self._greeted += 1
                    else:
                        self._failing = _FAILED.get(event)

    def _came(self, fd: int, tcp: bool) -> None:
        self._connected[fd] = new = _Connection(_peer_of(fd) or (_GONE, 0) if tcp else None)
        if new.remote is not None:
            return self._came_by_tcp(fd, new.remote[0])
        local = sum(one.remote is None for one in self._connected.values())
        if local > self._most:
            self._hang_up(fd, new)
        elif local == self._most:
            log.warning("%d clients are connected to %s; more are turned away", self._most, self._path)

    def _came_by_tcp(self, fd: int, address: str) -> None:
        others = [one.remote[0] for one in self._connected.values() if one.remote is not None]
        if address != _GONE and (len(others) > MOST_TCP or others.count(address) > MOST_EACH):
            if self._door is not None:
                self._door.refused(address, "too many connections")
            self._hang_up(fd, self._connected[fd])

    def _went(self, fd: int) -> None:
        failing, self._failing = self._failing, None
        gone = self._connected.pop(fd, None)
        if gone is None:
            return
        for caller in gone.callers.values():
            caller.leave()
        if gone.remote is None or gone.callers or self._door is None:
            return
        if failing is None and self._greeted:
            self._greeted -= 1  # it had nothing to say
        elif failing != "":
            self._door.refused(gone.remote[0], failing or "not ZeroMQ")

    def of(self, routing_id: bytes, fd: int, key: str = "") -> Caller:
        """Who sent a message that has just been taken; `key`: of a client from the network.

        The descriptor of one that sent it and left may be another's already: that one is found out when it is answered.
        """
        self.look()
        known = self._connected.get(fd)
        if known is None or (known.remote is not None) != bool(key):
            gone = Caller()
            gone.leave()
            return gone
        if key and not known.callers:
            known.key = key
            self._greeted -= 1 if self._greeted else 0
        if routing_id not in known.callers:
            known.callers[routing_id] = Caller()
        return known.callers[routing_id]

    def drop(self, keep: Callable[[str], bool]) -> None:
        """Ends the connections of keys that `keep` does not want."""
        for fd, connection in list(self._connected.items()):
            if connection.key and not keep(connection.key):
                self._hang_up(fd, connection)

    def drop_all(self) -> None:
        self.look()
        for fd, connection in list(self._connected.items()):
            self._hang_up(fd, connection)

    def _hang_up(self, fd: int, known: _Connection) -> None:
        """libzmq has no call for this, but sees the end of the stream, and closes its descriptor."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as connection:
            # it may have closed it, and somebody opened another file meanwhile
            if known.remote is None:
                same = connection.family == socket.AF_UNIX and connection.getsockname() == self._path
            else:
                same = connection.family != socket.AF_UNIX and _address(connection.getpeername()) == known.remote
            if same:
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        self.look()
        self._router.disable_monitor()
        self._monitor.close()


def _peer_of(fd: int) -> tuple[str, int] | None:
    """None when it has gone already."""
    try:
        with socket.socket(fileno=os.dup(fd)) as connection:
            return None if connection.family == socket.AF_UNIX else _address(connection.getpeername())
    except OSError:
        return None


def _address(name: Any) -> tuple[str, int]:
    """Of `getpeername`, whose shape depends on the family."""
    return str(name[0]).removeprefix("::ffff:"), int(name[1])
