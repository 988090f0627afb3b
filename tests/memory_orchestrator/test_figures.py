"""What the ledger and a query are told of what is held."""

from __future__ import annotations

from pathlib import Path

from assistant.memory_orchestrator.probe import MIB
from tests.memory_orchestrator.scripted import room, run


def test_a_query_that_no_reading_saw_has_held_what_was_there(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            await one.use(one.part("llm", 100))
            await one.look()
            with one.memory.holdings.figures.watch() as peaks:
                pass
            assert peaks.total == 150 * MIB

    run(test)


def test_the_ledger_says_what_is_held(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            llm = one.part("llm", 100, promise=120)
            await one.use(llm)
            await one.look()
            view = one.ledger()
            (row,) = view.rows
            assert (row.stage, row.engine, row.model, row.pid) == ("llm", "scripted", "m", llm.pid)
            assert (row.reserved, row.anon) == (120 * MIB, 100 * MIB)
            assert (view.budget, view.margin, view.base_anon) == (650 * MIB, 100 * MIB, 50 * MIB)
            assert view.peak_total == 150 * MIB

    run(test)


def test_the_mode_follows_from_what_is_expected(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path) as one:
            figures = one.memory.holdings.figures
            one.memory.holdings.snapshot()
            seen = []
            for size in (100, 125, 126, 250, 251):
                figures.expect([one.part(name, size).need() for name in ("asr", "intent", "llm", "tts")])
                seen.append(figures.mode)
            assert seen == ["resident", "resident", "overlap", "overlap", "sequential"]

    run(test)
