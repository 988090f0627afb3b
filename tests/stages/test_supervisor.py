"""What a stage learns of its own memory: from loads that worked, and from nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import StageDied
from assistant.memory_orchestrator.calibration import Calibration
from assistant.memory_orchestrator.probe import MIB, Usage
from assistant.messages import LlmRequest, Stage, Turn
from assistant.stages.fork_client import ForkServer
from assistant.stages.supervisor import StageSpec, Supervisor

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
