"""What the bridge speaks for: the assistant of this process, as its clients see it. Imports `messages`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol

from assistant.messages import IntentMatch, Stage, Transcript, TtsAudio
from assistant.messages_status import ProgramStatus, VoiceStatus


class Services(Protocol):
    """See `assistant.services`."""

    def programs(self) -> tuple[ProgramStatus, ...]: ...
    def ahead(self, stage: Stage) -> None: ...
    def transcribe(self, pcm: bytes) -> AsyncGenerator[Transcript]: ...
    def synthesize(self, texts: AsyncIterator[str]) -> AsyncGenerator[TtsAudio]: ...
    async def recognise(self, text: str) -> IntentMatch: ...


class Voice(Protocol):
    def status(self) -> VoiceStatus: ...


class Backend(Protocol):
    @property
    def services(self) -> Services: ...
    @property
    def voice(self) -> Voice | None:
        """None: it runs without microphone and speaker."""
