"""What the sockets speak for: the assistant of this process, as they see it. Imports `messages` and `query`."""

from __future__ import annotations

from typing import Protocol

from assistant.messages import Stage
from assistant.messages_status import Status, VoiceStatus
from assistant.messages_timers import TimerChange, TimerStatus
from assistant.query import Answer, Query


class Voice(Protocol):
    async def say(self, text: str) -> Answer: ...
    def listen(self) -> None: ...
    def mute(self, on: bool) -> None: ...
    def volume(self, percent: float) -> None: ...
    def stop(self, query_id: str | None = None) -> tuple[str, ...]: ...
    def status(self) -> VoiceStatus: ...


class Timers(Protocol):
    def all(self) -> tuple[TimerStatus, ...]: ...
    def act(self, action: TimerChange, id: str) -> None:
        """Raises `UsageError`."""


class Backend(Protocol):
    async def answer(self, query: Query) -> Answer: ...
    async def load(self, stage: Stage, keep_alive_s: float | None = None) -> None: ...
    async def unload(self, stage: Stage) -> bool: ...
    def status(self) -> Status: ...
    @property
    def voice(self) -> Voice | None:
        """None: it runs without microphone and speaker."""

    @property
    def timers(self) -> Timers | None:
        """None: it keeps none."""
