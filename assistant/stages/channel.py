"""What goes over the private socket between the daemon and one worker: frames and their messages. No policy.

A frame is a little-endian uint32 length and that many bytes of msgpack, one tagged message. msgpack because PCM goes
in it as it is; both ends are ours and of one version. A frame that does not decode ends the connection: there is no
way to find the next one.
"""

from __future__ import annotations

import select
import socket
import struct
from pathlib import Path
from typing import Any

import msgspec

from assistant.errors import AssistantError, StageError, by_name
from assistant.messages import AsrRequest, StageOutput, StageRequest
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.placement import Placement

MAX_FRAME = 64 * 1024 * 1024
"""Bytes. Ten minutes of 16 kHz PCM are 19 MB; anything near this limit is a fault."""

_LENGTH = struct.Struct("<I")


class _Frame(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


# --- daemon -> worker -----------------------------------------------------------------------------------------------
class Prepare(_Frame, frozen=True, kw_only=True):
    """Import the engine's module and its libraries; touch no weights."""

    stage: str
    engine: str
    """`module:Class`."""
    placement: Placement = Placement()
    """Taken up before the import, so that every thread of the engine has it."""


class Load(_Frame, frozen=True, kw_only=True):
    config: EngineConfig


class Run(_Frame, frozen=True, kw_only=True):
    id: int
    request: StageRequest

    @property
    def live(self) -> bool:
        """Whether `More` follows."""
        return isinstance(self.request, AsrRequest) and self.request.live


class More(_Frame, frozen=True, kw_only=True):
    """The sound of a live request goes on."""

    id: int
    pcm: bytes
    last: bool = False
    """That was all of it."""


class Cancel(_Frame, frozen=True, kw_only=True):
    id: int


class Stop(_Frame, frozen=True, kw_only=True):
    pass


# --- worker -> daemon -----------------------------------------------------------------------------------------------
class Prepared(_Frame, frozen=True, kw_only=True):
    import_ms: float


class Ready(_Frame, frozen=True, kw_only=True):
    info: EngineInfo
    load_ms: float


class Output(_Frame, frozen=True, kw_only=True):
    id: int
    body: StageOutput


class Waiting(_Frame, frozen=True, kw_only=True):
    """A live request has heard everything that was sent, and waits for more."""

    id: int
    taken: int
    """Frames of `More` so far: a newer one may be on its way already."""


class Done(_Frame, frozen=True, kw_only=True):
    id: int
    cancelled: bool


class Failure(_Frame, frozen=True, kw_only=True):
    """A typed error; `id` 0 = while preparing or loading."""

    id: int
    error: str
    code: str
    message: str

    @classmethod
    def of(cls, request_id: int, error: AssistantError) -> Failure:
        return cls(id=request_id, error=type(error).__name__, code=error.code, message=error.message)

    def to_error(self, stage: str) -> AssistantError:
        return by_name(self.error)(self.message, code=self.code, stage=stage)


ToWorker = Prepare | Load | Run | More | Cancel | Stop
FromWorker = Prepared | Ready | Output | Waiting | Done | Failure


def _plain(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} does not go over the channel")


def _rich(wanted: type, value: Any) -> Any:
    if issubclass(wanted, Path):
        return Path(value)
    raise TypeError(f"{wanted.__name__} does not come over the channel")


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
_to_worker = msgspec.msgpack.Decoder(ToWorker, dec_hook=_rich)
_from_worker = msgspec.msgpack.Decoder(FromWorker)


def encode(frame: ToWorker | FromWorker) -> bytes:
    body = _encoder.encode(frame)
    if len(body) > MAX_FRAME:
        raise StageError(f"a message of {len(body)} bytes is larger than the {MAX_FRAME} that a worker takes")
    return _LENGTH.pack(len(body)) + body


def decode_to_worker(body: bytes) -> ToWorker:
    """Raises `StageError` for bytes that are no message."""
    try:
        return _to_worker.decode(body)
    except msgspec.DecodeError as error:
        raise StageError(f"a worker was sent something that is no message: {error}") from None


def decode_from_worker(body: bytes) -> FromWorker:
    """Raises `StageError` for bytes that are no message."""
    try:
        return _from_worker.decode(body)
    except msgspec.DecodeError as error:
        raise StageError(f"a worker sent something that is no message: {error}") from None


class Splitter:
    """Cuts a stream of bytes into frame bodies, however the bytes arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Raises `StageError` for a length above `MAX_FRAME`."""
        self._buffer += data
        bodies: list[bytes] = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME:
                raise StageError(f"a frame claims {length} bytes; the limit is {MAX_FRAME}")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[_LENGTH.size : end]))
            del self._buffer[:end]
        return bodies


class WorkerEnd:
    """The worker's side: blocking, one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._splitter = Splitter()
        self._ready: list[bytes] = []

    def send(self, frame: FromWorker) -> None:
        self._sock.sendall(encode(frame))

    def receive(self) -> ToWorker | None:
        """The next message; None when the daemon has gone."""
        while not self._ready:
            data = self._sock.recv(1 << 16)
            if not data:
                return None
            self._ready += self._splitter.feed(data)
        return decode_to_worker(self._ready.pop(0))

    def pending(self) -> bool:
        """Whether `receive` would answer (or see the end) without waiting for a new message to begin."""
        return bool(self._ready) or bool(select.select([self._sock], [], [], 0)[0])
