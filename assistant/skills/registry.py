"""Which intent is whose. Imports the context alone.

A skill is `async (slots, context) -> reply`. The reply is text for eyes; the pipeline makes it speakable. What it lacks
it asks for (`Missing`); a value that cannot be gets a sentence that says why, never an exception.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from assistant.skills.context import Context

Slots = Mapping[str, str | int | float]
Skill = Callable[[Slots, Context], Awaitable[str]]

_SKILLS: dict[str, Skill] = {}
_PROTECTED: dict[str, str] = {}


class Missing(Exception):
    """A command lacks something that the user must be asked for."""

    def __init__(self, slot: str, question: str) -> None:
        super().__init__(question)
        self.slot, self.question = slot, question


def skill(*intents: str, confirm: str = "") -> Callable[[Skill], Skill]:
    """Registers the function for intents. `confirm`: the question that must be answered with yes before.

    Raises `ValueError` when another one has an intent."""

    def register(function: Skill) -> Skill:
        for intent in intents:
            if intent in _SKILLS:
                raise ValueError(f"two skills for {intent}")
            _SKILLS[intent] = function
            if confirm:
                _PROTECTED[intent] = confirm
        return function

    return register


def handled_intents() -> tuple[str, ...]:
    """The intents that have an answer of ours, sorted; of some it is that other programs carry them out."""
    return tuple(sorted(_SKILLS))


def protected(intent: str) -> str | None:
    """What the user is asked before it is done; None: it is done at once."""
    return _PROTECTED.get(intent)


async def answer(name: str, slots: Slots, context: Context) -> str | None:
    """The reply, or None when no skill handles the intent. Raises `Missing`."""
    found = _SKILLS.get(name)
    return await found(slots, context) if found else None
