"""The reply to a local command: from another program that registered the intent, or from a skill of ours."""

from __future__ import annotations

from dataclasses import dataclass

from assistant import skills
from assistant.errors import HandlerFailed
from assistant.messages import IntentMatch
from assistant.query import IntentHandlers
from assistant.skills import Context, Missing, house, protected

__all__ = ["Done", "Missing", "carry_out", "protected"]
"""What a dialogue needs."""


_HINDRANCES = {
    "later": "I can only do that at once, not at another time. I can set a timer for you.",
    "except": "I cannot leave anything out. Name each thing that you want, please.",
    "sum": "I do not calculate within a command. Say the number itself, please.",
}
"""Slots of what would be done wrongly (`nlu.caution`), and what the user is told instead."""
_THING = ("name", "area", "floor", "domain", "device_class")
_NEEDED: dict[str, tuple[tuple[str, ...], str, str]] = {
    "HassTurnOn": (_THING, "name", "What shall I turn on?"),
    "HassTurnOff": (_THING, "name", "What shall I turn off?"),
    "HassClimateSetTemperature": (("temperature",), "temperature", "To how many degrees?"),
}
"""Of intents that other programs carry out: one of these slots, or this one is asked for."""


def _check_whole(match: IntentMatch) -> None:
    """Raises `Missing`: another program shall not have to guess."""
    slots, asked, question = _NEEDED.get(match.name or "", ((), "", ""))
    if slots and not any(slot in match.slots for slot in slots):
        raise Missing(asked, question)


@dataclass(frozen=True, slots=True)
class Done:
    reply: str | None
    """None: it is no command, but a question."""
    error: HandlerFailed | None = None
    """Of a handler that failed: `reply` tells the user, and this is to be raised afterwards."""


async def carry_out(match: IntentMatch, context: Context, handlers: IntentHandlers | None) -> Done:
    """Whoever registered an intent of ours takes it over. What is recognised and nobody does gets a sentence that says
    so. Raises `Missing` when the command lacks something; that it is protected is the caller's business."""
    if not match.name:
        return Done(None)
    for hindrance, told in _HINDRANCES.items():
        if match.slots.get(hindrance):
            return Done(told)
    if handlers is not None and match.name in handlers.understood.intents:
        _check_whole(match)
    if handlers is not None:
        try:
            reply = await handlers.handle(context.query_id, match, match.text or context.said)
        except HandlerFailed as error:
            return Done(error.message, error)
        if reply is not None:
            return Done(reply)
    own = await skills.answer(match.name, match.slots, context)
    return Done(own if own is not None else house.nobody("can do that"))
