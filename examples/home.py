"""A small simulated home that is controlled by voice: `python home.py`. Ends with Ctrl-C.

It registers the intents that it can carry out and the names of what stands in it; the daemon then understands "turn on
the kitchen lamp", "turn off the lights in the bedroom", "set the desk lamp to 30 percent", and asks here.
"""

import asyncio
import contextlib

from assistant.api import wire
from assistant.api.async_client import AsyncClient
from assistant.errors import NotRunning, UsageError

LAMPS = {"kitchen lamp": "kitchen", "desk lamp": "bedroom", "night light": "bedroom"}  # and where they stand
brightness = dict.fromkeys(LAMPS, 0)


def carry_out(asked: wire.Handle) -> str:
    """What the user is told. Raises `LookupError` for what is not there."""
    if "name" in asked.slots:
        lamps = [name for name in LAMPS if name == asked.slots["name"]]
    else:
        lamps = [name for name, area in LAMPS.items() if asked.slots.get("area", area) == area]
    if not lamps:
        raise LookupError("There is no such lamp.")
    percent = {"HassTurnOn": 100, "HassTurnOff": 0}.get(asked.intent, int(asked.slots.get("brightness", 50)))
    brightness.update(dict.fromkeys(lamps, percent))
    state = {0: "off", 100: "on"}.get(percent, f"at {percent} percent")
    return f"The {' and the '.join(lamps)} {'is' if len(lamps) == 1 else 'are'} {state}."


async def serve() -> None:
    names = {"name": list(LAMPS), "area": sorted(set(LAMPS.values()))}
    async with AsyncClient() as client:
        async for told in client.handle(["HassTurnOn", "HassTurnOff", "HassLightSet"], names):
            if isinstance(told, wire.Registered):
                print(f"ready for {', '.join(told.intents)}", flush=True)
                continue
            with contextlib.suppress(UsageError):  # too late: the user was told so
                try:
                    await client.answer_intent(told.query_id, carry_out(told))
                except LookupError as error:
                    await client.answer_intent(told.query_id, error=str(error))
            print(f"{told.text!r}: {brightness}", flush=True)


async def main() -> None:
    while True:
        try:
            await serve()
        except NotRunning as error:
            print(error.message, flush=True)
            await asyncio.sleep(1)


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
