"""What engines on servers have in common: addresses, deadlines, and how their results are waited for.

Imports `errors`. The work blocks (a name is looked up, a connection made and read), so a thread does it; the worker's
own thread looks for results many times a second, so it yields progress and hears a cancel. Knows no protocol.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from assistant.errors import ConfigError, RemoteFailed
from assistant.plain_text import plain

POLL_S = 0.05
"""Between two looks for a result, and so the longest that a cancel waits."""
_ALL = 3
"""Deadlines that all results of a request may take together, beyond the time of speaking them."""
_AHEAD = 32
"""Results that may wait to be taken; a server that floods us waits as well."""

WYOMING_PORTS = {"tcp": 0, "unix": 0}
HTTP_PORTS = {"http": 80, "https": 443}
"""The schemes that an address may have, with their default ports."""

UNREACHABLE, REFUSED, LATE, BROKE_OFF, GARBAGE = (
    "remote-unreachable",
    "remote-refused",
    "remote-late",
    "remote-broke-off",
    "remote-garbage",
)

T = TypeVar("T")
Closable = TypeVar("Closable", bound="HasClose")
_Options = TypeVar("_Options")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    """Of the socket, or behind the host of a URL."""

    @property
    def name(self) -> str:
        """Of the machine and its port, or of the socket's file; short enough for a table."""
        return self.path.rpartition("/")[2] if self.scheme == "unix" else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def address_of(text: str, key: str, ports: Mapping[str, int]) -> Address:
    """`text` as an address. `ports`: the schemes that are allowed, with their default port (0 = none; "unix" needs
    none). Raises `ConfigError` that names the setting `key`; never repeats what may be a password."""
    schemes = " or ".join(f"{scheme}://" for scheme in ports)
    if not all(33 <= ord(letter) <= 126 for letter in text):
        raise ConfigError(f"{key} has something else than plain letters in it; write {schemes}…")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{key} is no address: {error}; write {schemes}…") from None
    if parts.scheme not in ports:
        raise ConfigError(f"{key} must begin with {schemes}")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{key} has a user or a password in it, which would be shown; leave it out")
    if parts.query or parts.fragment:
        raise ConfigError(f"{key} must end with the path: no '?' and no '#'")
    if parts.scheme == "unix":
        path = unquote(f"{parts.netloc}{parts.path}")
        if not path.startswith("/"):
            raise ConfigError(f"{key}: write the whole path of the socket, for example unix:///run/wyoming/asr.sock")
        return Address("unix", path=path)
    port = port or ports[parts.scheme]
    if not parts.hostname or not port:
        raise ConfigError(f"{key}: write host and port, for example {parts.scheme}://192.168.1.5:10300")
    return Address(parts.scheme, parts.hostname, port, parts.path.rstrip("/"))


def options_of(given: Mapping[str, Any], kind: type[_Options], stage: str) -> _Options:
    """An engine's options, checked. Raises `ConfigError`."""
    try:
        return msgspec.convert(dict(given), kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"stages.{stage}: {error}") from None


def clean(text: str, most: int, where: Address) -> str:
    """A server's text as text that every other part can take: what is no Unicode becomes "?", and what a terminal
    would obey is left out.

    Raises `RemoteFailed` for more than `most` characters."""
    if len(text) > most:
        raise RemoteFailed(f"{where} gave a text of {len(text)} characters", code=GARBAGE)
    return plain(text.encode("utf-8", "replace").decode("utf-8"))


class HasClose(Protocol):
    def close(self) -> object: ...


