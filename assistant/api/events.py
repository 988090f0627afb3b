"""The daemon's XPUB socket: every event, for whoever subscribes to the beginning of its name. Imports zmq, `callers`.

Nothing here waits for a subscriber. One that does not read costs what `UNREAD` events hold, misses the others, and sees
it by their numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import zmq

from assistant import __version__
from assistant.api import framing, sockets, wire_events
from assistant.api.allowed import Allowed
from assistant.api.callers import Callers
from assistant.api.endpoint import Gate
from assistant.api.rights import Right
from assistant.api.security import user_of
from assistant.errors import ConfigError, UsageError

log = logging.getLogger(__name__)

UNREAD = 256
"""Events that a subscriber has not read, beyond what the kernel holds for it."""
MOST_SUBSCRIBERS = 64
MAX_EVENT_BYTES = 256 * 1024
"""A larger one is missed by all: the report of the longest answer has a tenth of it."""
MAX_TOPIC = 64
MOST_TOPICS = 4096
"""Different ones at a time: libzmq keeps them for as long as their subscriber is there."""
WELCOME = "welcome"
_WELCOME_EVERY_S = 0.05
_AT_ONCE = 256
_UNHEARD = 16
_BACKLOG = 64
_HANDSHAKE_MS = 5000
_LAST_WORDS_MS = 100


class Publisher:
    """Called with each event, in the loop's thread."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        path: Path,
        *,
        most_subscribers: int = MOST_SUBSCRIBERS,
        most_topics: int = MOST_TOPICS,
        gate: Gate | None = None,
    ) -> None:
        """`gate`: where clients from the network come in, if they may observe."""
        self._gate = gate
        self._context, self._path = context, path
        self._most_subscribers, self._most_topics = most_subscribers, most_topics
        self.seq = 0
        """Of the last event."""
        self.counts: dict[str, int] = {}
        """By name: how many events there were."""
        self._socket: zmq.Socket[bytes] | None = None
        self._again: asyncio.Handle | None = None
        self._welcome: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop

    async def open(self) -> None:
        """Binds the path (0600), replacing what a killed daemon left there. Raises `ConfigError`."""
        self._loop = asyncio.get_running_loop()
        self._bind()
        if self._gate is not None:
            self._gate.guard.on_look(self._keep_observers)

    def _keep_observers(self, now: Mapping[str, Allowed]) -> None:
        """All who are connected: whenever they came, they hear nothing any more once they may not."""
        self._callers.drop(lambda key: key in now and Right.OBSERVE in now[key].rights)

    def _bind(self) -> None:
        xpub: zmq.Socket[bytes] = self._context.socket(zmq.XPUB)
        for option, value in (
            (zmq.XPUB_VERBOSE, 1),  # everybody who subscribes is welcomed, not only the first
            (zmq.LINGER, 0),
            (zmq.MAXMSGSIZE, MAX_TOPIC + 1),
            (zmq.SNDHWM, UNREAD),
            (zmq.RCVHWM, _UNHEARD),
            (zmq.BACKLOG, _BACKLOG),
            (zmq.HANDSHAKE_IVL, _HANDSHAKE_MS),
        ):
            xpub.setsockopt(option, value)
        gate = self._gate
        callers: Callers | None = None
        try:
            door = None if gate is None else gate.guard
            callers = self._callers = Callers(self._context, xpub, str(self._path), self._most_subscribers, door)
            with sockets.fresh(self._path):
                xpub.bind(sockets.ipc(self._path))
            if gate is not None:
                gate.guard.bind(xpub, gate.place, MAX_TOPIC + 1)
        except (OSError, zmq.ZMQError, ConfigError) as error:
            if callers is not None:
                callers.close()
            xpub.close()
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"the socket {self._path} cannot be made: {error}", code="runtime-dir") from None
        self._socket = xpub
        self._topics: set[bytes] = set()
        self._fd: int = xpub.getsockopt(zmq.FD)  # type: ignore[assignment]
        self._loop.add_reader(self._fd, self._drain)
        self._look_again()

    # --- events -----------------------------------------------------------------------------------------------------
    def __call__(self, name: str, data: dict[str, Any]) -> None:
        """Raises nothing: whoever tells of an event has better things to do."""
        self.seq += 1
        nth = self.counts[name] = self.counts.get(name, 0) + 1
        if self._socket is None:
            return
        told = wire_events.Published(name=name, seq=self.seq, nth=nth, time=round(time.time(), 3), data=data)
        try:
            self._send(name, framing.encode(told, id=str(self.seq)))
        except (UsageError, TypeError, ValueError) as error:
            log.warning("the event %s cannot be published: %s", name, error)

    def _send(self, topic: str, frames: list[bytes]) -> None:
        assert self._socket is not None
        if len(frames[0]) > MAX_EVENT_BYTES:
            raise UsageError(f"it has {len(frames[0])} bytes; at most {MAX_EVENT_BYTES} are published")
        # an XPUB drops what a subscriber has no room for; without a memory for a frame, everybody misses it
        with contextlib.suppress(zmq.Again):
            self._socket.send_multipart([topic.encode(), *frames], zmq.NOBLOCK)
        self._look_again()  # which may have swallowed the descriptor's sign that something arrived

    def _greet(self) -> None:
        """All who subscribed to it since the last one."""
        self._welcome = None
        if self._socket is not None:
            told = wire_events.Welcome(version=__version__, pid=os.getpid(), seq=self.seq, counts=self.counts)
            self._send(WELCOME, framing.encode(told))

    # --- subscriptions ----------------------------------------------------------------------------------------------
    def _look_again(self) -> None:
        if self._again is None and self._socket is not None:
            self._again = self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        """Takes the subscriptions that have arrived: the descriptor tells only that something changed."""
        self._again = None
        for _ in range(_AT_ONCE):
            if self._socket is None:
                return
            try:
                frame = self._socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            if self._gate is not None and (user := user_of(frame)) is not None:
                self._callers.of(b"", frame.get(zmq.SRCFD), user.key)  # so that it can be shown out
                if not self._gate.guard.may_follow(user.key):  # it came in when it still might
                    self._callers.drop(self._gate.guard.may_follow)
            self._subscribed(frame.bytes)
        self._look_again()

    def _subscribed(self, message: bytes) -> None:
        """Its first byte is 1, or 0 when nobody has this topic any more; anything else is none of ours."""
        topic = message[1:]
        if message[:1] == b"\0":
            self._topics.discard(topic)
        if message[:1] != b"\1":
            return
        self._topics.add(topic)
        if len(self._topics) == self._most_topics + 1:
            log.warning("subscribers made more than %d different subscriptions; all begin anew", self._most_topics)
            self._callers.drop_all()
        elif WELCOME.encode().startswith(topic) and self._welcome is None:
            self._welcome = self._loop.call_later(_WELCOME_EVERY_S, self._greet)

    async def close(self) -> None:
        """Removes the socket. The last events have a moment to leave, for which the context's end waits."""
        if self._socket is None:
            return
        xpub, self._socket = self._socket, None
        self._loop.remove_reader(self._fd)
        for handle in (self._again, self._welcome):
            if handle is not None:
                handle.cancel()
        self._callers.close()
        xpub.close(linger=_LAST_WORDS_MS)
        self._path.unlink(missing_ok=True)
