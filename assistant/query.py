"""What a caller hands to the pipeline and gets back. Imports `errors` and `messages`."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args, runtime_checkable

from assistant.errors import AssistantError, BadText, UsageError
from assistant.messages import IntentMatch, QueryReport, Urgency

MAX_TEXT = 4000
"""Characters of a typed question: about 1,000 tokens, more than anybody asks aloud."""

URGENCIES: tuple[Urgency, ...] = get_args(Urgency)
"""From most to least urgent."""
_CONVERSATION = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)


class AudioSink(Protocol):
    """Where speech goes: a file, a speaker."""

    def write(self, pcm: bytes, sample_rate: int) -> None:
        """s16le mono."""

    @property
    def sample_rate(self) -> int: ...
    @property
    def seconds(self) -> float:
        """Of sound that was handed over."""


@runtime_checkable
class HeardSink(AudioSink, Protocol):
    """A sink that somebody listens to while it plays."""

    @property
    def heard_s(self) -> float:
        """Of what was handed over, what has sounded."""

    async def finished(self) -> None:
        """Returns when everything that was handed over has sounded, or never will."""


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """Something that happened while somebody speaks."""

    what: Literal["sound", "speech", "pause", "resumed", "end"]
    pcm: bytes = b""
    """Of `sound`: s16le mono 16 kHz, the next piece."""
    speech_s: float = 0.0
    """Speech so far, in seconds; 0 at an `end` = nobody said anything."""
    ended: float = 0.0
    """Of `end`: when the speaker had finished (monotonic seconds)."""


class LiveSpeech(Protocol):
    """An utterance that is still being spoken."""

    @property
    def pcm(self) -> bytes:
        """All of it so far, the pre-roll included; s16le mono 16 kHz."""

    @property
    def wake_phrase(self) -> str:
        """What it may begin with and is no part of the question: "hey jarvis"; empty = it was not woken by a word."""

    def events(self) -> AsyncIterator[LiveEvent]:
        """From the pre-roll (a `sound`) to `end`. Goes on after an `end` if `go_on` was called.

        Raises `DeviceError` when the microphone is lost."""

    def go_on(self) -> bool:
        """What was heard so far is no question: wait for one. False when there was enough waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Exactly one of `text`, `pcm` and `live`."""

    text: str | None = None
    verbatim: bool = False
    """The text is no question: it is spoken as it is."""
    pcm: Callable[[], bytes] | None = None
    """Gives a finished utterance, s16le mono 16 kHz; called in a thread, may raise `BadAudio`."""
    live: LiveSpeech | None = None
    sink: AudioSink | None = None
    """None: the reply is not spoken."""
    sink_path: str | None = None
    sink_waits: bool = False
    """Whether nobody hears anything of the sink before the answer is complete."""
    started: float = field(default_factory=time.monotonic)
    """When the user had finished speaking (monotonic seconds): what the timings count from."""
    conversation: str = ""
    """The name of the conversation that it goes on with; empty = it has no history and leaves none."""
    urgency: Urgency = "normal"
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


@dataclass(frozen=True, slots=True)
class Answer:
    report: QueryReport
    error: AssistantError | None
    """What the report's `error` says, as it was raised."""
    asks: bool = False
    """Whether the reply ends with a question, and whoever asked will want to answer."""


@dataclass(frozen=True, slots=True)
class Understood:
    """What is to be recognised beyond our own commands, because somebody else handles it."""

    intents: tuple[str, ...] = ()
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What stands in the house, by list of the sentences: name, area, floor."""


class IntentHandlers(Protocol):
    """Other programs that carry out commands."""

    @property
    def understood(self) -> Understood: ...
    async def handle(self, query_id: str, match: IntentMatch, text: str) -> str | None:
        """What the user is told, by who registered what the match names, else by who came last; None when nobody has
        registered the intent. Raises `HandlerFailed`."""


def checked_text(text: str, what: str = "question") -> str:
    """A typed question, stripped. Raises `BadText` for what is empty, too long or not text."""
    if len(text) > MAX_TEXT:
        raise BadText(f"the {what} has {len(text)} characters; at most {MAX_TEXT} are taken", code="text-too-long")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadText(f"the {what} is not valid Unicode text (UTF-8)", code="text-not-unicode") from None
    if "\0" in text:
        raise BadText(f"the {what} contains a NUL character", code="text-has-nul")
    if not text.strip():
        raise BadText(f"the {what} is empty", code="text-empty")
    return text.strip()


def checked_conversation(name: str) -> str:
    """Raises `UsageError` code "bad-conversation" for what is no name of a conversation."""
    if not _CONVERSATION.fullmatch(name):
        raise UsageError(
            f"a conversation is named with 1 to 64 of the characters A-Z a-z 0-9 . _ : -; {name[:80]!a} is no name",
            code="bad-conversation",
        )
    return name


def checked_urgency(text: str) -> Urgency:
    """Raises `UsageError` code "bad-urgency" that names the choices."""
    for urgency in URGENCIES:
        if text == urgency:
            return urgency
    raise UsageError(
        f"the urgency is {text[:80]!a}; choose one of: {', '.join(URGENCIES)}",
        code="bad-urgency",
    )
