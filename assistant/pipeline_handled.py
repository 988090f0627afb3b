"""The reply to a local command: from another program that registered the intent, or from a skill of ours."""

from __future__ import annotations

from datetime import datetime

from assistant import skills
from assistant.errors import HandlerFailed
from assistant.messages import IntentMatch
from assistant.pipeline_run import Run
from assistant.query import IntentHandlers


async def local_reply(
    match: IntentMatch, run: Run, handlers: IntentHandlers | None, now: datetime
) -> tuple[str | None, HandlerFailed | None]:
    """(reply, None), or None without an error when nobody handles the intent; of a handler that failed, what the user
    is told and the error to raise afterwards. Whoever registers an intent of ours takes it over."""
    if not match.name:
        return None, None
    if handlers is not None:
        try:
            reply = await handlers.handle(run.query.id, match, run.transcript)
        except HandlerFailed as error:
            return error.message, error
        if reply is not None:
            return reply, None
    return skills.answer(match.name, match.slots, now), None
