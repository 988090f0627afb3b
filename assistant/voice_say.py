"""How a query at the speaker ends, and what becomes of a text that is to be spoken. Imports `errors` and `query`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from assistant.errors import Cancelled, DeviceError, EngineFailed, NoSpeech
from assistant.query import Answer
from assistant.voice_cues import Cues
from assistant.voice_report import VoiceReport
from assistant.voice_sink import SpeakerSink

log = logging.getLogger(__name__)


async def outcome(task: asyncio.Task[Answer | None], stop: Callable[[], object]) -> Answer:
    """Of the query `task`, which `stop` ends when nobody waits for it any more. Raises `Cancelled` when somebody
    interrupted it."""
    try:
        answer = await asyncio.shield(task)
    except asyncio.CancelledError:
        stop()
        if task.cancelled():
            raise Cancelled("it was interrupted") from None
        raise
    if answer is None:
        raise EngineFailed("the daemon made a mistake; its log has more", code="internal")
    return answer


async def ended(answer: Answer, sink: SpeakerSink, cues: Cues, report: VoiceReport) -> None:
    """Says by a sound what went wrong, if anything did."""
    if answer.error is None:
        return
    if not isinstance(answer.error, DeviceError):  # the part of an answer that there is shall be heard
        with contextlib.suppress(DeviceError):
            await sink.finished()
    if isinstance(answer.error, NoSpeech):
        report.unheard += 1
        cues.now("done")
        return
    log.warning("failed", extra={"fields": {"query": answer.report.query_id, "code": answer.error.code}})
    cues.now("error")
