"""The Wyoming protocol's frames on a blocking connection, with bounds. Imports `errors` and `stages.remote`.

A frame is a line of JSON, `{"type", "data", "data_length", "payload_length"}`, then so many bytes of more JSON data,
then so many bytes of payload. Knows no single event. The protocol's own package reads lines of any length and takes
garbage for the end of the stream, which a client of somebody else's server must not.
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from assistant.errors import RemoteFailed
from assistant.stages.remote import BROKE_OFF, GARBAGE, REFUSED, Address, Link

MAX_LINE, MAX_DATA, MAX_PAYLOAD = 64 << 10, 1 << 20, 4 << 20
"""Bytes that a frame's line, its further data and its payload may have."""


@dataclass(frozen=True, slots=True)
class Event:
    type: str
    data: dict[str, Any] = field(default_factory=dict)
    payload: bytes = b""

    def number(self, key: str, default: int) -> int:
        value = self.data.get(key, default)
        return value if isinstance(value, int) and not isinstance(value, bool) else -1


class Stream:
    """A conversation with a server."""

    def __init__(self, link: Link) -> None:
        """Connects. Raises `OSError`."""
        self._where: Address = link.where
        self._sock: socket.socket = link.connect()
        self._file: BinaryIO = link.keep(self._sock.makefile("rb"))

    def send(self, kind: str, data: dict[str, Any] | None = None, payload: bytes = b"") -> None:
        """Raises `OSError`."""
        more = json.dumps(data).encode() if data else b""
        head: dict[str, Any] = {"type": kind}
        if more:
            head["data_length"] = len(more)
        if payload:
            head["payload_length"] = len(payload)
        self._sock.sendall(json.dumps(head).encode() + b"\n" + more + payload)

    def next(self) -> Event:
        """Raises `OSError`, or `RemoteFailed`: for the end of the stream, for what is no frame, and for the server's
        own event "error"."""
        line = self._file.readline(MAX_LINE + 1)
        if not line:
            raise RemoteFailed(f"{self._where} closed the connection before it had answered", code=BROKE_OFF)
        if len(line) > MAX_LINE:
            raise self._garbage("a line without an end")
        if not line.endswith(b"\n"):
            raise RemoteFailed(f"{self._where} closed the connection in the middle of a frame", code=BROKE_OFF)
        head = self._object(line)
        kind, data = head.get("type"), head.get("data") or {}
        if not isinstance(kind, str) or not isinstance(data, dict):
            raise self._garbage("a frame without a type")
        if length := self._length(head, "data_length", MAX_DATA):
            data = {**data, **self._object(self._exactly(length))}
        payload = self._exactly(self._length(head, "payload_length", MAX_PAYLOAD))
        if kind == "error":
            raise RemoteFailed(f"{self._where} says: {str(data.get('text', 'error'))[:200]!r}", code=REFUSED)
        return Event(kind, data, payload)

    def _object(self, text: bytes) -> dict[str, Any]:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise self._garbage("what is no JSON") from None
        if not isinstance(found, dict):
            raise self._garbage("JSON that is no object")
        return found

    def _length(self, head: dict[str, Any], key: str, most: int) -> int:
        length = head.get(key) or 0
        if not isinstance(length, int) or not 0 <= length <= most:
            raise self._garbage(f"a {key} of {str(length)[:20]}")
        return length

    def _exactly(self, length: int) -> bytes:
        found = self._file.read(length) if length else b""
        if len(found) < length:
            raise RemoteFailed(f"{self._where} closed the connection in the middle of a frame", code=BROKE_OFF)
        return found

    def _garbage(self, what: str) -> RemoteFailed:
        return RemoteFailed(f"{self._where} is no Wyoming server: it sent {what}", code=GARBAGE)
