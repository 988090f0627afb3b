"""Of the talk itself: never mind, say it again, what can you do. Imports the room."""

from __future__ import annotations

from assistant.skills.context import Context
from assistant.skills.registry import Slots, handled_intents, skill
from assistant.skills.timers import silence
from assistant.skills.words import listed

_OTHERS = {
    "control lights": ("HassLightSet",),
    "switch things on and off": ("HassTurnOn", "HassTurnOff"),
    "tell the state of things in the house": ("HassGetState",),
    "set the heating": ("HassClimateSetTemperature",),
    "tell the temperature": ("HassClimateGetTemperature",),
    "tell the weather": ("HassGetWeather",),
    "play music": ("HassMediaSearchAndPlay",),
    "pause and skip what plays": ("HassMediaPause", "HassMediaUnpause", "HassMediaNext", "HassMediaPrevious"),
}
"""What other programs can do for us, and by which intents one sees that they do."""
_KNOWN = frozenset(intent for intents in _OTHERS.values() for intent in intents)


@skill("HassNevermind")
async def never_mind(slots: Slots, context: Context) -> str:
    """ "Okay." A timer that rings falls silent."""
    del slots
    if context.timers is not None:
        await silence(context.timers)
    return "Okay."


@skill("AssistantRepeat")
async def repeat(slots: Slots, context: Context) -> str:
    """What was said last in this conversation."""
    del slots
    return context.last_reply or "I have not said anything yet."


@skill("AssistantHelp")
async def help(slots: Slots, context: Context) -> str:
    """What works just now, and nothing else."""
    del slots
    return f"I can {listed([*_ours(context), *_others(context)])}. Anything else I try to answer myself."


def _ours(context: Context) -> list[str]:
    found = ["tell the time and the date"]
    if context.timers is not None:
        found.append("set timers")
    if context.shopping is not None:
        found.append("keep your shopping list")
    if context.speaker is not None:
        found.append("change my volume")
    return found


def _others(context: Context) -> list[str]:
    found = [what for what, intents in _OTHERS.items() if set(intents) & set(context.others)]
    if set(context.others) - _KNOWN - set(handled_intents()):
        found.append("ask the programs that are connected for more")
    return found
