"""What a stage learns of its own memory: from loads that worked, and from nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import AssistantError, StageDied, StageError
from assistant.memory_orchestrator.calibration import Calibration
from assistant.memory_orchestrator.pressure import RELIEF
from assistant.memory_orchestrator.probe import MIB, Usage
from assistant.messages import Level, LlmRequest, Stage, Turn
from assistant.stages.fork_client import ForkServer
from assistant.stages.spec import StageSpec
from assistant.stages.supervisor import Supervisor

PEAK = Usage(70 * MIB, 5 * MIB)


def spec(how: str, tmp_path: Path, **more: Any) -> StageSpec:
    return StageSpec(
        stage=Stage.LLM, engine="mnn", model="m", model_dir=Path(), digest="d", weight_bytes=100 * MIB,
        cache_dir=tmp_path / "cache", threads=1, start_timeout_s=10, step_timeout_s=5, options={"how": how}, **more,
    )  # fmt: skip


def need_after(how: str, tmp_path: Path, *, ask: bool) -> tuple[int, int]:
    """The promised bytes before and after one load whose measured peak is `PEAK`."""

    async def use() -> tuple[int, int]:
        server = ForkServer()
        server.start()
        one = Supervisor(
            spec(how, tmp_path), server, Calibration(tmp_path / "measured.json"),
            path="tests.stages.misbehaving:Misbehaving",
        )  # fmt: skip
        before = one.need().usage.total
        try:
            await one.load()
            if ask:
                async for _ in one.run(LlmRequest(turns=(Turn(role="user", content="x"),))):
                    pass
        except StageDied:
            pass
        finally:
            await one.unload()
            await server.close()
        one.settle(PEAK)
        return before, one.need().usage.total

    return asyncio.run(use())


def test_a_load_that_worked_replaces_the_guess(tmp_path: Path) -> None:
    before, after = need_after("", tmp_path, ask=True)
    assert before > 200 * MIB
    assert PEAK.total <= after <= PEAK.total * 1.1


@pytest.mark.parametrize(
    ("how", "ask"), [("", False), ("make-derived", True), ("exit-mid-stream", True), ("crash-on-load", True)]
)
def test_a_load_that_says_nothing_of_the_next_teaches_nothing(tmp_path: Path, how: str, ask: bool) -> None:
    before, after = need_after(how, tmp_path, ask=ask)
    assert after == before


def test_a_start_may_take_as_long_as_the_disk_needs_for_the_weights(tmp_path: Path) -> None:
    assert spec("", tmp_path).start_deadline_s > 10 + 15


def test_figures_of_files_that_are_gone_do_not_count(tmp_path: Path) -> None:
    folder = tmp_path / "derived"
    folder.mkdir()
    known = Calibration(tmp_path / "measured.json")
    known.learn("k", PEAK, str(folder))
    assert Calibration(tmp_path / "measured.json").peak("k") == PEAK
    folder.rmdir()
    assert Calibration(tmp_path / "measured.json").peak("k") is None


@asynccontextmanager
async def supervised(how: str, tmp_path: Path, **more: Any) -> AsyncIterator[Supervisor]:
    server = ForkServer()
    server.start()
    one = Supervisor(
        spec(how, tmp_path), server, Calibration(tmp_path / "measured.json"),
        path="tests.stages.misbehaving:Misbehaving", **more,
    )  # fmt: skip
    try:
        yield one
    finally:
        await one.unload()
        assert one.pid == 0
        await server.close()


async def ask(one: Supervisor) -> int:
    return len([out async for out in one.run(LlmRequest(turns=(Turn(role="user", content="x"),)))])


def test_a_prepared_process_is_the_one_that_loads(tmp_path: Path) -> None:
    async def test() -> None:
        async with supervised("", tmp_path) as one:
            await one.prepare()
            pid = one.pid
            assert pid
            with pytest.raises(StageError, match="not loaded"):
                await ask(one)
            await one.load()
            assert one.pid == pid
            assert await ask(one) == 4

    asyncio.run(test())


def test_a_prepared_process_that_died_is_replaced_by_the_load(tmp_path: Path) -> None:
    async def test() -> None:
        async with supervised("", tmp_path) as one:
            await one.prepare()
            first = one.pid
            os.kill(first, signal.SIGKILL)
            while one.pid:
                await asyncio.sleep(0.01)
            await one.load()
            assert one.pid not in (0, first)
            assert await ask(one) == 4

    asyncio.run(test())


@pytest.mark.parametrize("how", ["crash-on-load", "raise-on-load", "damaged"])
def test_a_load_that_failed_holds_nothing_and_decides_nothing(tmp_path: Path, how: str) -> None:
    async def test() -> None:
        async with supervised(how, tmp_path) as one:
            with pytest.raises(AssistantError):
                await one.load()
            assert one.pid == 0

    asyncio.run(test())


def test_a_second_try_does_not_trust_the_cache(tmp_path: Path) -> None:
    async def test() -> None:
        async with supervised("crash-until-distrusted", tmp_path) as one:
            with pytest.raises(StageDied):
                await one.load()
            await one.load(again=True)
            assert await ask(one) == 4

    asyncio.run(test())


def test_a_stage_that_is_stopped_for_its_memory_says_so_to_whom_it_worked_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with supervised("slow", tmp_path) as one:
            await one.load()
            task = asyncio.create_task(ask(one))
            await asyncio.sleep(0.1)
            one.kill("was stopped: it held 9 MiB")
            with pytest.raises(StageDied, match="held 9 MiB") as caught:
                await task
            assert caught.value.code == "stage-over-memory"
            assert one.pid == 0

    asyncio.run(test())


def test_a_second_request_waits_for_the_first(tmp_path: Path) -> None:
    async def test() -> None:
        async with supervised("", tmp_path) as one:
            await one.load()
            assert list(await asyncio.gather(ask(one), ask(one), ask(one))) == [4, 4, 4]

    asyncio.run(test())


def test_other_threads_under_pressure_make_it_stale_and_another_estimate(tmp_path: Path) -> None:
    async def test() -> None:
        level: list[Level] = ["normal"]
        async with supervised("", tmp_path, relief=lambda: RELIEF[level[0]]) as one:
            one.spec = replace(one.spec, threads=4)
            await one.load()
            await ask(one)
            assert one.settle(PEAK)
            known, fresh = one.need(), [one.fresh]
            level[0] = "high"
            fresh.append(one.fresh)
            assert one.need() == known  # fewer threads take no more; relief must not begin with a larger promise
            await one.unload()
            await one.load()
            fresh.append(one.fresh)
            assert fresh == [True, False, True]

    asyncio.run(test())


def test_reading_ahead_never_fails(tmp_path: Path) -> None:
    async def test() -> None:
        async with supervised("", tmp_path) as one:
            one.spec = replace(one.spec, model_dir=tmp_path / "no such folder")
            one.read_ahead()
            (tmp_path / "weights").write_bytes(b"x")
            one.spec = replace(one.spec, model_dir=tmp_path)
            one.read_ahead()
            assert one.pid == 0

    asyncio.run(test())


def test_a_worker_that_died_unnoticed_is_started_again_for_the_request_that_meets_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with supervised("", tmp_path) as one:
            await one.load()
            first = one.pid
            os.kill(first, signal.SIGKILL)  # and asked at once, before anybody has looked
            assert await ask(one) == 4
            assert one.pid not in (0, first)

    asyncio.run(test())


def test_a_worker_that_dies_after_it_has_told_something_is_not_asked_twice(tmp_path: Path) -> None:
    async def test() -> None:
        async with supervised("exit-mid-stream", tmp_path) as one:
            await one.load()
            with pytest.raises(StageDied):
                await ask(one)

    asyncio.run(test())
