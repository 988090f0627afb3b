"""Leases over scripted parts: of two models, or two settings, under one name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from assistant.errors import BusyNow
from assistant.memory_orchestrator.ledger import RowState
from tests.memory_orchestrator.scripted import room, run, settled


def test_another_model_of_a_stage_takes_its_place(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            large, small = one.part("llm", 300, model="large"), one.part("llm", 100, model="small")
            await one.use(large)
            await one.use(small)
            (row,) = one.ledger().rows
            assert (row.model, row.pid) == ("small", small.pid)
            assert large.pid == 0
            assert one.evicted() == [("llm", "replaced")]

    run(test)


def test_another_model_waits_for_the_one_that_works_or_is_told_busy(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            large, small = one.part("llm", 300, model="large"), one.part("llm", 100, model="small")
            async with one.memory.lease(large):
                with pytest.raises(BusyNow, match="works with large"):
                    await one.use(small, deadline_s=0.05)
                task = asyncio.create_task(one.use(small))
                await settled()
                assert large.pid
            await task
            assert small.loads == [False]

    run(test)


def test_another_model_that_is_being_loaded_ahead_is_not_cut_off_in_the_middle(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            large, small = one.part("llm", 300, model="large"), one.part("llm", 100, model="small")
            large.may_load = asyncio.Event()
            await one.ahead(large)
            task = asyncio.create_task(one.use(small))
            await settled()
            large.may_load.set()
            await task
            assert (large.pid, one.states()) == (0, {"llm": RowState.IDLE})
            assert one.kernel.held.keys() == {1, small.pid}

    run(test)


def test_other_settings_take_effect_at_the_next_lease_and_not_under_a_user(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100)
            async with one.memory.lease(llm):
                llm.fresh = False
                await one.use(llm)
                assert llm.loads == [False]
            await one.use(llm)
            assert llm.loads == [False, False]

    run(test)
