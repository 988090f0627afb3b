"""Short sounds that say where things are, at once or a little later, if nothing has happened by then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from assistant.audio.front_messages import Cue, CueName, ToFront


class Cues:
    def __init__(self, send: Callable[[ToFront], None]) -> None:
        self._send = send
        self._later: asyncio.TimerHandle | None = None

    def now(self, name: CueName) -> None:
        self.forget()
        self._send(Cue(name=name))

    def later(self, seconds: float, name: CueName) -> None:
        """Instead of whatever was to come."""
        self.forget()
        self._later = asyncio.get_running_loop().call_later(seconds, self._send, Cue(name=name))

    def forget(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
