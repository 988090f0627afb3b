"""Wyoming's events off a stream, with a bound on everything. Imports `wyoming.event` and `errors`.

The package's own reader believes every length that it is told; this one is for whoever may connect.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec
from wyoming.event import Event

from assistant.errors import UsageError

MAX_LINE_BYTES = 64 * 1024
MAX_DATA_BYTES = 256 * 1024
MAX_PAYLOAD_BYTES = 2**20
"""Of one piece of sound: five seconds of 48 kHz stereo."""

T = TypeVar("T")


async def read_event(reader: asyncio.StreamReader) -> Event | None:
    """None at the end. Raises `UsageError` code "bad-message"; nothing can be read after that."""
    try:
        line = await reader.readuntil(b"\n")
        head = _object(line)
        data = head.get("data") or {}
        if size := _size(head, "data_length", MAX_DATA_BYTES):
            data = {**data, **_object(await reader.readexactly(size))}
        size = _size(head, "payload_length", MAX_PAYLOAD_BYTES)
        payload = await reader.readexactly(size) if size else None
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except asyncio.LimitOverrunError:
        raise _bad(f"its first line has more than {MAX_LINE_BYTES} bytes") from None
    kind = head.get("type")
    if not isinstance(kind, str) or not isinstance(data, dict):
        raise _bad("it has no type, or data that is no object")
    return Event(type=kind, data=data, payload=payload)


def field(event: Event, name: str, kind: type[T]) -> T:
    """Of an event's data. Raises `UsageError` code "bad-message"."""
    found = event.data.get(name)
    if not isinstance(found, kind) or isinstance(found, bool):
        raise _bad(f"{event.type[:40]!r} needs {name!r}")
    return found


def _object(text: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _bad("it is no JSON object") from None


def _size(head: dict[str, Any], name: str, most: int) -> int:
    size = head.get(name) or 0
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= most:
        raise _bad(f"{name} must be a number up to {most}")
    return size


def _bad(why: str) -> UsageError:
    return UsageError(f"this is no event of the Wyoming protocol: {why}", code="bad-message")
