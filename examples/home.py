"""A small simulated home that is controlled by voice: `python home.py`. Ends with Ctrl-C.

It registers the intents that it can carry out and the names of what stands in it; the daemon then understands "turn on
the kitchen lamp", "is the front door locked", "play some jazz", in whatever words, and asks here. What changes is
printed. A real home has other devices in the place of `simulated_home.py`.
"""

import asyncio
import contextlib
import json

from simulated_home import Home

from assistant.api import wire
from assistant.api.async_client import AsyncClient
from assistant.errors import NotRunning, UsageError


async def serve(home: Home) -> None:
    async with AsyncClient() as client:
        async for told in client.handle(list(home.intents), {"name": home.names, "area": home.areas}):
            if isinstance(told, wire.Registered):
                print("ready", flush=True)
                continue
            before = home.state()
            try:
                answer = {"speech": home.intents[told.intent](told)}
            except LookupError as error:
                answer = {"error": str(error.args[0])}
            changed = {name: now for name, now in home.state().items() if now != before[name]}
            print(f"{told.text}: {json.dumps(changed, ensure_ascii=False)}", flush=True)
            with contextlib.suppress(UsageError):  # too late: the user was told so
                await client.answer_intent(told.query_id, **answer)


async def daemon_is_there() -> None:
    while True:
        await asyncio.sleep(1)
        with contextlib.suppress(NotRunning):
            async with AsyncClient() as client:
                await client.ping()
                return


async def main() -> None:
    """Serves whatever daemon there is, also after it was restarted."""
    home = Home()
    while True:
        try:
            await serve(home)
        except NotRunning as error:
            print(error.message, "(waiting for it)", flush=True)
            await daemon_is_there()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
