"""What the assistant is doing, as a person sees it: idle, listening, processing, responding. Imports `messages`.

Every state but idle has a deadline: whatever is lost on the way (a packet, a process, a device), it comes back to idle.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from assistant.messages import Emit, VoiceState

DEADLINES_S: Mapping[VoiceState, float] = {"listening": 60.0, "processing": 120.0, "responding": 30.0}
"""Without a sign of life; each is far beyond what a healthy machine needs. Listening has a limit of its own
(`listen.max_s`), and responding lives on with every word that is heard."""


class States:
    """`clock`: monotonic seconds."""

    def __init__(
        self, emit: Emit, clock: Callable[[], float], deadlines_s: Mapping[VoiceState, float] = DEADLINES_S
    ) -> None:
        self.state: VoiceState = "idle"
        self._changed = asyncio.Event()
        self._emit, self._clock, self._deadlines_s = emit, clock, deadlines_s
        self._alive_at = clock()

    def enter(self, state: VoiceState) -> None:
        """Tells of every change once: what lights up an LED follows it."""
        self._alive_at = self._clock()
        if state != self.state:
            before, self.state = self.state, state
            self._changed.set()
            self._emit("state", {"state": state, "before": before})

    def alive(self) -> None:
        """Something came that shows that the state goes on."""
        self._alive_at = self._clock()

    def left_s(self) -> float | None:
        """Until the state is overdue; None = never."""
        deadline_s = self._deadlines_s.get(self.state)
        return None if deadline_s is None else max(0.0, self._alive_at + deadline_s - self._clock())

    async def watch(self, overdue: Callable[[], None]) -> None:
        """Calls `overdue`, which must leave the state, whenever one is; sleeps while there is none with a deadline."""
        while True:
            self._changed.clear()
            left_s = self.left_s()
            if left_s == 0:
                overdue()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._changed.wait()
