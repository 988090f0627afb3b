"""ZeroMQ's wire protocol as a ROUTER at a local socket speaks it: ZMTP 3.0, mechanism NULL (rfc.zeromq.org/spec/23).

Bytes in, messages out; pure, knows no socket. Here and not libzmq's, because libzmq bounds a frame and counts whole
messages: one message of endless frames is held without a limit, before anybody can look at it. A `Reader` keeps
nothing of what is too large: it reads on to the end of that message, so that even this one can be answered.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from assistant.errors import AssistantError, BusyNow, UsageError

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
"""Signature, version 3.0, mechanism, as-server (no), filler: 64 bytes."""
_MORE, _LONG, _COMMAND = 1, 2, 4
_MAX_COMMAND = 1024
_BUSY_MS = 500
_HOPELESS = 16
"""Times the frames that are taken: whoever sends so many is not read to the end."""


class NotZmtp(Exception):
    """The peer speaks something else."""


class Room:
    """Bytes of messages that are still arriving, of all peers together."""

    def __init__(self, most: int) -> None:
        self.most, self.held = most, 0

    def take(self, size: int) -> bool:
        if self.held + size > self.most:
            return False
        self.held += size
        return True

    def give_back(self, size: int) -> None:
        self.held -= size


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one message."""

    header_bytes: int
    body_bytes: int
    """Of all frames behind the header together."""
    frames: int


@dataclass(frozen=True, slots=True)
class Message:
    frames: list[bytes]
    """Without the empty one that a REQ socket puts before them."""
    enveloped: bool
    refused: AssistantError | None
    """Why it was not kept; its frames up to there."""


def encoded(frames: list[bytes], enveloped: bool) -> bytes:
    """A message as bytes of the wire."""
    parts = [b"", *frames] if enveloped else frames
    return b"".join(_frame(part, _MORE if index < len(parts) - 1 else 0) for index, part in enumerate(parts))


def _frame(body: bytes, flags: int) -> bytes:
    if len(body) > 255:
        return struct.pack(">BQ", flags | _LONG, len(body)) + body
    return bytes((flags, len(body))) + body


def command(name: bytes, data: bytes = b"") -> bytes:
    return _frame(bytes((len(name),)) + name + data, _COMMAND)


def ready() -> bytes:
    kind, value = b"Socket-Type", b"ROUTER"
    return command(b"READY", bytes((len(kind),)) + kind + struct.pack(">I", len(value)) + value)


class Reader:
    """What one peer sends. `feed` bytes, then call `next` until it gives None."""

    def __init__(self, limits: Limits, room: Room) -> None:
        self._limits, self._room = limits, room
        self._buffer = bytearray()
        self._greeted = self._ready = False
        self._in_frame = self._more = self._is_command = False
        self._left = 0
        self._chunks: list[bytes] = []
        self._begin()

    def _begin(self) -> None:
        self._frames: list[bytes] = []
        self._count = self._held = self._announced = 0
        self._enveloped = False
        self._refused: AssistantError | None = None

    @property
    def unfinished(self) -> bool:
        """Whether the peer owes us the rest of something, its first words included."""
        return not self._ready or self._in_frame or self._count > 0 or len(self._buffer) > 0

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def drop(self) -> None:
        """The peer has gone: nothing of it is held any more."""
        self._buffer.clear()
        self._let_go()

    def next(self) -> Message | bytes | None:
        """A message, the body of a command, or None until more has arrived. Raises `NotZmtp`."""
        if not self._greeted and not self._greet():
            return None
        while self._in_frame or self._open_frame():
            if not self._fill():
                return None
            body, self._chunks, self._in_frame = b"".join(self._chunks), [], False
            if self._is_command:
                if not self._ready and not body.startswith(b"\5READY"):
                    raise NotZmtp
                self._ready = True
                return body
            if (message := self._close_frame(body)) is not None:
                return message
        return None

    def _greet(self) -> bool:
        head = bytes(self._buffer[: len(GREETING)])
        if head[:1] not in (b"", b"\xff") or (len(head) > 10 and (head[9] != 0x7F or head[10] < 3)):
            raise NotZmtp
        if len(head) < len(GREETING):
            return False
        if head[12:32] != GREETING[12:32]:
            raise NotZmtp
        del self._buffer[: len(GREETING)]
        self._greeted = True
        return True

    def _open_frame(self) -> bool:
        """Reads what announces a frame: its size decides before its first byte is kept."""
        if not self._buffer:
            return False
        flags = self._buffer[0]
        long = bool(flags & _LONG)
        if len(self._buffer) < (9 if long else 2):
            return False
        size = int.from_bytes(self._buffer[1:9]) if long else self._buffer[1]
        del self._buffer[: 9 if long else 2]
        self._is_command, self._more = bool(flags & _COMMAND), bool(flags & _MORE)
        if flags & ~(_MORE | _LONG | _COMMAND) or (self._is_command and (self._more or size > _MAX_COMMAND)):
            raise NotZmtp
        if not self._ready and not self._is_command:
            raise NotZmtp
        self._in_frame, self._left = True, size
        if not self._is_command:
            self._announce(size)
        return True

    def _announce(self, size: int) -> None:
        if self._count == 0 and size == 0 and self._more and not self._enveloped:
            return
        limits = self._limits
        self._count += 1
        if self._count == 1:
            if size > limits.header_bytes:
                self._refuse(_bad(f"the header has {size} bytes; at most {limits.header_bytes} are taken"))
            return
        self._announced += size
        if self._count > _HOPELESS * limits.frames:
            raise NotZmtp
        if self._count > limits.frames:
            self._refuse(_bad(f"the message has more than {limits.frames} frames, which is what is taken"))
        elif self._announced > limits.body_bytes:
            self._refuse(_bad(f"at most {limits.body_bytes} bytes are taken behind the header"))

    def _fill(self) -> bool:
        """Moves what has arrived into the frame; whether that is all of it."""
        arrived = min(self._left, len(self._buffer))
        if arrived:
            if not self._is_command and self._refused is None and not self._room.take(arrived):
                self._refuse(BusyNow("other recordings are arriving; ask again later", retry_after_ms=_BUSY_MS))
            if self._is_command or self._refused is None:
                self._chunks.append(bytes(self._buffer[:arrived]))
            if not self._is_command and self._refused is None:
                self._held += arrived
            del self._buffer[:arrived]
            self._left -= arrived
        return self._left == 0

    def _close_frame(self, body: bytes) -> Message | None:
        if self._count == 0:
            self._enveloped = True
            return None
        if self._refused is None:
            self._frames.append(body)
        if self._more:
            return None
        message = Message(self._frames, self._enveloped, self._refused)
        self._let_go()
        self._begin()
        return message

    def _refuse(self, why: AssistantError) -> None:
        """Keeps the header alone, for the `id` of the answer."""
        self._refused = self._refused or why
        del self._frames[1:]
        self._chunks.clear()
        kept = sum(map(len, self._frames))
        self._room.give_back(self._held - kept)
        self._held = kept

    def _let_go(self) -> None:
        self._room.give_back(self._held)
        self._held = 0
        self._frames, self._chunks = [], []


def _bad(what: str) -> UsageError:
    return UsageError(f"{what} (docs/protocol.md has the format)", code="bad-message")
