"""What a caller hands to the pipeline and gets back. Imports `errors` and `messages`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from assistant.errors import AssistantError, BadText
from assistant.messages import QueryReport

MAX_TEXT = 4000
"""Characters of a typed question: about 1,000 tokens, more than anybody asks aloud."""


class AudioSink(Protocol):
    """Where speech goes: a file, a speaker."""

    def write(self, pcm: bytes, sample_rate: int) -> None:
        """s16le mono."""

    @property
    def sample_rate(self) -> int: ...
    @property
    def seconds(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Exactly one of `text` and `pcm`."""

    text: str | None = None
    pcm: Callable[[], bytes] | None = None
    """Gives a finished utterance, s16le mono 16 kHz; called in a thread, may raise `BadAudio`."""
    sink: AudioSink | None = None
    """None: the reply is not spoken."""
    sink_path: str | None = None
    started: float = field(default_factory=time.monotonic)
    """When the user had finished speaking (monotonic seconds): what the timings count from."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


@dataclass(frozen=True, slots=True)
class Answer:
    report: QueryReport
    error: AssistantError | None
    """What the report's `error` says, as it was raised."""


def checked_text(text: str) -> str:
    """A typed question, stripped. Raises `BadText` for what is empty, too long or not text."""
    if len(text) > MAX_TEXT:
        raise BadText(f"the question has {len(text)} characters; at most {MAX_TEXT} are taken", code="text-too-long")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadText("the question is not valid Unicode text (UTF-8)", code="text-not-unicode") from None
    if "\0" in text:
        raise BadText("the question contains a NUL character", code="text-has-nul")
    if not text.strip():
        raise BadText("the question is empty", code="text-empty")
    return text.strip()
