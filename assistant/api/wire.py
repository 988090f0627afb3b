"""The vocabulary of the sockets: the commands and the replies. Imports `errors`, `messages`, its other parts; pure.

`framing` makes bytes of them and takes them from bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from assistant.api.wire_commands import (
    MAX_AGE_MS,
    AnswerIntent,
    Ask,
    AskSound,
    Cancel,
    Data,
    GetPs,
    GetSnapshot,
    GetStatus,
    Listen,
    Load,
    Mute,
    Ping,
    Register,
    Say,
    Shutdown,
    Slot,
    Unload,
    Volume,
)
from assistant.api.wire_events import BROADCASTS
from assistant.api.wire_timers import TimerList, Timers
from assistant.errors import AssistantError
from assistant.messages import STAGE_ORDER, ErrorReport, Level, QueryReport, Stage
from assistant.messages_status import MemoryStatus, StageStatus, Status, VoiceStatus

__all__ = [
    "MAX_AGE_MS",
    "AnswerIntent",
    "Ask",
    "AskSound",
    "Cancel",
    "Data",
    "GetPs",
    "GetSnapshot",
    "GetStatus",
    "Listen",
    "Load",
    "Mute",
    "Ping",
    "Register",
    "Say",
    "Shutdown",
    "Slot",
    "TimerList",
    "Timers",
    "Unload",
    "Volume",
]
"""What is handed on."""

STAGES = ", ".join(STAGE_ORDER)
"""For whoever named another one."""

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
    "timers": Timers,
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
    | TimerList
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
    "timers": TimerList,
}
NAMES |= {kind: name for kinds in (REPLIES, BROADCASTS) for name, kind in kinds.items()}

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
    "timers": ("timers",),
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
