"""The frames of a message (docs/protocol.md): one UTF-8 JSON header `{v, id, type, data, parent}`, raw PCM behind it.

Imports `errors` and `wire`; pure, knows no socket. Whatever bytes arrive, `decode` gives a checked struct or raises
`UsageError` with one of the codes below.

    bad-message       no frame, too many or too large ones, not UTF-8, not JSON, too deep, a field missing or wrong
    unknown-version   another `v` than ours
    unknown-command   a `type` that this socket does not take
    unknown-field     a field that does not exist
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from assistant.api import wire
from assistant.errors import UsageError

VERSION = 1
MAX_HEADER_BYTES = 64 * 1024
"""Of a command."""
MAX_REPLY_BYTES = 16 * 2**20
"""Of the header of a reply, which may hold a long answer."""
MAX_FRAME_BYTES = 8 * 2**20
"""Of one PCM frame of a command."""
MAX_PCM_BYTES = 30 * 2**20
"""Of all PCM frames of a message together: 15 minutes at 16 kHz are 29 MB."""
PIECE_BYTES = 2**20
"""Of one PCM frame as `encode` makes them: no more comes in by the network."""
MAX_FRAMES = 32
"""The header among them."""


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    v: int
    id: str
    type: str
    data: msgspec.Raw = msgspec.Raw(b"{}")
    parent: str | None = None
    """In replies: the `id` of the command; None when that could not be read."""


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A checked message."""

    id: str
    parent: str | None
    data: Any
    """One of the structs above."""
    pcm: bytes = b""


class _Glimpse(msgspec.Struct):
    """What can be said of a header that may be of another version."""

    v: Any = None
    id: Any = None


T = TypeVar("T")
_MAX_ID = 128
_UNKNOWN_STAGE = re.compile(r"Invalid enum value (.*) - at `\$\.stage`", re.DOTALL)


def encode(
    data: Any, *, id: str | None = None, parent: str | None = None, pcm: bytes = b""
) -> list[bytes]:  # fmt: skip
    """The frames of a command or a reply. Raises `UsageError` for what the other side would refuse."""
    header = Header(
        v=VERSION,
        id=id or uuid.uuid4().hex[:16],
        type=wire.NAMES[type(data)],
        data=msgspec.Raw(_json(data)),
        parent=parent,
    )
    frame = _json(header)
    command = isinstance(data, wire.Data)
    most = MAX_HEADER_BYTES if command else MAX_REPLY_BYTES
    if len(frame) > most:
        raise _bad(f"the header has {len(frame)} bytes; at most {most} are taken")
    if len(pcm) > MAX_PCM_BYTES:
        raise _bad(f"the recording has {len(pcm)} bytes; at most {MAX_PCM_BYTES} are taken")
    if not command:
        return [frame, pcm] if pcm else [frame]
    return [frame, *(pcm[at : at + PIECE_BYTES] for at in range(0, len(pcm), PIECE_BYTES))]


def _json(data: Any) -> bytes:
    try:
        return msgspec.json.encode(data, enc_hook=str)
    except UnicodeEncodeError:
        raise _bad("a text is not valid Unicode") from None


def decode(frames: Sequence[bytes], kinds: Mapping[str, type[Any]], max_header: int = MAX_HEADER_BYTES) -> Received:
    """`kinds`: what may arrive here, by its `type`. Raises `UsageError` that names the offence."""
    if not frames:
        raise _bad("there is no header frame")
    if len(frames) > MAX_FRAMES:
        raise _bad(f"the message has {len(frames)} frames; at most {MAX_FRAMES} are taken")
    pcm = sum(map(len, frames[1:]))
    if len(frames[0]) > max_header or pcm > MAX_PCM_BYTES:
        raise _bad(f"at most {max_header} bytes of header and {MAX_PCM_BYTES} of sound are taken")
    glimpse = _parsed(frames[0], _Glimpse)
    if type(glimpse.v) is not int:
        raise _bad("the header has no version `v`")
    if glimpse.v != VERSION:
        raise UsageError(f"version {glimpse.v} is not spoken here, only {VERSION}", code="unknown-version")
    header = _parsed(frames[0], Header)
    if not 0 < len(header.id) <= _MAX_ID:
        raise _bad(f"`id` must have 1 to {_MAX_ID} characters")
    kind = kinds.get(header.type)
    if kind is None:
        known = ", ".join(kinds)
        raise UsageError(f"{header.type[:64]!r} is not known at this socket; it takes: {known}", code="unknown-command")
    data = _parsed(bytes(header.data), kind)
    return Received(id=header.id, parent=header.parent, data=data, pcm=b"".join(frames[1:]))


def id_of(frames: Sequence[bytes]) -> str | None:
    """The `id` of a message that is otherwise wrong; None when it has none that can be read."""
    try:
        found = _parsed(frames[0][: MAX_HEADER_BYTES + 1], _Glimpse).id
    except (UsageError, IndexError):
        return None
    return found if isinstance(found, str) and 0 < len(found) <= _MAX_ID else None


def _parsed(frame: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(frame, type=kind)
    except msgspec.ValidationError as error:
        text = str(error)
        if (stage := _UNKNOWN_STAGE.match(text)) is not None:
            raise UsageError(f"{stage[1][:64]} is no stage; there are {wire.STAGES}", code="unknown-stage") from None
        raise _bad(text, code="unknown-field" if "unknown field" in text else "bad-message") from None
    except UnicodeDecodeError:
        raise _bad("the header is not UTF-8") from None
    except RecursionError:
        raise _bad("the header is nested too deep") from None
    except msgspec.DecodeError as error:
        raise _bad(f"the header is not JSON: {error}") from None


def _bad(what: str, code: str = "bad-message") -> UsageError:
    return UsageError(f"{what} (docs/protocol.md has the format)", code=code)
