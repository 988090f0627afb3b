"""The events of a daemon as they come in at a SUB socket, for both clients. Imports `dialogue`; holds no socket."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.api import wire_events
from assistant.api.dialogue import decoded
from assistant.errors import NotRunning

WELCOME = b"welcome"
"""Subscribed to last: when it comes, the daemon has heard of all topics before it."""


class Feed:
    def __init__(self, topics: Sequence[str]) -> None:
        """`topics`: how the names of the events begin; none = all events."""
        self.topics = [topic.encode() for topic in topics] or [b""]
        self.pid = 0
        """Of the daemon, once it is known that it has heard of the topics."""

    def take(self, frames: list[bytes]) -> wire_events.Published | None:
        """None: no event of ours. Raises `NotRunning` when another daemon has taken over: events were lost, and it
        counts anew."""
        told = decoded(frames[1:], wire_events.BROADCASTS).data
        if isinstance(told, wire_events.Welcome):
            if self.pid not in (0, told.pid):
                raise NotRunning("the daemon was restarted; events were lost")
            self.pid = told.pid
            return None
        return told if any(told.name.encode().startswith(topic) for topic in self.topics) else None
