"""Real worker processes, well behaved and not: each failure is typed, in bounded time, and leaves no process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import EngineFailed, ModelDamaged, StageDied, StageError, StageHung, StageStartTimeout
from assistant.messages import AsrRequest, LlmDelta, Progress, Stage
from assistant.stages.fork_client import ForkServer
from assistant.stages.lifecycle import Rung, WorkerState
from assistant.stages.process import Worker
from tests.stages.workers import ENGINE, REQUEST, config, gone, run, worker


def test_a_request_streams_its_results_in_order_and_the_worker_is_ready_again() -> None:
    async def test() -> None:
        async with worker() as one:
            for _ in range(2):
                out = [body async for body in one.run(REQUEST, 5)]
                assert out[:3] == [Progress(done=n, total=3) for n in range(3)]
                assert isinstance(out[3], LlmDelta)
                assert "hello 🌍" in out[3].text
                assert one.state is WorkerState.READY
            assert await one.stop() is Rung.REQUEST
            assert gone(one.pid)

    run(test)


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ("damaged", ModelDamaged, "one byte"),
        ("raise-on-load", EngineFailed, "RuntimeError"),
        ("crash-on-load", StageDied, "SIGSEGV"),
        ("hang-on-load", StageStartTimeout, "start_timeout_s"),
    ],
)
def test_a_failed_load_is_typed_and_leaves_no_process(how: str, error: type[StageError], words: str) -> None:
    async def test() -> None:
        pid = 0
        with pytest.raises(error, match=words):
            server = ForkServer()
            server.start()
            one = Worker(Stage.LLM, server)
            try:
                await one.prepare(ENGINE, 10)
                pid = one.pid
                await one.load(config(how), 0.5 if how == "hang-on-load" else 10)
            finally:
                await one.stop()
                await server.close()
        assert pid > 0
        assert gone(pid)

    run(test)


def test_an_engine_that_does_not_exist_is_a_typed_failure() -> None:
    async def test() -> None:
        server = ForkServer()
        server.start()
        one = Worker(Stage.LLM, server)
        try:
            with pytest.raises(EngineFailed, match="not installed"):
                await one.prepare("assistant.stages.no_such:Engine", 10)
        finally:
            await one.stop()
            await server.close()

    run(test)


@pytest.mark.parametrize(
    ("how", "error"),
    [("raise-on-run", EngineFailed), ("exit-mid-stream", StageDied), ("hang-on-run", StageHung)],
)
def test_a_failed_request_is_typed(how: str, error: type[StageError]) -> None:
    async def test() -> None:
        async with worker(how) as one:
            with pytest.raises(error):
                async for _ in one.run(REQUEST, 0.5):
                    pass
            # a worker that merely raised serves the next request; one that died or hung is gone
            assert (one.state is WorkerState.READY) == (how == "raise-on-run")
            assert gone(one.pid) == (how != "raise-on-run")

    run(test)


@pytest.mark.alone("within 150 ms")
def test_leaving_early_cancels_within_150_ms_and_the_worker_serves_on() -> None:
    async def test() -> None:
        async with worker("slow") as one:
            stream: Any = one.run(REQUEST, 5)
            await anext(stream)
            started = time.monotonic()
            await stream.aclose()
            assert time.monotonic() - started < 0.15
            assert one.state is WorkerState.READY
            stream = one.run(REQUEST, 5)
            assert await anext(stream) == Progress(done=0, total=3)
            await stream.aclose()

    run(test)


def test_what_an_engine_prints_neither_blocks_it_nor_disturbs_the_channel() -> None:
    async def test() -> None:
        async with worker("flood-stdout") as one:
            out = [body async for body in one.run(REQUEST, 5)]
            assert len(out) == 4

    run(test)


def test_a_worker_that_ignores_sigterm_is_killed_and_reaped() -> None:
    async def test() -> None:
        async with worker("ignore-sigterm") as one:
            task = asyncio.ensure_future(anext(one.run(REQUEST, 30)))
            await asyncio.sleep(0.1)
            assert await one.stop() is Rung.SIGKILL
            with pytest.raises(StageDied):
                await task
            assert gone(one.pid)

    run(test)


def test_a_second_cancel_while_the_first_takes_effect_leaves_a_usable_or_a_dead_worker() -> None:
    async def test() -> None:
        async with worker("slow") as one:

            async def ask() -> None:
                async for _ in one.run(REQUEST, 5):
                    pass

            task = asyncio.create_task(ask())
            await asyncio.sleep(0.1)
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert one.state is WorkerState.READY
            stream: Any = one.run(REQUEST, 5)
            assert await anext(stream) == Progress(done=0, total=3)
            await stream.aclose()

    run(test)


def test_what_a_worker_prints_is_in_the_log_at_debug_level_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with worker("flood-stdout") as one:
            assert [body async for body in one.run(REQUEST, 5)]

    with caplog.at_level("DEBUG", logger="assistant"):
        run(test)
    printed = [record for record in caplog.records if "xxx" in record.getMessage()]
    assert printed
    assert {record.levelname for record in printed} == {"DEBUG"}


def test_killing_a_worker_that_has_no_process_yet_harms_nobody() -> None:
    code = (
        "from tests.stages.workers import *\n"
        "Worker(Stage.LLM, ForkServer()).kill('was stopped')\n"
        "print('alive', flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, start_new_session=True
    )
    assert done.returncode == 0
    assert done.stdout == b"alive\n"


def test_a_worker_that_stands_still_does_not_keep_whoever_sends_it_a_recording(tmp_path: Path) -> None:
    """Five megabytes are more than its socket holds: the send itself has a deadline, and so has every way out."""

    async def test() -> None:
        async with worker() as one:
            os.kill(one.pid, signal.SIGSTOP)
            started = time.monotonic()
            with pytest.raises(StageHung):
                async for _ in one.run(AsrRequest(pcm=bytes(5_000_000)), 0.5):
                    pass
            assert await one.stop() is not Rung.REQUEST
            assert time.monotonic() - started < 4
            assert gone(one.pid)

    run(test)


def test_a_cancelled_send_to_a_worker_that_stands_still_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with worker() as one:
            os.kill(one.pid, signal.SIGSTOP)

            async def ask() -> None:
                async for _ in one.run(AsrRequest(pcm=bytes(5_000_000)), 60):
                    pass

            task = asyncio.create_task(ask())
            await asyncio.sleep(0.2)
            started = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - started < 4
            assert gone(one.pid)

    run(test)
