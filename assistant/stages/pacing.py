"""When an engine rests, and when it tells what it has: so that others get a turn. Imports `messages`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from assistant.messages import LlmDelta, Progress

_NAP_S = 0.05
"""A rest is taken in naps, so that a cancel is heard."""
_LEAST_DUTY = 0.05
_TELL_S = 0.02
"""Tokens that come faster are told together: whoever is woken for each of them takes a core from the engine. Nobody
hears or reads so finely, and a cancel is heard as often."""


class Together:
    """Tokens of an answer that nobody was told of yet."""

    def __init__(self, every_s: float = _TELL_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.text = ""
        self._tokens = 0
        self._every_s, self._clock = every_s, clock
        self._told_at = float("-inf")

    def add(self, text: str) -> bool:
        """One token more, and the text that it completes; whether it is time to tell."""
        self.text += text
        self._tokens += 1
        now = self._clock()
        if now - self._told_at < self._every_s:
            return False
        self._told_at = now
        return True

    def take(self) -> LlmDelta | None:
        """None while there is no text; its tokens then count for the next."""
        if not self.text:
            return None
        told = LlmDelta(text=self.text, tokens=self._tokens)
        self.text, self._tokens = "", 0
        return told


def rest(
    worked_s: float, duty: float, told: Progress, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Progress]:
    """As long a rest after `worked_s` of work that work is `duty` (0..1) of the time. Yields `told` after each nap."""
    left = worked_s * (1 / min(1.0, max(_LEAST_DUTY, duty)) - 1)
    while left > 0:
        nap = min(left, _NAP_S)
        sleep(nap)
        left -= nap
        yield told
