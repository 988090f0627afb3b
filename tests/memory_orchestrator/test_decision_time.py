"""How long the decision about a lease takes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from assistant.memory_orchestrator.ledger import RowState
from assistant.memory_orchestrator.policy import Admit, plan
from tests.memory_orchestrator.holding import Holder, orchestrator, run


async def times_ms(work: Callable[[], Coroutine[Any, Any, object]]) -> float:
    times = []
    for _ in range(200):
        started = time.perf_counter()
        await work()
        times.append((time.perf_counter() - started) * 1000)
    return median(times)


@pytest.mark.alone("within a millisecond")
def test_the_decision_about_a_lease_takes_a_millisecond(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with orchestrator(tmp_path) as memory:
            llm, new = Holder("llm", 50), Holder("tts", 50)
            await memory.load(llm)

            async def reuse() -> None:
                entries, mine = await memory._planner.admit([llm])
                assert not mine
                await memory._give_back(entries)

            async def admit() -> None:
                entries, _ = await memory._planner.admit([llm])
                assert entries
                for entry in entries:
                    entry.users -= 1
                    entry.state = RowState.IDLE

            async def decide() -> None:
                assert plan(memory.holdings.snapshot(), [new.need()]) == Admit()

            found = {
                "idle": await times_ms(admit),
                "idle and back": await times_ms(reuse),
                "new": await times_ms(decide),
            }
        with capsys.disabled():
            shown = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
            sys.stdout.write(f"\nlease decision, median ms: {shown}\n")
        assert found["idle"] <= 3
        assert found["new"] <= 3

    run(test)
