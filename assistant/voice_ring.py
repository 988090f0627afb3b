"""Rings: the timer's sound again and again, and in between the words that say what it is about.

Never over a conversation: it waits until that has ended. Ends when somebody says so, or after `LONGEST_S`. Imports
`audio.front_messages` and `errors`; the voice lends it everything that sounds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from assistant.audio.front_messages import Cue, Silence, ToFront
from assistant.errors import AssistantError, BusyNow, Cancelled
from assistant.query import Answer
from assistant.voice_duck import Ducker
from assistant.voice_interrupt import StopListener

log = logging.getLogger(__name__)

LONGEST_S = 15 * 60.0
BEAT_S = 1.0
"""The cue holds its pause."""
WORDS_AFTER, WORDS_EVERY = 2, 20
"""Beats."""
_WAIT_S = 0.2
_RUN = "ring"
"""What the audio process silences when nothing but the cue sounds."""


@dataclass(frozen=True, slots=True)
class Ring:
    words: Callable[[], str]
    """As it is said just then: it may have been a while."""
    over: Callable[[], None]
    """It has ended, whoever ended it."""


class Ringer:
    def __init__(
        self,
        *,
        send: Callable[[ToFront], None],
        say: Callable[[str], Awaitable[Answer]],
        busy: Callable[[], bool],
        lost: Callable[[], bool],
        stops: StopListener,
        ducker: Ducker,
        clock: Callable[[], float] = time.monotonic,
        beat_s: float = BEAT_S,
        longest_s: float = LONGEST_S,
    ) -> None:
        """`busy`: somebody is listened to or answered; `lost`: there is no speaker; `stops`: listens while it
        rings, and is the queries' as well."""
        self._send, self._say, self._busy, self._lost = send, say, busy, lost
        self._stops, self._ducker, self._clock = stops, ducker, clock
        self._beat_s, self._longest_s = beat_s, longest_s
        self._rings: dict[str, Ring] = {}
        self._task: asyncio.Task[None] | None = None
        self._beats, self._until, self._cued = 0, 0.0, float("-inf")
        self._speechless = False

    @property
    def ringing(self) -> bool:
        return bool(self._rings)

    def ring(self, id: str, ring: Ring) -> None:
        """Another one rings along, and is told of soon."""
        self._rings[id] = ring
        self._beats, self._until, self._speechless = 0, self._clock() + self._longest_s, False
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._sound())

    def end(self, *ids: str) -> tuple[str, ...]:
        """Of all, unless some are named. Those that rang."""
        ended = {id: self._rings.pop(id) for id in ids or tuple(self._rings) if id in self._rings}
        if ended and not self._rings:
            self._quiet()
        for ring in ended.values():
            ring.over()
        return tuple(ended)

    async def close(self) -> None:
        """They are not over: they ring again with the next daemon."""
        task = self._task
        self._rings.clear()
        self._quiet()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    def _quiet(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        if self._clock() < self._cued + self._beat_s:  # or it would be somebody else's cue
            self._send(Silence(run=_RUN))
        self._cued = float("-inf")
        if not self._busy():
            self._stops.end()

    async def _sound(self) -> None:
        try:
            while self._clock() < self._until:
                if self._busy() or self._lost():
                    await asyncio.sleep(_WAIT_S)
                    continue
                await self._ducker.duck()
                self._stops.begin()
                if self._beats % WORDS_EVERY == WORDS_AFTER and not self._speechless:
                    await self._speak()
                else:
                    self._send(Cue(name="timer"))
                    self._cued = self._clock()
                    await asyncio.sleep(self._beat_s)
                self._beats += 1
            log.warning("nobody has ended the ringing for %g minutes", self._longest_s / 60)
            self.end()
        finally:
            if not self._busy():
                await self._ducker.unduck()

    async def _speak(self) -> None:
        try:
            answer = await self._say(" ".join(ring.words() for ring in self._rings.values()))
            error = answer.error
        except BusyNow:
            return
        except Cancelled:  # somebody wants no more of it
            self.end()
            return
        except AssistantError as raised:
            error = raised
        if isinstance(error, Cancelled):
            self.end()
        elif error is not None:
            self._speechless = True
            log.warning("a timer rings without words: %s", error.message)
