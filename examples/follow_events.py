"""Prints what happens in the daemon: `python follow_events.py [TOPIC]...`, for example `state run-`. Ends with Ctrl-C.

Events are never waited for: who reads too slowly misses some, and sees it by their numbers.
"""

import asyncio
import contextlib
import sys

from assistant.api.async_client import AsyncClient
from assistant.errors import NotRunning


async def follow(topics: list[str]) -> None:
    async with AsyncClient() as client:
        print(f"following the daemon, process {(await client.ping()).pid}", flush=True)
        last: dict[str, int] = {}  # by name: the number of the last event
        async for event in await client.events(*topics):
            missed = event.nth - last.get(event.name, event.nth - 1) - 1
            if missed:
                print(f"missed {missed} of {event.name}", flush=True)
            last[event.name] = event.nth
            print(f"{event.seq} {event.name} {event.data}", flush=True)


async def daemon_is_there() -> None:
    while True:
        await asyncio.sleep(1)
        with contextlib.suppress(NotRunning):
            async with AsyncClient() as client:
                await client.ping()
                return


async def main(topics: list[str]) -> None:
    """Follows whatever daemon there is, also after it was restarted."""
    while True:
        try:
            await follow(topics)
        except NotRunning as error:
            print(error.message, "(waiting for it)", flush=True)
            await daemon_is_there()


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main(sys.argv[1:]))
