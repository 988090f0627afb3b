"""The vocabulary of events: what happens, under which name, with which data. Imports `messages`; pure.

What happens to a query is in `wire_query_events`; here is what happens to the daemon, and the whole. The parts of the
assistant that emit know nothing of it; a test compares what they emit with it. A new event, or a new field, belongs
here first.
"""

from __future__ import annotations

from typing import Any

import msgspec

from assistant.api.wire_query_events import QUERY_EVENTS, Happened
from assistant.api.wire_timers import TIMER_EVENTS
from assistant.messages import VoiceState


# --- of the daemon --------------------------------------------------------------------------------------------------
class StageLoadStart(Happened, frozen=True, kw_only=True):
    """A worker begins to load its model."""

    stage: str
    engine: str
    model: str


class StageLoadEnd(Happened, frozen=True, kw_only=True):
    """It can be used."""

    stage: str
    load_ms: float


class StageRestart(Happened, frozen=True, kw_only=True):
    """A worker ended, or was ended; the next one is started when it is needed."""

    stage: str
    code: str
    """Why."""


class ServiceEnd(Happened, frozen=True, kw_only=True):
    """A stage has worked for somebody who asked for that alone, as the Wyoming bridge does."""

    service: str
    stage: str
    ms: float
    code: str
    """Of what went wrong; empty = nothing."""


class MemoryAdmit(Happened, frozen=True, kw_only=True):
    """Memory is promised to a stage."""

    stage: str
    bytes: int


class MemoryEvict(Happened, frozen=True, kw_only=True):
    """An idle stage has to go."""

    stage: str
    reason: str = msgspec.field(name="for")
    """The stages that need its memory (as llm+tts), or why else it goes: keep-alive | budget | leak | command (an
    `unload`) | replaced (another model, other settings, or other intents were registered)."""


class MemoryDeny(Happened, frozen=True, kw_only=True):
    """There is no memory for a stage."""

    stage: str | None
    code: str
    message: str


class Throttled(Happened, frozen=True, kw_only=True):
    """How hard the machine is pressed has changed."""

    level: str
    reasons: tuple[str, ...]


class State(Happened, frozen=True, kw_only=True):
    """What the assistant does has changed, the same as in `status`: for an LED. A query that came by a socket is
    `processing` from its start to its end, unless somebody is listened to or answered at the microphone."""

    state: VoiceState
    before: VoiceState


class WakeWordEnd(Happened, frozen=True, kw_only=True):
    """A wake word was heard."""

    word: str
    score: float


class Muted(Happened, frozen=True, kw_only=True):
    """The microphone was closed, or opened again."""

    on: bool
    """It is closed."""


class VolumeSet(Happened, frozen=True, kw_only=True):
    """How loud it speaks has changed."""

    percent: float


class AudioDevice(Happened, frozen=True, kw_only=True):
    kind: str
    """input | output."""
    name: str
    message: str


class AudioDeviceLost(AudioDevice, frozen=True, kw_only=True):
    """It is looked for again and again."""


class AudioDeviceRestored(AudioDevice, frozen=True, kw_only=True):
    """It is there again."""


EVENTS: dict[str, type[Happened]] = {
    **QUERY_EVENTS,
    "stage-load-start": StageLoadStart,
    "stage-load-end": StageLoadEnd,
    "stage-restart": StageRestart,
    "service-end": ServiceEnd,
    "memory-admit": MemoryAdmit,
    "memory-evict": MemoryEvict,
    "memory-deny": MemoryDeny,
    "throttled": Throttled,
    "state": State,
    "wake_word-end": WakeWordEnd,
    "muted": Muted,
    "volume": VolumeSet,
    "audio-device-lost": AudioDeviceLost,
    "audio-device-restored": AudioDeviceRestored,
    **TIMER_EVENTS,
}


# --- at events.sock -------------------------------------------------------------------------------------------------
class Published(msgspec.Struct, frozen=True, kw_only=True):
    """An event, as everybody hears it. The topic in front of it is its `name`."""

    name: str
    seq: int
    """Counts all events of this daemon from 1."""
    nth: int
    """Counts the events of this name, for subscribers of some names: a number that is missing was missed."""
    time: float
    """Unix seconds."""
    data: dict[str, Any]


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody has subscribed to it, so all subscriptions that he made before count. No event; goes to all that
    subscribed to `welcome`, at most 20 times a second."""

    version: str
    pid: int
    """Another one than before is another daemon, which counts anew."""
    seq: int
    """Of the last event so far; 0 = none."""
    counts: dict[str, int]
    """By name: how many events there were."""


BROADCASTS: dict[str, type[Any]] = {"event": Published, "welcome": Welcome}
