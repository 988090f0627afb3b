"""What the whole daemon is doing: the voice's state, and beside it the queries that others ask. Imports `messages`.

One state for `status` and for the event `state`, so that an LED that follows the events never shows another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from assistant.messages import Emit, VoiceState


class DaemonState:
    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._voice: VoiceState = "idle"
        self._asked = 0
        self.state: VoiceState = "idle"

    @contextmanager
    def asked(self) -> Iterator[None]:
        """A query of somebody else than the voice runs."""
        self._asked += 1
        self._look()
        try:
            yield
        finally:
            self._asked -= 1
            self._look()

    def of_voice(self, name: str, data: dict[str, Any]) -> None:
        """An event of the voice: its state becomes ours, everything else is passed on."""
        if name == "state":
            self._voice = data["state"]
            self._look()
        else:
            self._emit(name, data)

    def _look(self) -> None:
        """Tells of every change once. What is said and heard in the room goes before what others ask."""
        now: VoiceState = self._voice if self._voice != "idle" or not self._asked else "processing"
        if now != self.state:
            before, self.state = self.state, now
            self._emit("state", {"state": now, "before": before})
