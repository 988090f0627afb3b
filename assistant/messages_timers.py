"""A timer as everybody sees it: skills, sockets, events. Imports nothing of ours."""

from __future__ import annotations

from typing import Literal

import msgspec

TimerState = Literal["running", "paused", "ringing"]
TimerChange = Literal["cancel", "pause", "resume"]
TimerAction = Literal["list", "cancel", "pause", "resume"]


class TimerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A timer just now."""

    id: str
    name: str
    """What the user calls it: "pasta"; empty = it has no name."""
    total_s: float
    """For how long it was set, what was added since included."""
    left_s: float
    """Until it rings; negative while it rings: it ended so long ago."""
    state: TimerState
