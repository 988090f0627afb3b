"""Sound that goes on to a worker while it works: in order, never lost, its absence never taken for a hang."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import DeviceError, EngineFailed, StageDied, StageHung
from assistant.memory_orchestrator.calibration import Calibration
from assistant.messages import AsrRequest, Stage, Transcript
from assistant.stages.base import EngineConfig
from assistant.stages.fork_client import ForkServer
from assistant.stages.lifecycle import Rung, WorkerState
from assistant.stages.process import Worker
from assistant.stages.spec import StageSpec
from assistant.stages.supervisor import Supervisor
from tests.stages.workers import gone, run

ENGINE = "tests.stages.listeners:Speller"
LIVE = AsrRequest(pcm=b"", live=True)


class Mouth:
    """Says what it is told to, piece by piece; numbers are pauses in seconds."""

    def __init__(self, *says: str | float | Exception) -> None:
        self._says = says
        self.said: list[str] = []

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for what in self._says:
            match what:
                case Exception():
                    raise what
                case str():
                    self.said.append(what)
                    yield what.encode()
                case pause:
                    await asyncio.sleep(pause)

    def words(self) -> AsyncIterator[bytes]:
        return self.__aiter__()


@asynccontextmanager
async def worker(**options: Any) -> AsyncIterator[Worker]:
    server = ForkServer()
    server.start()
    one = Worker(Stage.ASR, server)
    try:
        await one.prepare(ENGINE, 10)
        await one.load(
            EngineConfig(model="m", model_dir=Path(), cache_dir=Path("/tmp"), threads=1, options=options), 10
        )
        yield one
    finally:
        await one.stop()
        await server.close()


async def said(results: AsyncIterator[Any]) -> list[str]:
    return [out.text for out in [one async for one in results] if isinstance(out, Transcript)]


def test_words_come_while_the_sound_still_does() -> None:
    async def test() -> None:
        async with worker() as one:
            mouth = Mouth("what ", "time ", 0.3, "is it")
            results = one.run(LIVE, 5, mouth.words())
            assert isinstance(first := await anext(results), Transcript)
            assert (first.text, mouth.said[-1]) == ("what ", "time ")  # it is in its pause
            assert await said(results) == ["what time ", "what time is it", "what time is it"]
            assert one.state is WorkerState.READY
            assert await said(one.run(AsrRequest(pcm=b"again"), 5)) == ["again"]

    run(test)


def test_what_a_live_request_comes_with_is_heard_first() -> None:
    async def test() -> None:
        async with worker() as one:
            request = AsrRequest(pcm=b"before ", live=True)
            assert (await said(one.run(request, 5, Mouth("after").words())))[-1] == "before after"
            assert await said(one.run(request, 5, Mouth().words())) == ["before "]

    run(test)


def test_sound_that_comes_while_the_engine_computes_is_kept_in_order() -> None:
    async def test() -> None:
        async with worker() as one:
            words = ["slow ", *(f"{n} " for n in range(2000)), "slow ", "end"]  # more than its socket holds
            assert (await said(one.run(LIVE, 5, Mouth(*words).words())))[-1] == "".join(words)

    run(test)


def test_silence_is_no_hang_and_neither_is_an_engine_that_lags_behind() -> None:
    async def test() -> None:
        async with worker() as one:
            started = time.monotonic()
            mouth = Mouth(0.8, "a", 0.8, *["slow"] * 6, 0.8, "z")
            assert (await said(one.run(LIVE, 0.3, mouth.words())))[-1] == "a" + "slow" * 6 + "z"
            assert time.monotonic() - started > 2.4

    run(test)


@pytest.mark.parametrize("pause_s", [0.0, 0.5])
def test_an_engine_that_hangs_over_sound_is_found_out(pause_s: float) -> None:
    async def test() -> None:
        async with worker() as one:
            started = time.monotonic()
            with pytest.raises(StageHung, match=r"0\.3 s"):
                await said(one.run(LIVE, 0.3, Mouth("a", pause_s, "hang", 60).words()))
            assert 0.3 + pause_s < time.monotonic() - started < 3
            assert gone(one.pid)

    run(test)


@pytest.mark.alone("within 150 ms")
def test_a_cancel_while_it_waits_for_sound_ends_it_at_once_and_it_serves_on() -> None:
    async def test() -> None:
        async with worker() as one:
            task = asyncio.create_task(said(one.run(LIVE, 5, Mouth("a", 60).words())))
            await asyncio.sleep(0.2)
            started = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - started < 0.15
            assert one.state is WorkerState.READY
            assert (await said(one.run(LIVE, 5, Mouth("b").words())))[-1] == "b"

    run(test)


def test_a_cancel_while_more_was_sent_than_it_takes_cuts_no_frame_in_two() -> None:
    async def test() -> None:
        async with worker() as one:
            mouth = Mouth("a", 0.1, *[100_000 * "!"] * 20, 60)
            task = asyncio.create_task(said(one.run(LIVE, 5, mouth.words())))
            await asyncio.sleep(0.08)
            os.kill(one.pid, signal.SIGSTOP)
            await asyncio.sleep(0.3)
            task.cancel()
            await asyncio.sleep(0.2)
            os.kill(one.pid, signal.SIGCONT)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert one.state is WorkerState.READY
            assert (await said(one.run(LIVE, 5, Mouth("b").words())))[-1] == "b"

    run(test)


def test_a_worker_that_waits_for_sound_leaves_when_it_is_told_to() -> None:
    async def test() -> None:
        async with worker() as one:
            task = asyncio.create_task(said(one.run(LIVE, 5, Mouth("a", 60).words())))
            await asyncio.sleep(0.2)
            assert await one.stop() is Rung.REQUEST
            with pytest.raises(StageDied):
                await task
            assert gone(one.pid)

    run(test)


def test_a_microphone_that_breaks_ends_the_request_with_its_own_error() -> None:
    async def test() -> None:
        async with worker() as one:
            with pytest.raises(DeviceError, match="unplugged"):
                await said(one.run(LIVE, 5, Mouth("a", 0.1, DeviceError("unplugged")).words()))
            assert one.state is WorkerState.READY
            assert (await said(one.run(LIVE, 5, Mouth("b").words())))[-1] == "b"

    run(test)


def test_an_engine_that_has_heard_enough_ends_before_the_sound_does() -> None:
    async def test() -> None:
        async with worker() as one:
            assert (await said(one.run(LIVE, 5, Mouth("a", "enough", *["b"] * 50, 60).words())))[-1] == "aenough"
            assert (await said(one.run(LIVE, 5, Mouth("c").words())))[-1] == "c"

    run(test)


def test_an_engine_for_whole_recordings_refuses_a_live_one() -> None:
    async def test() -> None:
        async with worker(whole=True) as one:
            with pytest.raises(EngineFailed, match="whole recordings"):
                await said(one.run(LIVE, 5, Mouth("a").words()))
            assert await said(one.run(AsrRequest(pcm=b"all"), 5)) == ["all"]

    run(test)


# --- through its supervisor -----------------------------------------------------------------------------------------
@asynccontextmanager
async def supervised(tmp_path: Path, **options: Any) -> AsyncIterator[Supervisor]:
    server = ForkServer()
    server.start()
    spec = StageSpec(
        stage=Stage.ASR, engine="vosk", model="m", model_dir=Path(), digest="", weight_bytes=0,
        cache_dir=tmp_path / "cache", threads=1, start_timeout_s=10, step_timeout_s=5,
        options={"died": str(tmp_path / "died"), **options},
    )  # fmt: skip
    one = Supervisor(spec, server, Calibration(tmp_path / "measured.json"), path=ENGINE)
    try:
        assert not one.streaming  # nobody knows yet
        await one.load()
        yield one
    finally:
        await one.unload()
        await server.close()


def test_a_supervisor_tells_whether_its_engine_streams(tmp_path: Path) -> None:
    async def test() -> None:
        async with supervised(tmp_path) as one:
            assert one.streaming
        async with supervised(tmp_path, whole=True) as one:
            assert not one.streaming

    run(test)


@pytest.mark.parametrize("told", ["quiet", "a partial"])
def test_a_worker_that_takes_the_place_of_a_dead_one_hears_all_of_the_sound(tmp_path: Path, told: str) -> None:
    async def test() -> None:
        async with supervised(tmp_path) as one:
            first = one.pid
            mouth = Mouth(told, 0.1, " die-once ", 0.2, "after", 0.1, "wards")
            assert (await said(one.run(LIVE, mouth.words())))[-1] == f"{told} die-once afterwards"
            assert one.pid not in (0, first)
            assert mouth.said == [told, " die-once ", "after", "wards"]

    run(test)


def test_a_worker_that_dies_again_is_not_started_for_ever(tmp_path: Path) -> None:
    async def test() -> None:
        async with supervised(tmp_path) as one:
            with pytest.raises(StageDied):
                await said(one.run(LIVE, Mouth("a", "die", 60).words()))

    run(test)


def test_a_worker_that_did_not_survive_a_cancel_is_replaced_by_the_next_request(tmp_path: Path) -> None:
    async def test() -> None:
        async with supervised(tmp_path) as one:
            first = one.pid
            async with aclosing(one.run(LIVE, Mouth("a", "hang", 60).words())) as results:
                assert isinstance(await anext(results), Transcript)
                await asyncio.sleep(0.1)
            assert gone(first)
            assert (await said(one.run(LIVE, Mouth("b").words())))[-1] == "b"

    run(test)
