"""`listen`, `mute`, `volume` and `cancel` at the control socket, with real sockets and a scripted voice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from assistant.api.client import Client
from assistant.errors import DeviceError, UsageError
from tests.api.backend import SpeakingVoice, served


def test_what_is_asked_of_the_voice_reaches_it_and_its_state_comes_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path) as backend:
            voice = backend.speaking = SpeakingVoice()

            def ask() -> None:
                with Client(tmp_path) as client:
                    assert client.listen().words == ("hey_jarvis",)
                    assert client.volume(30).volume_percent == 30
                    assert client.mute(True).muted
                    with pytest.raises(UsageError, match="muted"):
                        client.listen()
                    assert not client.mute(False).muted

            await asyncio.to_thread(ask)
            assert voice.orders == ["listen"]

    asyncio.run(test())


@pytest.mark.parametrize("percent", [-1, 101, float("nan")])
def test_a_volume_that_there_is_not_is_refused(tmp_path: Path, percent: float) -> None:
    async def test() -> None:
        async with served(tmp_path) as backend:
            voice = backend.speaking = SpeakingVoice()

            def ask() -> None:
                with Client(tmp_path) as client, pytest.raises(UsageError):
                    client.volume(percent)

            await asyncio.to_thread(ask)
            assert voice.percent == 100

    asyncio.run(test())


def test_without_a_voice_the_way_to_one_is_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path):

            def ask() -> None:
                with Client(tmp_path) as client:
                    for order in (
                        client.listen,
                        lambda: client.say("hello"),
                        lambda: client.mute(True),
                        lambda: client.volume(1),
                    ):
                        with pytest.raises(DeviceError, match=r"audio\.enabled") as caught:
                            order()
                        assert (caught.value.code, caught.value.exit_code) == ("no-voice", 7)

            await asyncio.to_thread(ask)

    asyncio.run(test())


def test_a_cancel_stops_a_spoken_query_too(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path) as backend:
            backend.speaking = SpeakingVoice(runs="abc")

            def ask() -> None:
                with Client(tmp_path) as client:
                    with pytest.raises(UsageError):
                        client.cancel("other")
                    assert client.cancel() == ("abc",)
                    assert client.cancel() == ()

            await asyncio.to_thread(ask)

    asyncio.run(test())
