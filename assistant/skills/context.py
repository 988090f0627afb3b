"""What a skill is given: the time, the timers, the lists, the speaker. Imports `messages` and the registry's errors.

Skills know these by their protocols alone; the daemon brings the real ones, tests bring theirs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from assistant.messages_timers import TimerStatus


class Kept(NamedTuple):
    """What was done to a timer or a list."""

    timer: TimerStatus
    kept: bool
    """Whether it is on the disk, and survives a restart."""


class Timers(Protocol):
    """Those that run, are paused or ring. Ids that are not there any more raise `KeyError`."""

    def all(self) -> tuple[TimerStatus, ...]:
        """The nearest to its end first; what rings before all, what is paused behind."""

    async def start(self, name: str, seconds: float) -> Kept:
        """Raises `TooMany`."""

    async def add(self, id: str, seconds: float) -> Kept:
        """More time, or less (negative). One that rings runs again for so long."""

    async def pause(self, id: str) -> Kept: ...
    async def resume(self, id: str) -> Kept: ...
    async def cancel(self, *ids: str) -> tuple[TimerStatus, ...]:
        """As they were. What rings falls silent."""


class TooMany(Exception):
    """There is no room for one more."""


class ShoppingList(Protocol):
    """Every call reads and writes the disk; `OSError` is what it cannot."""

    async def items(self) -> tuple[str, ...]: ...
    async def add(self, item: str) -> bool:
        """False: it stands there already. Raises `TooMany`."""

    async def complete(self, item: str) -> str | None:
        """The item as it stood there; None: there is no such item."""

    async def clear(self) -> int:
        """How many there were."""


class Speaker(Protocol):
    """Our own."""

    @property
    def percent(self) -> float:
        """0 while it is muted."""

    @property
    def muted(self) -> bool: ...
    def set(self, percent: float) -> None:
        """It is not muted afterwards."""

    def mute(self) -> None: ...
    def unmute(self) -> float:
        """The level that it had before, which it has again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    now: datetime
    """The user's local time."""
    timers: Timers | None = None
    """None: nothing runs that could ring."""
    shopping: ShoppingList | None = None
    speaker: Speaker | None = None
    """None: without a speaker of our own."""
    last_reply: str = ""
    """What we said last in this conversation."""
    others: Collection[str] = field(default_factory=tuple)
    """Intents that other programs carry out just now."""
    query_id: str = ""
    said: str = ""
    """The whole sentence, as other programs get it."""
    language: str = "en"
