"""What the user was asked back, by conversation, for as long as an answer makes sense. Imports `messages` alone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from assistant.messages import IntentMatch

TTL_S = 45.0
MOST = 64
"""Conversations that wait for an answer."""

_YES = re.compile(
    r"(?:(?:oh|well|um|uh)\s+)*(?:yes|yeah|yep|yup|sure|okay|ok|of course|certainly|absolutely|confirm(?:ed)?|go ahead"
    r"|do it|do that|please do|i do|ja|jawohl|genau|oui|d'accord|好的?|是的?|对|可以|네|예|응|그래)"
    r"(?:\s+(?:yes|yeah|please|sure|do it|go ahead|do that|thanks|thank you|bitte|of course|i am sure|im sure))*"
)
_SURELY = re.compile(r"(?:(?:i (?:said|say|mean)|right|well|oh)\s+)*(?:yes|yeah|yep|yup)\b(?! is\b)|right$|sure thing$")
_NO = re.compile(
    r"(?:(?:oh|well|um|uh)\s+)*(?:no|nope|nah|never|don't|dont|do not|not now|stop|cancel|better not|rather not"
    r"|leave it|nein|nicht|non|不|不要|不用|别|아니|아니요|아니오)\b.*"
)


@dataclass(frozen=True, slots=True)
class Pending:
    match: IntentMatch
    wanted: str = ""
    """The slot that was asked for; empty = whether it shall really be done."""
    more: tuple[IntentMatch, ...] = ()
    """What else waits: done with the same yes, or after the slot."""


class Dialogues:
    def __init__(self, ttl_s: float = TTL_S, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl_s, self._clock = ttl_s, clock
        self._waiting: dict[str, tuple[Pending, float]] = {}

    def ask(self, conversation: str, pending: Pending) -> None:
        """It is waited for from now on; queries without a conversation share one that has no name."""
        self._waiting.pop(conversation, None)
        self._waiting[conversation] = pending, self._clock() + self._ttl_s
        while len(self._waiting) > MOST:
            del self._waiting[next(iter(self._waiting))]

    def waiting(self, conversation: str) -> Pending | None:
        """What the next words may be the answer to."""
        pending, until = self._waiting.get(conversation, (None, 0.0))
        return pending if until > self._clock() else None

    def forget(self, conversation: str) -> None:
        """It is asked once."""
        self._waiting.pop(conversation, None)


def consent(text: str) -> bool | None:
    """Whether it is a yes (True) or a no (False), and nothing else (None)."""
    plain = " ".join(re.sub(r"[^\w' ]+", " ", text.lower().replace("’", "'")).split())
    if _YES.fullmatch(plain) or (len(plain.split()) <= 6 and _SURELY.match(plain)):
        return True
    if len(plain.split()) <= 6 and _NO.fullmatch(plain):
        return False
    return None
