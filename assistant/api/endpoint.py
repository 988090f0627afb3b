"""One ROUTER socket inside the asyncio loop: peers come, send messages, are answered, leave. Knows frames, no messages.

Not `zmq.asyncio`: there, one client that does not read would hold up the replies to all others, because sends wait in
one line. Here a send succeeds, or says at once that this peer is slow or gone. Imports zmq, `errors`, `callers`,
`security`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from assistant.api import sockets
from assistant.api.callers import Caller, Callers
from assistant.api.security import Guard, Place, User, user_of
from assistant.errors import AssistantError, ConfigError, UsageError

log = logging.getLogger(__name__)

_UNHEARD = 1
"""Whole messages of a peer that libzmq takes before we have taken them."""
_UNREAD = 64
"""Replies that a peer has not read, beyond what the kernel holds for it."""
_MOST = 512
"""Connections at a time."""
_BACKLOG = 64
_HANDSHAKE_MS = 5000
_AT_ONCE = 64
_BYTES_AT_ONCE = 2**20
"""Frames, and bytes, that are taken before other work of the loop has its turn."""
_RETRY_S = 0.02
_SLOWEST_S = 10.0
_LAST_WORDS_MS = 100
_OTHER_FILES = 224
"""Descriptors that are not connections; more than a daemon has open."""


class PeerGone(Exception):
    """It has left, or has not read for seconds."""


class PeerSlow(Exception):
    """It has left too much unread just now."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one message."""

    frame_bytes: int
    """libzmq closes the connection of a peer that announces more."""
    header_bytes: int
    body_bytes: int
    """Of all frames behind the header together."""
    frames: int
    """The header among them."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who sent a message, and how a reply finds back."""

    caller: Caller
    envelope: tuple[bytes, ...]
    """The frames that lead a reply back: a REQ socket adds an empty one."""
    user: User | None = None
    """A client from the network; None for one of this machine, which is our own user."""

    @property
    def left(self) -> asyncio.Future[None]:
        """Done as soon as it has gone."""
        return self.caller.left


@dataclass(frozen=True, slots=True)
class Gate:
    """Where clients from the network come in."""

    guard: Guard
    place: Place


Heard = Callable[[Peer, list[bytes], AssistantError | None], None]
"""Takes a message; the error says why it was not kept whole (its header may be there)."""


@dataclass(slots=True)
class _Arriving:
    """A message that is taken frame by frame, so that nothing is kept of what is too large."""

    limits: Limits
    peer: Peer
    frames: list[bytes] = field(default_factory=list)
    refused: AssistantError | None = None
    count: int = 0
    body: int = 0

    def add(self, frame: zmq.Frame) -> None:
        size, limits = len(frame), self.limits
        if not self.count and not size and frame.more and len(self.peer.envelope) == 1:
            self.peer = Peer(self.peer.caller, (*self.peer.envelope, b""), self.peer.user)
            return
        self.count += 1
        self.body += size if self.count > 1 else 0
        if self.count == 1 and size > limits.header_bytes:
            self._refuse(f"the header has {size} bytes; at most {limits.header_bytes} are taken")
        elif self.count > limits.frames:
            self._refuse(f"the message has more than {limits.frames} frames, which is what is taken")
        elif self.body > limits.body_bytes:
            self._refuse(f"at most {limits.body_bytes} bytes are taken behind the header")
        if self.refused is None:
            self.frames.append(frame.bytes)

    def _refuse(self, what: str) -> None:
        """Keeps the header alone, for the `id` of the answer."""
        del self.frames[1:]
        if self.refused is None:
            self.refused = UsageError(f"{what} (docs/protocol.md has the format)", code="bad-message")


