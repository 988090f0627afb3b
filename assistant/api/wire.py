"""What goes over the sockets (docs/protocol.md): the header frame, the commands, the replies.

A message is one UTF-8 JSON frame `{v, id, type, data, parent}` and any number of raw PCM frames behind it. Imports
`errors` and `messages`; pure, knows no socket. Whatever bytes arrive, `decode` gives a checked struct or raises
`UsageError` with one of the codes below.

    bad-message       no frame, too many or too large ones, not UTF-8, not JSON, too deep, a field missing or wrong
    unknown-version   another `v` than ours
    unknown-command   a `type` that this socket does not take
    unknown-field     a field that does not exist
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from assistant.errors import AssistantError, UsageError
from assistant.messages import ErrorReport, QueryReport, Stage, StageStatus, Status

VERSION = 1
MAX_HEADER_BYTES = 64 * 1024
"""Of a command."""
MAX_REPLY_BYTES = 16 * 2**20
"""Of the header of a reply, which may hold a long answer."""
MAX_FRAME_BYTES = 8 * 2**20
"""Of one PCM frame of a command."""
MAX_PCM_BYTES = 30 * 2**20
"""Of all PCM frames of a message together: 15 minutes at 16 kHz are 29 MB."""
MAX_FRAMES = 5
"""The header among them."""
MAX_AGE_MS = 3_600_000


class _Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a command's `data` may hold."""


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    v: int
    id: str
    type: str
    data: msgspec.Raw = msgspec.Raw(b"{}")
    parent: str | None = None
    """In replies: the `id` of the command; None when that could not be read."""


# --- commands at command.sock ---------------------------------------------------------------------------------------
class Ask(_Data, frozen=True, kw_only=True):
    """One query; the PCM frames are its recording (s16le mono 16 kHz) when `text` is null."""

    text: str | None = None
    speech: bool = False
    """Whether the reply comes as sound, too."""
    stream: bool = True
    """False: no events, and all sound in one message."""
    age_ms: Annotated[float, msgspec.Meta(ge=0, le=MAX_AGE_MS)] = 0
    """How long ago the user finished speaking; the report's timings count from then."""
    conversation: str | None = None
    """The name of the conversation that it goes on with; None = it has no history and leaves none."""
    urgency: str = "normal"
    """critical | normal | background."""


class Load(_Data, frozen=True, kw_only=True):
    stage: Stage
    keep_alive_s: Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)] | None = None
    """None: as configured; 0: it is unloaded again at once; negative: for ever."""


class Unload(_Data, frozen=True, kw_only=True):
    stage: Stage


# --- commands at control.sock ---------------------------------------------------------------------------------------
class Ping(_Data, frozen=True, kw_only=True):
    pass


class GetStatus(_Data, frozen=True, kw_only=True):
    pass


class Cancel(_Data, frozen=True, kw_only=True):
    query_id: str | None = None
    """None: the query that runs now."""


class Shutdown(_Data, frozen=True, kw_only=True):
    pass


COMMANDS: dict[str, type[_Data]] = {"ask": Ask, "load": Load, "unload": Unload}
CONTROLS: dict[str, type[_Data]] = {"ping": Ping, "status": GetStatus, "cancel": Cancel, "shutdown": Shutdown}
_NAMES = {kind: name for name, kind in {**COMMANDS, **CONTROLS}.items()}


# --- replies --------------------------------------------------------------------------------------------------------
class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The query has its place."""

    query_id: str
    ahead: int
    """Queries that are answered before it."""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    query_id: str


class Event(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    data: dict[str, Any]


class Audio(msgspec.Struct, frozen=True, kw_only=True):
    """One PCM frame, s16le mono, comes with it."""

    sample_rate: int


class Report(QueryReport, frozen=True, kw_only=True):
    """The last message of a query that began, whatever its outcome."""

    exit_code: int = 0
    """What the command line ends with: the error's kind, for programs that do not know all codes."""


class Failure(ErrorReport, frozen=True, kw_only=True):
    exit_code: int = 1


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    stage: Stage
    status: StageStatus | None
    """None: it was unloaded again at once (keep-alive 0)."""


class Unloaded(msgspec.Struct, frozen=True, kw_only=True):
    stage: Stage
    unloaded: bool
    """False: it was not loaded."""


class Pong(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    pid: int


class Cancelling(msgspec.Struct, frozen=True, kw_only=True):
    query_ids: tuple[str, ...]
    """What is being cancelled; empty when there was nothing to cancel."""


class Stopping(msgspec.Struct, frozen=True, kw_only=True):
    pid: int


Reply = (
    Accepted | Started | Event | Audio | Report | Failure | Loaded | Unloaded | Pong | Status | Cancelling | Stopping
)
REPLIES: dict[str, type[Any]] = {
    "accepted": Accepted,
    "started": Started,
    "event": Event,
    "audio": Audio,
    "report": Report,
    "error": Failure,
    "loaded": Loaded,
    "unloaded": Unloaded,
    "pong": Pong,
    "status": Status,
    "cancelling": Cancelling,
    "stopping": Stopping,
}
_NAMES |= {kind: name for name, kind in REPLIES.items()}


# --- frames ---------------------------------------------------------------------------------------------------------
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


def encode(
    data: Any, *, id: str | None = None, parent: str | None = None, pcm: bytes = b""
) -> list[bytes]:  # fmt: skip
    """The frames of a command or a reply. Raises `UsageError` for what the other side would refuse."""
    header = Header(
        v=VERSION,
        id=id or uuid.uuid4().hex[:16],
        type=_NAMES[type(data)],
        data=msgspec.Raw(_json(data)),
        parent=parent,
    )
    frame = _json(header)
    command = isinstance(data, _Data)
    most = MAX_HEADER_BYTES if command else MAX_REPLY_BYTES
    if len(frame) > most:
        raise _bad(f"the header has {len(frame)} bytes; at most {most} are taken")
    if len(pcm) > MAX_PCM_BYTES:
        raise _bad(f"the recording has {len(pcm)} bytes; at most {MAX_PCM_BYTES} are taken")
    if not command:
        return [frame, pcm] if pcm else [frame]
    return [frame, *(pcm[at : at + MAX_FRAME_BYTES] for at in range(0, len(pcm), MAX_FRAME_BYTES))]


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
        raise _bad(text, code="unknown-field" if "unknown field" in text else "bad-message") from None
    except UnicodeDecodeError:
        raise _bad("the header is not UTF-8") from None
    except RecursionError:
        raise _bad("the header is nested too deep") from None
    except msgspec.DecodeError as error:
        raise _bad(f"the header is not JSON: {error}") from None


def _bad(what: str, code: str = "bad-message") -> UsageError:
    return UsageError(f"{what} (docs/protocol.md has the format)", code=code)


def failure(error: AssistantError) -> Failure:
    return Failure(**error.to_dict(), exit_code=int(error.exit_code))


def report(told: QueryReport, error: AssistantError | None) -> Report:
    fields = {name: getattr(told, name) for name in QueryReport.__struct_fields__}
    return Report(**fields, exit_code=int(error.exit_code) if error is not None else 0)


def plain(told: Report) -> QueryReport:
    """The report as `assistant ask` prints it."""
    return QueryReport(**{name: getattr(told, name) for name in QueryReport.__struct_fields__})
