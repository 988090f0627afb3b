"""Local commands: intent -> action -> reply. Importing this package registers every skill.

One file per topic; `intents/` holds what people say beyond Home Assistant's sentences.
"""

from assistant.skills import clock, house, shopping, talk, timers, volume  # noqa: F401 - their import registers them
from assistant.skills.context import Context, Kept, ShoppingList, Speaker, Timers, TooMany
from assistant.skills.registry import Missing, Skill, Slots, answer, handled_intents, protected, skill

__all__ = [
    "Context",
    "Kept",
    "Missing",
    "ShoppingList",
    "Skill",
    "Slots",
    "Speaker",
    "Timers",
    "TooMany",
    "answer",
    "handled_intents",
    "protected",
    "skill",
]
