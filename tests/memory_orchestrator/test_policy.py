"""The policy as a table: who is admitted, who goes first, who is refused and with which words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.errors import BusyNow, NeverFits
from assistant.memory_orchestrator.policy import Admit, Evict, Held, Need, Refuse, Snapshot, plan
from assistant.memory_orchestrator.probe import MIB, Usage


def snapshot(*held: Held, usable: int = 1000, base: int = 50) -> Snapshot:
    return Snapshot(usable=usable * MIB, budget=(usable + 300) * MIB, margin=300 * MIB, base=base * MIB, held=held)


def held(stage: str, mib: int, *, in_use: bool = False, used: int = 0, heavy: bool = True) -> Held:
    return Held(stage, Usage(mib * MIB), Usage(), in_use=in_use, last_used_ns=used, heavy=heavy)


def need(stage: str, mib: int, *, heavy: bool = True) -> Need:
    return Need(stage=stage, anon=mib * MIB, file=0, heavy=heavy)


CASES = {
    "an empty ledger admits": (snapshot(), need("llm", 900), Admit()),
    "exactly the room admits": (snapshot(), need("llm", 950), Admit()),
    "a light stage stays beside a heavy one": (
        snapshot(held("asr", 200, in_use=True)),
        need("intent", 50, heavy=False),
        Admit(),
    ),
    "one heavy stage at a time, whatever the room": (snapshot(held("asr", 10)), need("llm", 10), Evict(("asr",))),
    "a heavy stage beside an idle light one": (snapshot(held("intent", 50, heavy=False)), need("llm", 800), Admit()),
    "the light one goes when there is no other room": (
        snapshot(held("intent", 50, heavy=False), held("asr", 200, used=1)),
        need("llm", 940),
        Evict(("intent", "asr")),
    ),
    "least recently used goes first": (
        snapshot(held("a", 400, used=5, heavy=False), held("b", 400, used=3, heavy=False)),
        need("llm", 300),
        Evict(("b",)),
    ),
    "of two equally old the larger, then the name": (
        snapshot(*(held(name, size, heavy=False) for name, size in (("a", 10), ("c", 400), ("b", 400)))),
        need("llm", 800),
        Evict(("b", "c")),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_plan(case: tuple[Snapshot, Need, object]) -> None:
    before, wanted, expected = case
    assert plan(before, wanted) == expected


def test_what_can_never_fit_is_refused_at_once_with_the_arithmetic() -> None:
    outcome = plan(snapshot(held("asr", 900, in_use=True)), need("llm", 951))
    assert isinstance(outcome, Refuse)
    assert isinstance(outcome.error, NeverFits)
    for figure in ("951", "1300", "300", "50", "950", "budget_mib"):
        assert figure in outcome.error.message


@pytest.mark.parametrize("row", [held("asr", 10, in_use=True), held("asr", 990, in_use=True, heavy=False)])
def test_what_must_wait_is_refused_as_busy_with_a_hint(row: Held) -> None:
    outcome = plan(snapshot(row), need("llm", 100))
    assert isinstance(outcome, Refuse)
    assert isinstance(outcome.error, BusyNow)
    assert outcome.error.retry_after_ms
    assert outcome.error.to_dict()["status"] == 429


def test_a_promise_counts_until_the_stage_has_gone_and_more_than_promised_counts_too() -> None:
    for reserved, measured in ((600, 100), (100, 600)):
        row = Held("asr", Usage(reserved * MIB), Usage(measured * MIB), in_use=True, last_used_ns=0, heavy=False)
        outcome = plan(snapshot(row), need("llm", 500))
        assert isinstance(outcome, Refuse)
        assert isinstance(outcome.error, BusyNow)


def test_mapped_weights_count_whole_against_a_set_budget_and_half_against_a_machine() -> None:
    big = Need(stage="llm", anon=200 * MIB, file=1400 * MIB)
    assert isinstance(plan(snapshot(), big), Refuse)
    assert plan(replace(snapshot(), file_share=0.5), big) == Admit()
    idle = Held("tts", Usage(100 * MIB, 300 * MIB), Usage(), in_use=False, last_used_ns=0, heavy=False)
    assert replace(snapshot(idle), file_share=0.5).free == (1000 - 50 - 250) * MIB


rows = st.builds(
    held,
    st.sampled_from(["asr", "intent", "tts", "x", "y"]),
    st.integers(0, 600),
    in_use=st.booleans(),
    used=st.integers(0, 3),
    heavy=st.booleans(),
)


@given(st.lists(rows, max_size=4, unique_by=lambda row: row.stage), st.integers(1, 1200), st.booleans())
def test_following_the_plan_never_exceeds_the_budget_and_never_evicts_what_works(
    table: list[Held], mib: int, heavy: bool
) -> None:
    before, wanted = snapshot(*table), need("llm", mib, heavy=heavy)
    outcome = plan(before, wanted)
    assert plan(before, wanted) == outcome or isinstance(outcome, Refuse)
    match outcome:
        case Admit():
            assert wanted.anon <= before.free
        case Evict(victims):
            assert victims
            assert not any(row.in_use for row in table if row.stage in victims)
            left = tuple(row for row in table if row.stage not in victims)
            assert plan(snapshot(*left), wanted) == Admit()
        case Refuse(error):
            assert isinstance(error, NeverFits) == (mib > 950)
