"""Single stages, asked for alone: whoever watches over servers is told of those that fail, and of nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from assistant.errors import StageError
from assistant.messages import Stage
from assistant.services import Services
from tests.house import run
from tests.stages.remote_servers import free_port, scripted, silent, wyoming_server
from tests.test_pipeline import speech
from tests.test_remote_fallback import RemoteHouse, remote_house


class Told:
    """Services on a house's remote stages, and what they told of failures."""

    def __init__(self, house: RemoteHouse) -> None:
        self.failed: list[tuple[Stage, str]] = []
        self.services = Services(memory=house.memory, stages=house.lookup, failed=self._note)

    def _note(self, stage: Stage, error: Exception) -> None:
        assert isinstance(error, StageError)
        self.failed.append((stage, error.code))

    async def transcribe(self) -> str:
        return [out.text async for out in self.services.transcribe(speech())][-1]

    async def synthesize(self) -> None:
        async for _ in self.services.synthesize(aiter_of("Hello.")):
            pass


async def aiter_of(text: str) -> AsyncIterator[str]:
    yield text


def test_servers_that_fail_are_told_of(tmp_path: Path) -> None:
    async def test() -> None:
        away = {"uri": f"tcp://127.0.0.1:{free_port()}"}
        async with remote_house(tmp_path, {Stage.ASR: away, Stage.TTS: away}) as one:
            told = Told(one)
            with pytest.raises(StageError):
                await told.transcribe()
            with pytest.raises(StageError):
                await told.synthesize()
            assert told.failed == [(Stage.ASR, "remote-unreachable"), (Stage.TTS, "remote-unreachable")]

    run(test)


def test_servers_that_work_or_are_left_are_not(tmp_path: Path) -> None:
    async def test() -> None:
        with wyoming_server() as (uri, _), scripted(silent) as port:
            mute = {"uri": f"tcp://127.0.0.1:{port}", "deadline_s": 30}
            async with remote_house(tmp_path, {Stage.TTS: {"uri": uri}, Stage.ASR: mute}) as one:
                told = Told(one)
                await told.synthesize()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1.5):
                        await told.transcribe()
                assert told.failed == []

    run(test)
