"""How fast queries are answered here: a running figure of the model's rates and of what else a query takes. Pure.

    work = other + computed prompt tokens / prefill rate + answer tokens / decode rate

Each figure follows what was measured last, with a weight of a quarter, so that a machine that becomes slower is
believed after a few answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assistant.messages import Urgency

FIRST_GUESS_S = 2.0
"""Of a query, as long as none was answered."""
_WEIGHT = 0.25
_CHARS_PER_TOKEN = 4
_BACKGROUND_DUTY = 0.5
"""The share of the time in which the model computes for a `background` query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmWork:
    """What the model did for a query."""

    prompt_tokens: int
    """Computed ones; what was in its cache is not among them."""
    new_tokens: int
    prefill_s: float
    decode_s: float

    @classmethod
    def of_event(cls, data: dict[str, Any]) -> LlmWork:
        """From the data of `llm-end`."""
        return cls(
            prompt_tokens=data["prompt_tokens"] - data["reused_tokens"],
            new_tokens=data["new_tokens"],
            prefill_s=data["prefill_ms"] / 1000,
            decode_s=data["decode_ms"] / 1000,
        )


@dataclass(slots=True)
class _Figure:
    value: float | None = None

    def learn(self, measured: float) -> None:
        self.value = measured if self.value is None else self.value + _WEIGHT * (measured - self.value)


class Pace:
    def __init__(self) -> None:
        self._other, self._prefill_s, self._decode_s = _Figure(), _Figure(), _Figure()
        self._prompt, self._answer, self._chars = _Figure(), _Figure(), _Figure()

    @property
    def measured(self) -> bool:
        return self._other.value is not None

    @property
    def prefill_per_s(self) -> float:
        """Tokens; 0 = not measured."""
        return 1 / self._prefill_s.value if self._prefill_s.value else 0.0

    @property
    def decode_per_s(self) -> float:
        return 1 / self._decode_s.value if self._decode_s.value else 0.0

    def learn(self, seconds: float, chars: int, urgency: Urgency, llm: LlmWork | None, at_llm_s: float) -> None:
        """Of a query that was answered: how long it took, its question's length, what the model did (None: it was not
        asked), and how much of the time was spent at it."""
        self._other.learn(max(0.0, seconds - at_llm_s))
        self._answer.learn(llm.new_tokens if llm else 0)
        self._prompt.learn(llm.prompt_tokens if llm else 0)
        self._chars.learn(chars)
        if llm is None or urgency == "background":
            return
        if llm.prompt_tokens > 0 and llm.prefill_s > 0:
            self._prefill_s.learn(llm.prefill_s / llm.prompt_tokens)
        if llm.new_tokens > 0 and llm.decode_s > 0:
            self._decode_s.learn(llm.decode_s / llm.new_tokens)

    def work_s(self, chars: int, urgency: Urgency) -> float:
        """Seconds that a query with a question of this length will take."""
        if self._other.value is None:
            return FIRST_GUESS_S
        prompt = max(0.0, (self._prompt.value or 0.0) + (chars - (self._chars.value or 0.0)) / _CHARS_PER_TOKEN)
        at_llm = sum(
            (figure.value or 0.0) * tokens
            for tokens, figure in ((prompt, self._prefill_s), (self._answer.value or 0.0, self._decode_s))
        )
        return self._other.value + at_llm / (_BACKGROUND_DUTY if urgency == "background" else 1)
