"""From urgency and pressure to how much an answer of the LLM may take: the whole table."""

from __future__ import annotations

from itertools import pairwise, product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.errors import BusyNow
from assistant.machine import Cpu
from assistant.memory_orchestrator.elastic import TABLE, Available, Configured, Effort, check_admitted, effort
from assistant.memory_orchestrator.pressure import LEVELS
from assistant.messages import Level, Urgency

URGENCIES: tuple[Urgency, ...] = get_args(Urgency)
CPUS = tuple(Cpu(number, (0, 0, number), 1024) for number in (1, 2, 3, 4))
USUAL = Configured(prefill_chunk=128, max_new_tokens=96, threads=4, cpus=CPUS)
ALL = Available(emergency=True, small=True, w4=True)

EXPECTED: dict[tuple[Level, Urgency], tuple[object, ...] | None] = {
    # model, graph, threads, CPUs, chunk, duty, tokens
    ("normal", "critical"): ("configured", "full", 4, (1, 2, 3, 4), 128, 1, 96),
    ("normal", "normal"): ("configured", "full", 4, (1, 2, 3, 4), 128, 1, 96),
    ("normal", "background"): ("configured", "full", 4, (1, 2, 3, 4), 32, 0.5, 96),
    ("elevated", "critical"): ("configured", "full", 3, (1, 2, 3), 128, 1, 96),
    ("elevated", "normal"): ("configured", "full", 3, (1, 2, 3), 64, 0.9, 72),
    ("elevated", "background"): ("configured", "full", 3, (1, 2, 3), 32, 0.4, 72),
    ("high", "critical"): ("small", "emergency", 2, (1, 2), 128, 1, 96),
    ("high", "normal"): ("small", "full", 2, (1, 2), 32, 0.7, 48),
    ("high", "background"): ("small", "full", 2, (1, 2), 16, 0.3, 48),
    ("critical", "critical"): ("small", "emergency", 2, (1, 2), 128, 1, 96),
    ("critical", "normal"): ("small", "emergency", 2, (1, 2), 16, 0.5, 31),
    ("critical", "background"): None,
}


def told(found: Effort) -> tuple[object, ...]:
    return (
        found.model, found.variant, found.threads, found.cpus, found.prefill_chunk, found.duty, found.max_new_tokens,
    )  # fmt: skip


def test_the_table_has_every_case_once() -> None:
    assert set(TABLE) == set(EXPECTED) == set(product(LEVELS, URGENCIES))


@pytest.mark.parametrize(("level", "urgency"), list(EXPECTED))
def test_what_each_level_and_urgency_gets(level: Level, urgency: Urgency) -> None:
    expected = EXPECTED[level, urgency]
    if expected is not None:
        check_admitted(urgency, level)
        assert told(effort(urgency, level, USUAL, ALL)) == expected
        return
    for refuse in (lambda: check_admitted(urgency, level), lambda: effort(urgency, level, USUAL, ALL)):
        with pytest.raises(BusyNow, match="background") as caught:
            refuse()
        assert caught.value.to_dict()["status"] == 429
        assert caught.value.retry_after_ms


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("small", "w4"), list(product((False, True), repeat=2)))
def test_fewer_bytes_are_taken_from_high_on_where_there_are_any(level: Level, small: bool, w4: bool) -> None:
    found = effort("normal", level, USUAL, Available(small=small, w4=w4)).model
    smaller = "small" if small else "w4" if w4 else "configured"
    assert found == (smaller if level in ("high", "critical") else "configured")


@pytest.mark.parametrize(("level", "urgency"), [case for case, row in EXPECTED.items() if row])
def test_without_an_emergency_graph_there_is_the_full_one(level: Level, urgency: Urgency) -> None:
    assert effort(urgency, level, USUAL, Available()).variant == "full"


@pytest.mark.parametrize("level", LEVELS)
def test_no_urgency_loads_the_engine_anew(level: Level) -> None:
    admitted = [urgency for urgency in URGENCIES if EXPECTED[level, urgency]]
    found = [effort(urgency, level, USUAL, ALL) for urgency in admitted]
    assert len({(one.model, one.threads, one.cpus) for one in found}) == 1


def test_a_worker_that_was_kept_to_no_cpus_is_not_kept_to_any_under_pressure() -> None:
    assert effort("normal", "critical", Configured(prefill_chunk=8, max_new_tokens=1, threads=2), ALL).cpus == ()


def test_fewer_threads_keep_the_fastest_cores_with_all_their_cpus() -> None:
    cpus = (
        Cpu(0, (0, 0, 0), 500), Cpu(1, (0, 0, 0), 500), Cpu(2, (0, 0, 1), 1024), Cpu(3, (0, 0, 1), 1024),
        Cpu(4, (0, 0, 2), 1024), Cpu(5, (0, 0, 2), 1024), Cpu(6, (0, 0, 3), 500), Cpu(7, (0, 0, 3), 500),
    )  # fmt: skip
    found = effort("normal", "high", Configured(prefill_chunk=8, max_new_tokens=1, threads=4, cpus=cpus), ALL)
    assert (found.threads, found.cpus) == (2, (2, 3, 4, 5))


@given(
    st.integers(1, 64).map(lambda rows: rows * 8), st.integers(1, 4096), st.integers(1, 256),
    st.lists(st.builds(Cpu, st.integers(0, 99), st.tuples(*[st.integers(0, 3)] * 3), st.integers(1, 1024)), max_size=8),
)  # fmt: skip
def test_nobody_gets_more_than_is_configured_nothing_or_a_piece_that_changes_the_answer(
    chunk: int, tokens: int, threads: int, cpus: list[Cpu]
) -> None:
    configured = Configured(prefill_chunk=chunk, max_new_tokens=tokens, threads=threads, cpus=tuple(cpus))
    by_level: dict[Urgency, list[Effort]] = {urgency: [] for urgency in URGENCIES}
    for (level, urgency), row in EXPECTED.items():
        if row is None:
            continue
        found = effort(urgency, level, configured, ALL)
        by_level[urgency].append(found)
        assert 8 <= found.prefill_chunk <= chunk
        assert found.prefill_chunk % 8 == 0
        assert 1 <= found.max_new_tokens <= tokens
        assert 1 <= found.threads <= threads
        assert 0 < found.duty <= 1
        assert set(found.cpus) <= {cpu.number for cpu in cpus}
        assert bool(found.cpus) == bool(cpus)
    for efforts in by_level.values():  # each level's, the calmest first
        for milder, harder in pairwise(efforts):
            assert harder.duty <= milder.duty
            assert harder.prefill_chunk <= milder.prefill_chunk
            assert harder.max_new_tokens <= milder.max_new_tokens
            assert harder.threads <= milder.threads
            assert len(harder.cpus) <= len(milder.cpus)
