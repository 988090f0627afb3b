"""The door for clients from the network: TCP with CURVE alone, and for listed keys alone.

CURVE (rfc.zeromq.org/spec/26) encrypts, and proves that a client has the secret of its public key. libzmq asks us with
ZAP (rfc.zeromq.org/spec/27) which keys come in. Whoever is refused gets no answer, and one line in the log.
Imports zmq, `allowed`, `keys`, `rights`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import zmq
from zmq.utils import z85

from assistant.api import keys as key_files
from assistant.api import rights
from assistant.api.allowed import Allowed, AllowList
from assistant.api.rights import Right
from assistant.errors import ConfigError

log = logging.getLogger(__name__)

HEARTBEAT_S = 5.0
"""A client that has been silent for so long is asked whether it is there, and is gone if it does not answer for as long
again."""
_ZAP = "inproc://zeromq.zap.01"
_KEY = "X-Key"
"""The property of a message that holds its sender's public key; set by us, and whatever a client says is not used."""
_LOOK_S = 1.0
_TELL_S = 60.0
_ENCRYPTED = 64
"""Bytes that CURVE adds to a frame, at most."""
FRAME_BYTES = 2**20
"""Of a frame from the network. libzmq takes as much of anybody who has not yet said who it is."""
_HANDSHAKE = 1024
"""Bytes of what is said before the first message; the limit of a frame counts for that, too."""
_UNHEARD = 2
"""Messages that libzmq takes before we have taken them. With 1, it waits for ever once it has asked us about a key: the
routing id of the client takes the place of its first message."""
_TRIES = 20
_TRY_S = 0.005
"""A socket that was closed in this moment gives its port free a little later."""


_REFUSED = (b"300", b"", b"", b"")
"""Not 400, which would tell the client: with 300 its connection ends without a word."""


class Place(IntEnum):
    """A socket, by its distance from the first port."""

    COMMAND = 0
    CONTROL = 1
    EVENTS = 2


@dataclass(frozen=True, slots=True)
class Network:
    """What is needed to listen at TCP."""

    host: str
    port: int
    keys: key_files.Keys
    allowed: AllowList

    def address(self, place: Place) -> str:
        return f"tcp://{self.host}:{self.port + place}"


def network(address: tuple[str, int], folder: Path) -> Network:
    """Raises `ConfigError` when there are no keys, or nobody is listed: TCP is never open to whoever comes."""
    keys = key_files.read_server(folder)
    allowed = AllowList(folder / key_files.CLIENTS)
    if not allowed.look():
        raise ConfigError(
            f"api.tcp is set, but no client is listed in {folder / key_files.CLIENTS}; make one with"
            " 'assistant config keys --client NAME'"
        )
    return Network(*address, keys, allowed)


@dataclass(frozen=True, slots=True)
class User:
    """Who sent a message from the network, as CURVE has proved it."""

    name: str
    key: str
    """Public. The name may be given to another key."""


def user_of(frame: zmq.Frame) -> User | None:
    """None for a client of this machine. Told by the message itself: its descriptor may be another client's by now."""
    try:
        return User(str(frame.get("User-Id")), str(frame.get(_KEY)))
    except zmq.ZMQError:
        return None


