"""The vocabulary of timers: the command, its reply and the events. Imports `messages`, the other parts; pure."""

from __future__ import annotations

import msgspec

from assistant.api.wire_commands import Data
from assistant.api.wire_query_events import Happened
from assistant.messages_timers import TimerAction, TimerState, TimerStatus


class Timers(Data, frozen=True, kw_only=True):
    """The timers there are; with an `id`, what shall be done to one. A client from the network needs `admin` for
    anything but `list`."""

    action: TimerAction = "list"
    id: str | None = None
    """Of the timer; none for `list`."""


class TimerList(msgspec.Struct, frozen=True, kw_only=True):
    """The timers, once that was done: what rings first, then by what is left, what is paused last."""

    timers: tuple[TimerStatus, ...]


class OfTimer(Happened, frozen=True, kw_only=True):
    id: str
    name: str
    """What the user calls it; empty = it has no name."""
    total_s: float
    left_s: float
    """Negative: it ended so long ago."""
    state: TimerState


class TimerStarted(OfTimer, frozen=True, kw_only=True):
    """It runs from now on."""


class TimerUpdated(OfTimer, frozen=True, kw_only=True):
    """It has more time, or less, was paused, or goes on."""


class TimerCancelled(OfTimer, frozen=True, kw_only=True):
    """Somebody wants it no more; it may have been ringing."""


class TimerFinished(OfTimer, frozen=True, kw_only=True):
    """It has ended, and rings where there is a speaker; after a restart it may have ended long ago."""


TIMER_EVENTS: dict[str, type[Happened]] = {
    "timer-started": TimerStarted,
    "timer-updated": TimerUpdated,
    "timer-cancelled": TimerCancelled,
    "timer-finished": TimerFinished,
}