class Endpoint:
    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        path: Path,
        limits: Limits,
        heard: Heard,
        most: int | None = None,
        gate: Gate | None = None,
    ) -> None:
        """`most` local connections at a time; None: 512, or less when the limit of open files is low.

        `gate`: where clients from the network come in, who are kept as long as it wants them.
        """
        self._context, self._path, self._limits, self._heard = context, path, limits, heard
        self._gate = gate
        self._most = _share_of_the_files() if most is None else most
        self._arriving: _Arriving | None = None
        self._again: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop
        self._socket: zmq.Socket[bytes] | None = None

    async def open(self) -> None:
        """Binds the path (0600), replacing a file that a killed daemon left there; the caller holds the daemon's lock.
        With a gate TCP as well.

        Raises `ConfigError`.
        """
        self._loop = asyncio.get_running_loop()
        router: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.LINGER, 0),
            (zmq.MAXMSGSIZE, self._limits.frame_bytes),
            (zmq.RCVHWM, _UNHEARD),
            (zmq.SNDHWM, _UNREAD),
            (zmq.BACKLOG, _BACKLOG),
            (zmq.HANDSHAKE_IVL, _HANDSHAKE_MS),
        ):
            router.setsockopt(option, value)
        gate = self._gate
        callers: Callers | None = None
        try:
            door = None if gate is None else gate.guard
            callers = self._callers = Callers(self._context, router, str(self._path), self._most, door)
            with sockets.fresh(self._path):
                router.bind(sockets.ipc(self._path))
            if gate is not None:
                gate.guard.bind(router, gate.place, self._limits.frame_bytes)
                gate.guard.on_loss(self._callers.drop)
        except (OSError, zmq.ZMQError, ConfigError) as error:
            if callers is not None:
                callers.close()
            router.close()
            with contextlib.suppress(OSError):
                self._path.unlink()
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"the socket {self._path} cannot be made: {error}", code="runtime-dir") from None
        self._socket = router
        self._fd: int = router.getsockopt(zmq.FD)  # type: ignore[assignment]
        self._loop.add_reader(self._fd, self._drain)
        self._look_again()

    def _drain(self) -> None:
        """Takes what has arrived. The descriptor tells only that something changed, so nothing may be left behind."""
        self._again = None
        room = _BYTES_AT_ONCE
        for _ in range(_AT_ONCE):
            if self._socket is None:
                return
            if room <= 0:
                break
            try:
                frame = self._socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            room -= len(frame)
            self._take(frame)
        self._look_again()

    def _take(self, frame: zmq.Frame) -> None:
        if self._arriving is None:
            fd: int = frame.get(zmq.SRCFD)
            user = None if self._gate is None else user_of(frame)
            caller = self._callers.of(frame.bytes, fd, user.key if user else "")
            self._arriving = _Arriving(self._limits, Peer(caller, (frame.bytes,), user))
            return
        found = self._arriving
        found.add(frame)
        if frame.more:
            return
        self._arriving = None
        try:
            self._heard(found.peer, found.frames, found.refused)
        except Exception:
            log.exception("a message ended with an error of ours")  # the next one is heard all the same

    def _look_again(self) -> None:
        if self._again is None and self._socket is not None:
            self._again = self._loop.call_soon(self._drain)

    def send_now(self, peer: Peer, frames: list[bytes]) -> None:
        """Raises `PeerGone`, `PeerSlow`."""
        if self._socket is None or peer.left.done():
            raise PeerGone
        try:
            self._socket.getsockopt(zmq.EVENTS)  # else libzmq looks a millisecond later who has gone
            self._socket.send_multipart([*peer.envelope, *frames], zmq.NOBLOCK)
        except zmq.Again:
            raise PeerSlow from None
        except zmq.ZMQError:  # EHOSTUNREACH
            peer.caller.leave()
            raise PeerGone from None
        finally:
            # both may have swallowed the descriptor's sign that something arrived
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

    async def close(self) -> None:
        """Removes the socket. What was just said has a moment to leave, for which the context's end waits."""
        if self._socket is None:
            return
        router, self._socket = self._socket, None
        self._loop.remove_reader(self._fd)
        if self._again is not None:
            self._again.cancel()
        self._callers.close()
        router.close(linger=_LAST_WORDS_MS)
        self._path.unlink(missing_ok=True)


def _share_of_the_files() -> int:
    """libzmq ends the whole process when it cannot open one more: most are for those that are about to be closed."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(_MOST, max(1, (most - _OTHER_FILES) // 4)) if most > 0 else _MOST
