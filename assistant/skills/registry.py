"""Which intent is whose. Imports nothing of ours.

A skill is a function (slots, now) -> reply: pure, with the clock as an argument. The reply is text for eyes; the
pipeline makes it speakable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

Slots = Mapping[str, str | int | float]
Skill = Callable[[Slots, datetime], str]

_SKILLS: dict[str, Skill] = {}


def skill(intent: str) -> Callable[[Skill], Skill]:
    """Registers the function for an intent. Raises `ValueError` when another one has it."""

    def register(function: Skill) -> Skill:
        if intent in _SKILLS:
            raise ValueError(f"two skills for {intent}")
        _SKILLS[intent] = function
        return function

    return register


def handled_intents() -> tuple[str, ...]:
    """The intents that are local commands, sorted."""
    return tuple(sorted(_SKILLS))


def answer(name: str, slots: Slots, now: datetime) -> str | None:
    """The reply, or None when no skill handles the intent. `now` is the user's local time."""
    found = _SKILLS.get(name)
    return found(slots, now) if found else None