class Refusals:
    """One line in the log for many refusals: at once, and then once a minute with how many there were."""

    def __init__(
        self, warn: Callable[[str], object] = log.warning, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._warn, self._clock = warn, clock
        self._told_at = -_TELL_S
        self._untold = 0
        self._last = ""

    def add(self, address: str, why: str) -> None:
        self._untold += 1
        self._last = f"{address}: {why}"
        self.tell()

    def tell(self) -> None:
        """What has not been told yet, if it is time for that."""
        if self._untold and self._clock() - self._told_at >= _TELL_S:
            what = "a connection" if self._untold == 1 else f"{self._untold} connections"
            self._warn(f"{what} from the network refused; the last one from {self._last}")
            self._told_at, self._untold = self._clock(), 0


class Guard:
    """Of one zmq context: answers ZAP inside the loop, and knows what each key may do."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], network: Network) -> None:
        self._context, self._network = context, network
        self._refusals = Refusals()
        self._losers: list[Callable[[Callable[[str], bool]], None]] = []
        self._lookers: list[Callable[[Mapping[str, Allowed]], None]] = []
        self._known: dict[str, Allowed] = {}
        self._used: dict[str, frozenset[Right]] = {}
        """What each key was let in with: a key may come and go between two looks at the list."""
        self._loop: asyncio.AbstractEventLoop
        self._socket: zmq.Socket[bytes] | None = None

    def open(self) -> None:
        """Before any socket is bound by `bind`."""
        self._loop = asyncio.get_running_loop()
        self._socket = self._context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(_ZAP)
        self._fd: int = self._socket.getsockopt(zmq.FD)  # type: ignore[assignment]
        self._loop.add_reader(self._fd, self._drain)
        self._known = self._network.allowed.look()
        self._used = {key: one.rights for key, one in self._known.items()}
        self._timer = self._loop.call_later(_LOOK_S, self._watch)
        self._drain()

    def bind(self, socket: zmq.Socket[bytes], place: Place, frame_bytes: int, heartbeat_s: float = HEARTBEAT_S) -> None:
        """Binds it to TCP as well; what it was bound to before stays as it was. Raises `ConfigError`."""
        address = self._network.address(place)
        keys = self._network.keys
        options: tuple[tuple[int, Any], ...] = (
            (zmq.CURVE_SERVER, 1),
            (zmq.CURVE_PUBLICKEY, keys.public.encode()),
            (zmq.CURVE_SECRETKEY, keys.secret.encode()),
            (zmq.ZAP_DOMAIN, place.name.lower().encode()),
            (zmq.ZAP_ENFORCE_DOMAIN, 1),  # without us to ask, nobody comes in
            (zmq.IPV6, int(":" in self._network.host)),
            (zmq.MAXMSGSIZE, min(max(frame_bytes, _HANDSHAKE), FRAME_BYTES) + _ENCRYPTED),
            (zmq.RCVHWM, max(_UNHEARD, int(socket.getsockopt(zmq.RCVHWM)))),
            (zmq.HEARTBEAT_IVL, round(heartbeat_s * 1000)),
            (zmq.HEARTBEAT_TIMEOUT, round(heartbeat_s * 1000)),
            (zmq.HEARTBEAT_TTL, round(heartbeat_s * 4000)),
        )
        try:
            for option, value in options:
                socket.setsockopt(option, value)
            _bind(socket, address)
        except zmq.ZMQError as error:
            raise ConfigError(f"api.tcp: {address} cannot be listened at: {error}") from None

    def allowed(self, key: str) -> Allowed | None:
        """As of now."""
        known = self._network.allowed.of(key)
        if known is not None:
            self._used[key] = self._used.get(key, frozenset()) | known.rights
        return known

    def permit(self, key: str, command: Any) -> None:
        """`command`: a struct of `wire`. Raises `UsageError` code "forbidden"."""
        rights.check(self.rights(key), command)

    def rights(self, key: str) -> frozenset[Right]:
        """As of now. Raises `UsageError` code "forbidden" when the key is not listed any more."""
        known = self.allowed(key)
        if known is None:
            self._loop.call_soon(self._look)  # whoever it is, is shown out
            raise rights.forbidden("the key of this client is not listed any more")
        return known.rights

    def may_follow(self, key: str) -> bool:
        """Whether the events of everybody are for this key."""
        known = self.allowed(key)
        return known is not None and Right.OBSERVE in known.rights

    def on_loss(self, loser: Callable[[Callable[[str], bool]], None]) -> None:
        """Called when somebody has lost a right: connections are to be ended, of all keys but those to be kept.

        What it has begun with that right (a query, an intent handler) ends with them.
        """
        self._losers.append(loser)

    def on_look(self, looker: Callable[[Mapping[str, Allowed]], None]) -> None:
        """Called with all clients by their keys whenever the list was looked at, once a second at least."""
        self._lookers.append(looker)

    def refused(self, address: str, why: str) -> None:
        self._refusals.add(address, why)

    # --- ZAP --------------------------------------------------------------------------------------------------------
    def _drain(self) -> None:
        with contextlib.suppress(zmq.Again):
            while self._socket is not None:
                self._socket.send_multipart(self._answer(self._socket.recv_multipart(zmq.NOBLOCK)), zmq.NOBLOCK)

    def _answer(self, request: list[bytes]) -> list[bytes]:
        """Raises nothing: without an answer libzmq would wait, and we could not hear its next question."""
        number = request[1] if len(request) > 1 else b""
        try:
            return [b"1.0", number, *self._decide(request)]
        except Exception:
            log.exception("a question about a key ended with an error of ours")
            return [b"1.0", number, *_REFUSED]

    def _decide(self, request: list[bytes]) -> tuple[bytes, ...]:
        """Status, its text, the user's id, properties of its messages."""
        _, _, domain, address, _, mechanism, *credentials = request
        key = z85.encode(credentials[0]).decode() if mechanism == b"CURVE" and credentials else ""
        known = self.allowed(key)
        why = ""
        if known is None:
            why = f"unknown key {key}"
        elif domain == b"events" and Right.OBSERVE not in known.rights:
            why = f"{known.name} may not observe"
        if known is None or why:
            self._refusals.add(address.decode("ascii", "replace"), why)
            return _REFUSED
        return (b"200", b"", known.name.encode(), _property(_KEY, key))

    # --- the list changes -------------------------------------------------------------------------------------------
    def _watch(self) -> None:
        self._timer = self._loop.call_later(_LOOK_S, self._watch)
        self._refusals.tell()
        self._look()

    def _look(self) -> None:
        now = self._network.allowed.look()
        if self._socket is None:
            return
        for looker in self._lookers:
            looker(now)
        if now != self._known:
            log.info("the list of clients has changed; %d are in it", len(now))
            self._known = now
        lost = {key for key, rights in self._used.items() if key not in now or not rights <= now[key].rights}
        self._used = {key: one.rights for key, one in now.items()}
        if lost:
            for loser in self._losers:
                loser(lambda key: key not in lost)

    def close(self) -> None:
        if self._socket is not None:
            self._timer.cancel()
            self._loop.remove_reader(self._fd)
            self._socket.close()
            self._socket = None


def _bind(socket: zmq.Socket[bytes], address: str) -> None:
    """Raises `zmq.ZMQError`."""
    for left in reversed(range(_TRIES)):
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE or not left:
                raise
        else:
            return
        time.sleep(_TRY_S)


def _property(name: str, value: str) -> bytes:
    """As ZMTP writes one (rfc.zeromq.org/spec/23)."""
    return bytes((len(name),)) + name.encode() + struct.pack(">I", len(value)) + value.encode()
