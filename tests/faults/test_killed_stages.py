"""SIGKILL for every stage while it loads, works or rests: the query ends with a typed error or an answer, the next one
succeeds, and nothing is lost. `--fault-times 50` for the full measure."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from assistant.errors import StageDied
from assistant.memory_orchestrator.entry import Entry
from assistant.memory_orchestrator.ledger import RowState
from assistant.memory_orchestrator.probe import MIB, Probe
from assistant.messages import STAGE_ORDER, Outcome, Stage
from assistant.model_store.store import ModelInfo
from tests.faults.house import House, house

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", autouse=True)
def models(model: Callable[[str], ModelInfo]) -> None:
    for name in ("whisper-tiny.en", "smollm2-135m-instruct", "en_US-joe-medium"):
        model(name)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as one:
        yield one


@pytest.fixture(scope="module")
def shared(runner: asyncio.Runner, models: None) -> Iterator[House]:
    """One house for all faults, since its start takes as long as two queries: what one leaves, the next one finds."""
    entered = house()
    one = runner.run(entered.__aenter__())
    yield one
    runner.run(entered.__aexit__(None, None, None))


def loading(entry: Entry) -> bool:
    return entry.state is RowState.LOADING


def working(entry: Entry) -> bool:
    return entry.state is RowState.IN_USE


async def next_query_succeeds(one: House) -> None:
    answer = await one.ask()
    assert answer.error is None, answer.error
    assert answer.report.outcome is Outcome.ANSWERED
    assert "Paris" in answer.report.reply
    assert answer.report.audio is not None
    await one.check_balance()


@pytest.mark.parametrize("stage", STAGE_ORDER)
@pytest.mark.parametrize(("moment", "within_s"), [(loading, 0.08), (working, 0.15)])
def test_a_stage_killed_during_a_query(
    runner: asyncio.Runner,
    shared: House,
    stage: Stage,
    moment: Callable[[Entry], bool],
    within_s: float,
    fault_times: int,
) -> None:
    async def test() -> None:
        killed = 0
        for _ in range(fault_times):
            if moment is loading:
                await shared.unload_all()
            killer = asyncio.create_task(shared.kill_when(stage, moment, within_s))
            answer = await shared.ask()
            if killer.done():
                killed += await killer
            killer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await killer
            if answer.error is not None:
                assert isinstance(answer.error, StageDied), answer.error
                assert answer.error.stage == stage.value
            await next_query_succeeds(shared)
        assert killed, "the moment never came"

    runner.run(test())


@pytest.mark.parametrize("stage", STAGE_ORDER)
def test_a_stage_killed_at_rest_is_not_missed(
    runner: asyncio.Runner, shared: House, stage: Stage, fault_times: int
) -> None:
    async def test() -> None:
        await next_query_succeeds(shared)  # all of them are there
        for _ in range(fault_times):
            assert await shared.kill_when(stage, lambda entry: entry.state is RowState.IDLE, 0.02)
            await next_query_succeeds(shared)

    runner.run(test())


def test_the_fork_server_killed_takes_nothing_with_it_for_good(
    runner: asyncio.Runner, shared: House, fault_times: int
) -> None:
    async def test() -> None:
        for _ in range(fault_times):
            os.kill(shared.assistant.fork_server_pid, signal.SIGKILL)
            await asyncio.sleep(0.05)
            await next_query_succeeds(shared)

    runner.run(test())


def test_a_sequential_budget_survives_the_same(fault_times: int) -> None:
    async def test() -> None:
        # the test's own process counts as the daemon's, and after a long run of tests it is no small one
        own = Probe().usage(os.getpid()).total // MIB
        async with house(f"memory.budget_mib={600 + own}") as one:
            await next_query_succeeds(one)
            assert one.holdings.figures.mode == "sequential"
            for number in range(fault_times):
                killer = asyncio.create_task(one.kill_when(STAGE_ORDER[number % 4], working, 0.1))
                await one.ask()
                killer.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await killer
                await next_query_succeeds(one)

    asyncio.run(test())
