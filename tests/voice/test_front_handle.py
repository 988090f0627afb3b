"""The handle of the audio process: real processes, forked by the real fork server, that do what they should not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from assistant.audio.front_messages import Beat, Device, FromFront, FrontSettings, Mute, Play, Silence, Volume, Woke
from assistant.errors import ConfigError, StageError
from assistant.stages.fork_client import ForkServer
from assistant.voice_front import Front


class Told:
    """Everything that was told, and a way to wait for it."""

    def __init__(self) -> None:
        self.packets: list[FromFront] = []
        self._came = asyncio.Event()

    def __call__(self, packet: FromFront) -> None:
        self.packets.append(packet)
        self._came.set()

    async def until(self, there: Callable[[FromFront], bool], count: int = 1) -> list[FromFront]:
        async with asyncio.timeout(10):
            while len(found := [packet for packet in self.packets if there(packet)]) < count:
                self._came.clear()
                await self._came.wait()
        return found


def ok(packet: FromFront) -> bool:
    return isinstance(packet, Device) and packet.state == "ok"


def lost(packet: FromFront) -> bool:
    return isinstance(packet, Device) and packet.state == "lost"


@contextlib.asynccontextmanager
async def front(way: str, *, silent_s: float = 10.0) -> AsyncIterator[tuple[Front, Told]]:
    server, told = ForkServer(), Told()
    server.start()
    one = Front(server, FrontSettings(input=way), told, main="tests.voice.fronts", silent_s=silent_s)
    try:
        yield one, told
    finally:
        await one.close()
        await server.close()


def test_one_that_ends_is_started_again_with_what_was_changed_since(tmp_path: Path) -> None:
    async def test() -> None:
        async with front("well") as (one, told):
            await one.start()
            await told.until(ok)
            one.send(Silence(run="6"))
            await told.until(lambda packet: isinstance(packet, Woke))
            one.send(Mute(on=True))
            first = one.pid
            os.kill(first, signal.SIGKILL)
            _, again = await told.until(ok, 2)
            assert isinstance(again, Device)
            assert again.name == str(one.pid) != str(first)
            assert again.channels == 1, "it was muted"
            assert again.sample_rate == 6, "no number of a session is used twice"
            assert len(await told.until(lost, 2)) == 2, "microphone and speaker"
            assert one.restarts == 1

    asyncio.run(test())


@pytest.mark.parametrize("way", ["dies", "babbles", "stands-still"])
def test_one_that_does_not_work_is_replaced(tmp_path: Path, way: str) -> None:
    async def test() -> None:
        async with front(f"{way}:{tmp_path / 'was-there'}", silent_s=0.5) as (one, told):
            await one.start()
            await told.until(ok, 2)
            await told.until(lambda packet: isinstance(packet, Beat))
            assert one.restarts == 1

    asyncio.run(test())


def test_what_its_settings_make_impossible_is_told_and_not_tried_again() -> None:
    async def test() -> None:
        async with front("refuses") as (one, _):
            with pytest.raises(ConfigError, match="no such word"):
                await one.start()
            assert one.pid == 0

    asyncio.run(test())


def test_one_that_ends_before_it_is_ready_is_told() -> None:
    async def test() -> None:
        async with front("dies-early") as (one, _):
            with pytest.raises(StageError, match="ended while it started"):
                await one.start()

    asyncio.run(test())


def test_more_sound_than_a_socket_holds_arrives_whole() -> None:
    async def test() -> None:
        async with front("slow") as (one, told):
            await one.start()
            for _ in range(100):
                one.send(Play(run="r", pcm=bytes(32_000), sample_rate=22_050))
            one.send(Volume(percent=1))
            (found,) = await told.until(lambda packet: isinstance(packet, Beat) and packet.overflows == -1)
            assert isinstance(found, Beat)
            assert found.captured_s == 100 * 32_000

    asyncio.run(test())


def test_it_ends_in_time_whatever_it_does(tmp_path: Path) -> None:
    async def test() -> None:
        async with front(f"stands-still:{tmp_path / 'm'}") as (one, _):
            await one.start()
            pid, began = one.pid, time.monotonic()
            await one.close()
            assert time.monotonic() - began < 1.5
            assert not Path(f"/proc/{pid}").exists()

    asyncio.run(test())


def test_nothing_is_sent_where_nobody_is() -> None:
    async def test() -> None:
        async with front("well") as (one, _):
            one.send(Volume(percent=7))
            assert one.settings.volume_percent == 7, "the next process begins with it"

    asyncio.run(test())
