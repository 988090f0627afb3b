"""One client: what it holds is given back, however it leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path

from assistant.api.wyoming.sound import Room
from tests.api.wyoming.homes import OURS, counted_turns, heard, home, said, sound_of, until


def test_whoever_leaves_in_the_middle_of_a_recording_gives_its_room_back(tmp_path: Path) -> None:
    pcm, room = bytes(32_000), Room(most=40_000)  # for one of them at a time

    async def run() -> None:
        async with home(tmp_path, bridge={"room": room}) as one:
            for _ in range(2):
                async with one.client() as client:
                    await said(client, *sound_of(pcm, **OURS)[:-1])  # no end of it
                    assert await until(lambda: room.held == len(pcm))
                    async with one.client() as another:
                        await said(another, *sound_of(pcm, **OURS))
                        assert (await heard(another, "error"))[-1].data["code"] == "busy"
                    assert room.held == len(pcm), "whoever was refused gave back what it held, and no more"
                assert await until(lambda: room.held == 0)

    asyncio.run(run())


def test_others_have_their_turn_in_a_flood_of_events(tmp_path: Path) -> None:
    events = 1_000

    async def run() -> None:
        async with home(tmp_path) as one:
            reader, writer = await asyncio.open_connection(*one.bridge.address)
            async with counted_turns() as turns:
                writer.write(b'{"type": "transcribe"}\n' * events + b'{"type": "ping"}\n')
                assert b"pong" in await reader.readline()
            writer.close()
            assert len(turns) > events

    asyncio.run(run())
