"""The vocabulary of the sockets: the commands and the replies. Imports `errors` and `messages`; pure.

`framing` makes bytes of them and takes them from bytes.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from assistant.api import wire_events
from assistant.errors import AssistantError
from assistant.messages import ErrorReport, Level, QueryReport, Stage
from assistant.messages_status import MemoryStatus, StageStatus, Status, VoiceStatus

MAX_AGE_MS = 3_600_000


class Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a command's `data` may hold."""


# --- commands at command.sock ---------------------------------------------------------------------------------------
class Ask(Data, frozen=True, kw_only=True):
    """One query. When `text` is null its recording comes in the PCM frames behind it, or, with `more`, while somebody
    speaks: then `ask-sound` messages bring the rest."""

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
    more: bool = False
    """More sound follows, as `ask-sound`."""
    endpointing: bool = True
    """With `more`: it also ends when the daemon hears that the speaker has finished, not only with `last`."""


class AskSound(Data, frozen=True, kw_only=True):
    """The next sound of an `ask` with `more`; answered only if it is wrong. What comes after the end is ignored."""

    ask: str
    """The `id` of that `ask`, by the same client."""
    last: bool = False
    """That was all; this message may bring no sound."""


class Say(Data, frozen=True, kw_only=True):
    """Speaks a text, as it is, at the daemon's speaker; answered when it was heard. `busy` while somebody is listened
    to or answered there."""

    text: str


class Load(Data, frozen=True, kw_only=True):
    """Loads a stage ahead of its first use, and answers when it is loaded."""

    stage: Stage
    """asr | intent | llm | tts."""
    keep_alive_s: Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)] | None = None
    """None: as configured; 0: it is unloaded again at once; negative: for ever."""


class Unload(Data, frozen=True, kw_only=True):
    """Unloads a stage now; its memory is free when this is answered."""

    stage: Stage


Slot = str | int | float


class Register(Data, frozen=True, kw_only=True):
    """From now on this client answers these intents, until it leaves or registers anew; the last one that registered
    an intent is asked. No intents: none any more."""

    intents: tuple[str, ...]
    names: dict[str, tuple[str, ...]] = {}
    """What stands in the house: what `{name}`, `{area}` and `{floor}` of the sentences may be."""


class AnswerIntent(Data, frozen=True, kw_only=True):
    """To a `handle`."""

    query_id: str
    speech: str = ""
    """What the user is told; empty = nothing needs to be said."""
    error: str | None = None
    """What went wrong, for the user."""


# --- commands at control.sock ---------------------------------------------------------------------------------------
class Ping(Data, frozen=True, kw_only=True):
    """Is anybody there?"""


class GetStatus(Data, frozen=True, kw_only=True):
    """What it does, and what it holds."""


class GetPs(Data, frozen=True, kw_only=True):
    """What is loaded, and the memory."""


class GetSnapshot(Data, frozen=True, kw_only=True):
    """Where the events are, and the state that they have led to: for a subscriber that missed some."""


class Cancel(Data, frozen=True, kw_only=True):
    """A query that is answered or waits ends as cancelled."""

    query_id: str | None = None
    """None: what is being answered, here and at the speaker."""


class Shutdown(Data, frozen=True, kw_only=True):
    """The daemon stops: what runs or waits ends as cancelled."""


class Listen(Data, frozen=True, kw_only=True):
    """As if the wake word had been said."""


class Mute(Data, frozen=True, kw_only=True):
    """Closes the microphone, or opens it again."""

    on: bool
    """True closes it."""


class Volume(Data, frozen=True, kw_only=True):
    """How loud it speaks, from 0 to 100."""

    percent: Annotated[float, msgspec.Meta(ge=0, le=100)]


COMMANDS: dict[str, type[Data]] = {
    "ask": Ask,
    "ask-sound": AskSound,
    "say": Say,
    "load": Load,
    "unload": Unload,
    "register": Register,
    "answer": AnswerIntent,
}
CONTROLS: dict[str, type[Data]] = {
    "ping": Ping,
    "status": GetStatus,
    "ps": GetPs,
    "snapshot": GetSnapshot,
    "cancel": Cancel,
    "shutdown": Shutdown,
    "listen": Listen,
    "mute": Mute,
    "volume": Volume,
}
NAMES = {kind: name for name, kind in {**COMMANDS, **CONTROLS}.items()}


