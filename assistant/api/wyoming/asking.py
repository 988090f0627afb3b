"""A question in the line of queries, like everybody's. Imports `api.jobs` and `api.queries`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Hashable

from assistant.api import wire
from assistant.api.jobs import Job
from assistant.api.queries import Queries


async def replies_of(
    queries: Queries, text: str, conversation: str | None, client: Hashable
) -> AsyncGenerator[wire.Reply]:
    """All that is told of it, up to a `Report` or a `Failure`. Whoever stops listening stops it. Raises `BusyNow`,
    `BadText`."""
    told: asyncio.Queue[wire.Reply] = asyncio.Queue()
    ask = wire.Ask(text=text, conversation=conversation)
    job = Job(ask, b"", lambda reply, pcm: told.put_nowait(reply), client=client)
    queries.submit(job)
    try:
        reply = await told.get()
        while not isinstance(reply, wire.Report | wire.Failure):
            yield reply
            reply = await told.get()
        yield reply
    finally:
        if not job.ended:
            queries.cancel(job.id)
