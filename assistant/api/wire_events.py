"""The vocabulary of events: what happens, under which name, with which data. Imports `messages`; pure.

The parts of the assistant that emit know nothing of it; a test compares what they emit with it. A new event, or a new
field, belongs here first.
"""

from __future__ import annotations

from typing import Any

import msgspec

from assistant.messages import Outcome, QueryReport, VoiceState


class Happened(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data of an event."""


# --- of a query -----------------------------------------------------------------------------------------------------
class OfQuery(Happened, frozen=True, kw_only=True):
    query_id: str


class RunStart(OfQuery, frozen=True, kw_only=True):
    """It is being answered."""


class SttStart(OfQuery, frozen=True, kw_only=True):
    """Somebody is listened to, or a recording is."""


class SttVadStart(OfQuery, frozen=True, kw_only=True):
    """Somebody has begun to speak."""


class SttVadEnd(OfQuery, frozen=True, kw_only=True):
    """He has finished, or said nothing for too long."""


class SttSpeculation(OfQuery, frozen=True, kw_only=True):
    """Recognition began at a pause."""

    hit: bool
    """Nobody went on after it."""


class SttPartial(OfQuery, frozen=True, kw_only=True):
    """Understood so far."""

    text: str
    segment_end: bool
    """The recogniser will not change it any more."""


class SttEnd(OfQuery, frozen=True, kw_only=True):
    """What was understood."""

    text: str


class IntentStart(OfQuery, frozen=True, kw_only=True):
    """It is looked for a local command."""


class IntentEnd(OfQuery, frozen=True, kw_only=True):
    """Whether it is one."""

    name: str | None
    """Null: it is none."""


class ReplyDelta(OfQuery, frozen=True, kw_only=True):
    """The next piece of the reply."""

    text: str


class LlmEnd(OfQuery, frozen=True, kw_only=True):
    """The model has written its reply."""

    prompt_tokens: int
    reused_tokens: int
    """Of the prompt: those that needed no computing."""
    new_tokens: int
    prefill_ms: float
    decode_ms: float


class TtsStart(OfQuery, frozen=True, kw_only=True):
    """A piece of the reply is being made into sound."""

    text: str


class TtsEnd(OfQuery, frozen=True, kw_only=True):
    """All of the reply is sound."""


class Wrong(OfQuery, frozen=True, kw_only=True):
    """It cannot be answered."""

    code: str
    message: str
    stage: str | None
    retryable: bool
    retry_after_ms: int | None
    status: int | msgspec.UnsetType = msgspec.UNSET


class StageFallback(OfQuery, frozen=True, kw_only=True):
    """The server that was to do a stage's work has failed; the query goes on with the local one."""

    stage: str
    reason: str
    """The error's code: "remote-unreachable", "remote-refused", "remote-late", "remote-broke-off"…"""
    message: str


class Preempted(OfQuery, frozen=True, kw_only=True):
    """It was stopped for a critical one, and waits again; it will be answered from its start."""


class RunEnd(OfQuery, frozen=True, kw_only=True):
    """It is over."""

    outcome: Outcome
    report: QueryReport | msgspec.UnsetType = msgspec.UNSET
    """At events.sock; to the caller it goes as the last reply."""


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
    """The stage that needs its memory, or why else it goes."""


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
    """What the assistant does has changed: for an LED."""

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
    "run-start": RunStart,
    "stt-start": SttStart,
    "stt-vad-start": SttVadStart,
    "stt-partial": SttPartial,
    "stt-vad-end": SttVadEnd,
    "stt-speculation": SttSpeculation,
    "stt-end": SttEnd,
    "intent-start": IntentStart,
    "intent-end": IntentEnd,
    "reply-delta": ReplyDelta,
    "llm-end": LlmEnd,
    "tts-start": TtsStart,
    "tts-end": TtsEnd,
    "error": Wrong,
    "preempted": Preempted,
    "stage-fallback": StageFallback,
    "run-end": RunEnd,
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
