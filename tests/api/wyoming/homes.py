"""Bridges over a house with real worker processes, and clients of the `wyoming` package."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncClient
from wyoming.event import Event, Eventable

from assistant.api.queries import Queries, QueryEvents
from assistant.api.wyoming.bridge import Bridge
from assistant.conversations import Conversations
from assistant.messages import STAGE_ORDER
from assistant.services import Services
from assistant.stages.supervisor import Supervisor
from tests.api.backend import SpeakingVoice
from tests.house import House
from tests.housekept import housekept

OURS = {"rate": 16_000, "width": 2, "channels": 1}


class Home(House):
    """A house whose events reach those who follow them."""

    def __init__(self, tmp_path: Path, **more: Any) -> None:
        self.told = QueryEvents()
        super().__init__(tmp_path, 5, conversations=Conversations(), **more)
        self.services = Services(memory=self.memory, stages=self.lookup, known=self._known, emit=self._emit)
        self.voice: SpeakingVoice | None = SpeakingVoice()
        self.queries = Queries(self.pipeline.answer, self.told)
        self.bridge: Bridge

    def _known(self) -> list[Supervisor]:
        return [self._supervisor(stage) for stage in STAGE_ORDER]

    def _emit(self, name: str, data: dict[str, Any]) -> None:
        super()._emit(name, data)
        self.told(name, data)

    def client(self) -> AsyncClient:
        address = self.bridge.address
        uri = f"unix://{address}" if isinstance(address, str) else f"tcp://{address[0]}:{address[1]}"
        return AsyncClient.from_uri(uri, read_timeout=10)

    def services_ended(self) -> list[tuple[str, str]]:
        return [(data["service"], data["code"]) for name, data in self.events if name == "service-end"]


@asynccontextmanager
async def home(
    tmp_path: Path, uri: str = "tcp://127.0.0.1:0", *, bridge: dict[str, Any] | None = None, **more: Any
) -> AsyncIterator[Home]:
    one = Home(tmp_path, **more)
    one.server.start()
    async with housekept(one.memory, one.housekeeper, one.server):
        async with Bridge(one, one.queries, uri, **(bridge or {})) as one.bridge:
            one.told.listeners.append(one.bridge.follow)
            yield one
        await one.queries.close()


@asynccontextmanager
async def counted_turns() -> AsyncIterator[list[None]]:
    """One entry for each turn that another task of this loop has meanwhile."""
    turns: list[None] = []

    async def count() -> None:
        while True:
            await asyncio.sleep(0)
            turns.append(None)

    counting = asyncio.create_task(count())
    try:
        yield turns
    finally:
        counting.cancel()


def sound_of(pcm: bytes, **format: int) -> list[Any]:
    """As Home Assistant sends it: in pieces of a tenth of a second."""
    size = format["rate"] // 10 * format["width"] * format["channels"]
    pieces = [AudioChunk(**format, audio=pcm[at : at + size]) for at in range(0, len(pcm), size)]
    return [AudioStart(**format), *pieces, AudioStop()]


async def said(client: AsyncClient, *what: Eventable) -> None:
    for one in what:
        await client.write_event(one.event())


async def heard(client: AsyncClient, last: str) -> list[Event]:
    """Events up to the first of type `last`; or to the end of the connection."""
    found: list[Event] = []
    while not found or found[-1].type != last:
        event = await client.read_event()
        if event is None:
            break
        found.append(event)
    return found


async def until(condition: Any, timeout_s: float = 5) -> bool:
    give_up = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        if asyncio.get_running_loop().time() > give_up:
            return False
        await asyncio.sleep(0.01)
    return True
