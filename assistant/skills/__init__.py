"""Local commands: intent -> action -> reply. Importing this package registers every skill.

One file per topic; `intents/<language>.yaml` holds what people say beyond Home Assistant's sentences.
"""

from assistant.skills import clock, nevermind  # noqa: F401 - their import registers them
from assistant.skills.registry import Skill, Slots, answer, handled_intents, skill

__all__ = ["Skill", "Slots", "answer", "handled_intents", "skill"]