class Link:
    """A connection that belongs to the thread which works, and that another one may break off."""

    def __init__(self, where: Address, deadline_s: float) -> None:
        self.where = where
        self.connected = False
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._kept = contextlib.ExitStack()
        self._over = False

    def connect(self) -> socket.socket:
        """Raises `OSError`. The connection waits for nothing longer than the deadline."""
        if self.where.scheme == "unix":
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(self._deadline_s)
            self.hold(sock)
            sock.connect(self.where.path)
        else:
            sock = socket.create_connection((self.where.host, self.where.port), self._deadline_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.hold(sock)
        self.connected = True
        return sock

    def hold(self, sock: socket.socket) -> None:
        """From here on this is the connection. Raises `OSError` when it is not wanted any more."""
        with self._lock:
            self._sock = sock
            if self._over:
                sock.close()
                raise OSError("not wanted any more")

    def keep(self, thing: Closable) -> Closable:
        """Something that reads from the connection: closed with it."""
        self._kept.callback(thing.close)
        return thing

    def break_off(self) -> None:
        """Wakes whoever reads or writes; the number of the socket stays his, so that he reads from no other one."""
        with self._lock:
            self._over = True
            if self._sock is not None:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(self._sock, socket.SHUT_RDWR)  # a TLS one has its own idea of it

    def close(self) -> None:
        """By the thread that works."""
        with contextlib.suppress(OSError, ValueError):
            self._kept.close()
        with self._lock:
            self._over = True
            if self._sock is not None:
                self._sock.close()
                self._sock = None


class _End:
    """Behind the last result."""


def results(
    work: Callable[[Link], Iterator[T]],
    where: Address,
    deadline_s: float,
    spoken_s: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[T | None]:
    """What `work` yields, which runs in a thread and may block; None each `POLL_S` without any.

    `spoken_s`: how long the answer lasts when it is spoken, at most. Raises `RemoteFailed` when the first result, or
    the next, takes longer than `deadline_s`; when all of them were waited for longer than three times that and
    `spoken_s`, however steadily a few came; and when the connection fails. Leaving early breaks the connection off.
    """
    link = Link(where, deadline_s)
    arrived: queue.Queue[Any] = queue.Queue(_AHEAD)
    unwanted = threading.Event()

    def hand_over(item: Any) -> None:
        while not unwanted.is_set():
            with contextlib.suppress(queue.Full):
                return arrived.put(item, timeout=POLL_S)

    def run() -> None:
        try:
            for item in work(link):
                hand_over(item)
                if unwanted.is_set():
                    return
            hand_over(_End)
        except Exception as error:  # noqa: BLE001 - raised in the other thread
            hand_over(error)
        finally:
            link.close()

    threading.Thread(target=run, name="remote", daemon=True).start()
    until = clock() + deadline_s
    all_s = left_s = _ALL * deadline_s + spoken_s
    try:
        while True:
            before = clock()
            left = until - before
            if left <= 0:
                raise _late(where, deadline_s)
            if left_s <= 0:
                raise RemoteFailed(f"{where} had not finished after {all_s:g} s", code=LATE)
            try:
                item = arrived.get(timeout=min(POLL_S, left))
            except queue.Empty:
                left_s -= clock() - before
                yield None
                continue
            if item is _End:
                return
            if isinstance(item, Exception):
                raise _told(item, link, deadline_s)
            left_s -= clock() - before
            yield item
            until = clock() + deadline_s  # what our own side does in between is not the server's time
    finally:
        unwanted.set()
        link.break_off()


def _late(where: Address, deadline_s: float) -> RemoteFailed:
    return RemoteFailed(f"{where} gave no result within {deadline_s:g} s", code=LATE)


def _told(error: Exception, link: Link, deadline_s: float) -> Exception:
    """What a user is told of a connection that failed; other errors as they are."""
    if isinstance(error, TimeoutError):
        return _late(link.where, deadline_s)
    if not isinstance(error, OSError):
        return error
    reason = error.strerror or str(error) or type(error).__name__
    if link.connected:
        return RemoteFailed(f"the connection to {link.where} broke off: {reason}", code=BROKE_OFF)
    return RemoteFailed(f"{link.where} cannot be reached: {reason}", code=UNREACHABLE)
