"""The vocabulary of events, its first half: what happens to a query. Imports `messages`; pure.

`wire_events` has what happens to the daemon, and all of it.
"""

from __future__ import annotations

import msgspec

from assistant.messages import FallbackFor, Outcome, QueryReport


class Happened(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data of an event."""


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
    """At a pause it was taken for certain that this was all; now it is known."""

    hit: bool
    """Nobody went on after it."""
    answer: bool
    """Whether an answer was begun as well."""
    ms: float
    """Since the guess: the work that was for nothing, or the head start."""


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
    """The server that was to do a stage's work has failed, and the local one does it."""

    stage: str
    what: FallbackFor = msgspec.field(name="for")
    """query: the rest of this one, in which it failed; pause: all of this one, because it failed less than 30 s ago;
    next: not this one, which fails because half of its answer was told, but those after it."""
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


QUERY_EVENTS: dict[str, type[Happened]] = {
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
}