# --- replies --------------------------------------------------------------------------------------------------------
class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The query has its place."""

    query_id: str
    ahead: int
    """Queries that are answered before it, unless more urgent ones come."""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """It is being answered."""

    query_id: str


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What happens meanwhile: to this query, and, without a `query_id`, to the daemon."""

    name: str
    data: dict[str, Any]


class Audio(msgspec.Struct, frozen=True, kw_only=True):
    """One PCM frame, s16le mono, comes with it."""

    sample_rate: int


class Report(QueryReport, frozen=True, kw_only=True):
    """The JSON of `assistant ask --json`; the last reply of a query that began, whatever its outcome."""

    exit_code: int = 0
    """What the command line ends with: the error's kind, for programs that do not know all codes."""


class Failure(ErrorReport, frozen=True, kw_only=True):
    """It cannot be done. The last reply. `busy` has `status` 429, too."""

    exit_code: int = 1
    """As in a `report`."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The stage can be used."""

    stage: Stage
    status: StageStatus | None
    """Its row as in `status`; None: it was unloaded again at once (keep-alive 0)."""


class Unloaded(msgspec.Struct, frozen=True, kw_only=True):
    """The stage holds no memory."""

    stage: Stage
    unloaded: bool
    """False: it was not loaded."""


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """What this client is asked from now on."""

    intents: tuple[str, ...]


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    """An intent for a client that registered it; `parent` is its `register`. It answers with `answer`."""

    query_id: str
    intent: str
    slots: dict[str, Slot]
    text: str
    """What was said."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The `answer` was taken; one that comes too late gets the error `query-unknown`."""

    query_id: str


class Ps(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of `assistant ps`."""

    stages: tuple[StageStatus, ...]
    memory: MemoryStatus
    pressure: Level


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What `status` says has led up to the event `seq`."""

    seq: int
    """Of the last event so far; 0 = none."""
    time: float
    """Unix seconds."""
    counts: dict[str, int]
    """By name of event: how many there were."""
    status: Status


class Pong(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon is there."""

    version: str
    pid: int


class Cancelling(msgspec.Struct, frozen=True, kw_only=True):
    """They end with `exit_code` 130."""

    query_ids: tuple[str, ...]
    """What is being cancelled; empty when there was nothing to cancel."""


class Stopping(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon is on its way out."""

    pid: int


Reply = (
    Accepted
    | Started
    | Event
    | Audio
    | Report
    | Failure
    | Loaded
    | Unloaded
    | Pong
    | Status
    | Ps
    | Snapshot
    | Cancelling
    | Stopping
    | VoiceStatus
    | Registered
    | Handle
    | Answered
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
    "ps": Ps,
    "snapshot": Snapshot,
    "cancelling": Cancelling,
    "stopping": Stopping,
    "voice": VoiceStatus,
    "registered": Registered,
    "handle": Handle,
    "answered": Answered,
}
NAMES |= {kind: name for kinds in (REPLIES, wire_events.BROADCASTS) for name, kind in kinds.items()}

ANSWERS: dict[str, tuple[str, ...]] = {
    "ask": ("accepted", "started", "event", "audio", "report"),
    "ask-sound": (),
    "say": ("report",),
    "load": ("loaded",),
    "unload": ("unloaded",),
    "register": ("registered", "handle"),
    "answer": ("answered",),
    "ping": ("pong",),
    "status": ("status",),
    "ps": ("ps",),
    "snapshot": ("snapshot",),
    "cancel": ("cancelling",),
    "shutdown": ("stopping",),
    "listen": ("voice",),
    "mute": ("voice",),
    "volume": ("voice",),
}
"""What may come back for each command, in this order; `error` for any of them."""


def failure(error: AssistantError) -> Failure:
    return Failure(**error.to_dict(), exit_code=int(error.exit_code))


def report(told: QueryReport, error: AssistantError | None) -> Report:
    fields = {name: getattr(told, name) for name in QueryReport.__struct_fields__}
    return Report(**fields, exit_code=int(error.exit_code) if error is not None else 0)


def plain(told: Report) -> QueryReport:
    """The report as `assistant ask` prints it."""
    return QueryReport(**{name: getattr(told, name) for name in QueryReport.__struct_fields__})
