"""`ask` without a daemon: a pipeline of its own, for this one query."""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
from typing import TYPE_CHECKING, Any

from assistant import cli_output
from assistant.cli_ask_parts import Request, interrupted, opened_sink, recording, tell_fallback
from assistant.errors import Cancelled

if TYPE_CHECKING:
    from assistant.messages import QueryReport
    from assistant.query import Answer


async def answer(asked: Request, sets: list[str]) -> Answer:
    from assistant import config as settings
    from assistant.daemon import Assistant
    from assistant.query import Query

    config = settings.load(sets)
    logging.basicConfig(level=config.log.level.upper(), format="%(levelname)s %(name)s: %(message)s")
    _end_on_signals()
    if asked.conversation is not None:
        cli_output.say(
            f"note: conversation {asked.conversation!r} begins and ends with this question: only a daemon ('assistant"
            " run') remembers what was said"
        )
    last: list[QueryReport] = []

    def follow(name: str, data: dict[str, Any]) -> None:
        if name == "run-end":
            last.append(data["report"])
        elif name == "stt-end" and not asked.as_json:
            cli_output.say(f"heard    {data['text']}")
        elif name == "stage-fallback" and not asked.as_json:
            tell_fallback(data)

    found: Answer | None = None
    try:
        async with Assistant(config, emit=follow) as assistant:
            with opened_sink(config, asked) as sink:
                query = Query(
                    text=asked.text,
                    pcm=functools.partial(recording, asked.wav) if asked.wav is not None else None,
                    sink=sink,
                    sink_path=str(asked.out) if asked.out is not None else None,
                    started=asked.started,
                    conversation=asked.conversation or "",
                    urgency=asked.urgency,
                )
                answered = await assistant.answer(query)
                if sink is not None:
                    await asyncio.to_thread(sink.close)
            found = answered  # from here on nothing is lost by an interruption
    except asyncio.CancelledError:
        if found is None and not last:
            raise Cancelled("interrupted before the query began") from None
    return found or interrupted(last[0])


def _end_on_signals() -> None:
    """Ctrl-C, SIGTERM and SIGHUP cancel the query: everything it started is stopped and removed, however often they
    come meanwhile."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
