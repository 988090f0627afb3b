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
    if handlers is not None:
        try:
            reply = await handlers.handle(context.query_id, match, match.text or context.said)
        except HandlerFailed as error:
            return Done(error.message, error)
        if reply is not None:
            return Done(reply)
    own = await skills.answer(match.name, match.slots, context)
    return Done(own if own is not None else house.nobody("can do that"))
