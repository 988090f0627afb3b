"""What was said in each conversation, as text, for as long as it is worth remembering. Imports `messages` alone.

Kept in the daemon's memory: it outlives the LLM's unloading and is lost with the daemon. Knows no engine and no event
loop; the clock is a seam. Who may speak in a conversation at a time is `conversation_line`'s matter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assistant.messages import Turn

MOST = 64
"""Conversations; with one more, the one that has been silent for longest goes."""
MOST_BYTES = 64 * 1024
"""Of one conversation's text in UTF-8: more than a context of 16,000 tokens holds."""
_TURN_BYTES = 128
"""Of a turn beside its text: a thousand words of one letter are not small."""


@dataclass(slots=True)
class _Kept:
    turns: tuple[Turn, ...]
    """User and assistant in turns, the oldest first, without a system prompt."""
    until: float


class Conversations:
    def __init__(
        self,
        ttl_s: float = 300,
        *,
        clock: Callable[[], float] = time.monotonic,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """`ttl_s`: how long a conversation is remembered after its last turn."""
        self._ttl_s = ttl_s
        self._clock = clock
        self._most, self._most_bytes = most, most_bytes
        self._kept: dict[str, _Kept] = {}  # in the order of their last turns

    def __len__(self) -> int:
        self._expire()
        return len(self._kept)

    def history(self, name: str) -> tuple[Turn, ...]:
        """Empty for one that nobody knows, or that is over: it begins anew."""
        self._expire()
        kept = self._kept.get(name)
        return kept.turns if kept is not None else ()

    def remember(self, name: str, history: Sequence[Turn], user: str, assistant: str, *, dropped: int = 0) -> None:
        """Goes on from `history` (what `history` gave when the turn began) with what the user and the assistant said.

        `dropped`: so many of its oldest turns are forgotten for good. A history that is too large loses its oldest
        turns; a turn that is too large by itself leaves nothing.
        """
        turns = [*history[dropped:], Turn(role="user", content=user), Turn(role="assistant", content=assistant)]
        while turns and (turns[0].role != "user" or _bytes(turns) > self._most_bytes):
            del turns[0]
        self._kept.pop(name, None)
        if turns:
            self._kept[name] = _Kept(tuple(turns), self._clock() + self._ttl_s)
        self._expire()
        while len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]

    def _expire(self) -> None:
        now = self._clock()
        for name in [name for name, kept in self._kept.items() if kept.until <= now]:
            del self._kept[name]


def _bytes(turns: Sequence[Turn]) -> int:
    return sum(_TURN_BYTES + len(turn.content.encode("utf-8", "surrogatepass")) for turn in turns)
