"""What of a conversation fits into the context: the system's turn and the latest one stay, the oldest go. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assistant.errors import BadText
from assistant.messages import Turn

LEAST_ANSWER = 16
"""Tokens that must be left for the answer; a prompt that leaves fewer is refused."""
_ANSWER_SHARE = 0.25
"""Of the context: turns go rather than leave less than this for the answer (or than the answer may be long)."""
_KEPT_SHARE = 0.6
"""Of the context: once turns must go, so many go that the rest takes no more than this. The keys and values behind a
gap are computed anew, so a gap should be wide and rare."""

Encode = Callable[[tuple[Turn, ...]], list[int]]
"""Turns to the token ids of the whole prompt."""


@dataclass(frozen=True, slots=True)
class Fitted:
    prompt: list[int]
    dropped: int
    """Oldest turns that were left out."""


def fit(turns: tuple[Turn, ...], encode: Encode, context: int, max_new_tokens: int) -> Fitted:
    """Raises `BadText` code "prompt-too-long" when system prompt and latest turn alone leave no room for an answer."""
    head = 1 if turns and turns[0].role == "system" else 0
    prompt, dropped = encode(turns), 0
    if len(prompt) > context - min(max_new_tokens, int(context * _ANSWER_SHARE)):
        while len(prompt) > context * _KEPT_SHARE and (older := _oldest_exchange(turns[head:])):
            turns = turns[:head] + turns[head + older :]
            dropped += older
            prompt = encode(turns)
    if context - len(prompt) < min(LEAST_ANSWER, max_new_tokens):
        raise BadText(
            f"the prompt has {len(prompt)} tokens, which leaves no room for an answer in a context of {context}; say it"
            " shorter, or raise stages.llm.context_tokens",
            code="prompt-too-long",
        )
    return Fitted(prompt, dropped)


def _oldest_exchange(turns: tuple[Turn, ...]) -> int:
    """How many turns go together: up to the next question, so that no answer is left without its own. 0: only the
    latest question is left."""
    return next((at for at, turn in enumerate(turns) if at and turn.role == "user"), 0)
