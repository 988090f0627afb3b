"""The policy as tables: who is admitted, who goes first, who is refused and with which words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assistant.errors import BusyNow, MemoryRefused, NeverFits
from assistant.memory_orchestrator.policy import (
    NOT_NEEDED,
    TAKEN,
    Admit,
    Evict,
    Held,
    Need,
    Refuse,
    Snapshot,
    excess,
    mode_of,
    plan,
)
from assistant.memory_orchestrator.probe import MIB
from tests.memory_orchestrator.snapshots import held, need, snapshot

CASES: dict[str, tuple[Snapshot, list[Need], object]] = {
    "an empty ledger admits": (snapshot(), [need("llm", 900)], Admit()),
    "exactly the room admits": (snapshot(), [need("llm", 950)], Admit()),
    "what fits beside all others admits": (
        snapshot(held("asr", 200), held("tts", 300, in_use=True)),
        [need("llm", 450)],
        Admit(),
    ),
    "two together": (snapshot(), [need("llm", 500), need("tts", 450)], Admit()),
    "two together, for whom one goes": (
        snapshot(held("asr", 200)),
        [need("llm", 500), need("tts", 450)],
        Evict(("asr",)),
    ),
    "no more than must": (
        snapshot(held("asr", 400, used=1), held("tts", 400, used=2)),
        [need("llm", 300)],
        Evict(("asr",)),
    ),
    "what works stays": (
        snapshot(held("asr", 400, in_use=True), held("tts", 400)),
        [need("llm", 300)],
        Evict(("tts",)),
    ),
    "what no query needs goes before what one needs": (
        snapshot(held("asr", 400, used=9), held("tts", 400, used=1, next_use=3)),
        [need("llm", 300)],
        Evict(("asr",)),
    ),
    "of what is needed, what is needed last": (
        snapshot(held("intent", 400, next_use=0), held("tts", 400, used=9, next_use=2)),
        [need("llm", 300)],
        Evict(("tts",)),
    ),
    "then whose time is up first": (
        snapshot(held("a", 400, until=9, used=1), held("b", 400, until=5, used=2)),
        [need("llm", 300)],
        Evict(("b",)),
    ),
    "and what stays for ever last": (
        snapshot(held("a", 400, until=0, used=1), held("b", 400, until=5, used=2)),
        [need("llm", 300)],
        Evict(("b",)),
    ),
    "then the least recently used": (
        snapshot(held("a", 400, used=5), held("b", 400, used=3)),
        [need("llm", 300)],
        Evict(("b",)),
    ),
    "of two equally old the larger, then the name": (
        snapshot(*(held(name, size) for name, size in (("a", 10), ("c", 400), ("b", 400)))),
        [need("llm", 800)],
        Evict(("b", "c")),
    ),
    "a small one that came first stays when the large one makes room enough": (
        snapshot(held("a", 50, used=1), held("b", 800, used=2)),
        [need("llm", 400)],
        Evict(("b",)),
    ),
    "but not at the cost of one that is needed sooner": (
        snapshot(held("a", 50), held("b", 800, next_use=1)),
        [need("llm", 160)],
        Evict(("a", "b")),
    ),
    "a stage that has grown counts as it is": (
        snapshot(held("asr", 100, measured=700)),
        [need("llm", 300)],
        Evict(("asr",)),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_plan(case: tuple[Snapshot, list[Need], object]) -> None:
    before, wanted, expected = case
    assert plan(before, wanted) == expected


def refusal(before: Snapshot, *wanted: Need, nearer_than: int = -1) -> MemoryRefused:
    outcome = plan(before, wanted, nearer_than=nearer_than)
    assert isinstance(outcome, Refuse), outcome
    return outcome.error


def test_what_can_never_fit_is_refused_at_once_with_the_arithmetic() -> None:
    error = refusal(snapshot(held("asr", 900, in_use=True)), need("llm", 951))
    assert isinstance(error, NeverFits)
    assert error.stage == "llm"
    for figure in ("951", "1300", "300", "50", "950", "budget_mib", "stages.llm.model"):
        assert figure in error.message


def test_the_arithmetic_of_a_scaled_margin_is_in_the_refusal() -> None:
    note = " (300 * 512/1792, as the machine has 512 MiB)"
    assert note in refusal(replace(snapshot(), margin_note=note), need("llm", 951)).message


def test_two_that_never_fit_together_are_named() -> None:
    error = refusal(snapshot(), need("llm", 500), need("tts", 500))
    assert isinstance(error, NeverFits)
    assert "llm and tts needs 1000 MiB" in error.message


def test_what_must_wait_is_busy_with_a_hint_and_says_for_whom() -> None:
    error = refusal(snapshot(held("asr", 900, in_use=True)), need("llm", 100))
    assert isinstance(error, BusyNow)
    assert error.code == "busy"
    assert error.retry_after_ms
    assert error.to_dict()["status"] == 429
    assert "while asr works" in error.message


def test_what_other_programs_have_taken_is_busy_and_not_never_and_no_lease_of_ours_ends_it() -> None:
    before = snapshot(usable=500, others=500)
    error = refusal(before, need("llm", 600))
    assert isinstance(error, BusyNow)
    assert error.code == TAKEN
    assert isinstance(refusal(before, need("llm", 951)), NeverFits)


@pytest.mark.parametrize(("reserved", "measured"), [(600, 100), (100, 600)])
def test_a_promise_counts_until_the_stage_has_gone_and_more_than_promised_counts_too(
    reserved: int, measured: int
) -> None:
    row = held("asr", reserved, measured=measured, in_use=True)
    assert isinstance(refusal(snapshot(row), need("llm", 500)), BusyNow)


# --- loading ahead ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("nearer_than", "expected"),
    [
        (0, Evict(("tts",))),
        (1, Evict(("tts",))),
        (2, None),
        (NOT_NEEDED, None),
    ],
)
def test_loading_ahead_never_evicts_what_is_wanted_as_soon(nearer_than: int, expected: object) -> None:
    before = snapshot(held("intent", 400, next_use=0), held("tts", 400, next_use=2))
    outcome = plan(before, [need("llm", 500)], nearer_than=nearer_than)
    if expected is None:
        assert isinstance(outcome, Refuse)
        assert isinstance(outcome.error, BusyNow)
    else:
        assert outcome == expected


# --- weights that never fit whole -------------------------------------------------------------------------------------
BIG = need("llm", 200, file=1400)
"""375 MiB by its share."""


def test_mapped_weights_that_never_fit_whole_count_by_their_share_where_nobody_set_the_budget() -> None:
    assert isinstance(refusal(snapshot(), BIG), NeverFits)
    assert plan(replace(snapshot(), squeezable=True), [BIG]) == Admit()
    assert isinstance(refusal(replace(snapshot(), squeezable=True), need("llm", 300, file=5300)), NeverFits)


def test_weights_that_can_fit_count_whole() -> None:
    before = replace(snapshot(held("asr", 100)), squeezable=True)
    assert plan(before, [need("llm", 200, file=700)]) == Evict(("asr",))


def test_a_model_admitted_by_its_share_is_alone() -> None:
    small = held("intent", 10, next_use=0)
    assert plan(replace(snapshot(small), squeezable=True), [BIG]) == Evict(("intent",))
    works = held("intent", 10, in_use=True)
    assert isinstance(refusal(replace(snapshot(works), squeezable=True), BIG), BusyNow)
    assert isinstance(refusal(replace(snapshot(), squeezable=True), BIG, need("tts", 10)), NeverFits)


def test_a_model_admitted_by_its_share_stays_at_rest_and_goes_for_the_next_one() -> None:
    alone = replace(snapshot(held("llm", 200, file=1400)), squeezable=True)
    assert excess(alone) == ()
    assert plan(alone, [need("tts", 10)]) == Evict(("llm",))
    assert excess(replace(alone, squeezable=False)) == ("llm",)


# --- a budget that has become smaller ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], ()),
        ([held("asr", 400), held("llm", 550)], ()),
        ([held("asr", 400, used=2), held("llm", 551, used=1)], ("llm",)),
        ([held("asr", 400, used=1), held("llm", 551, used=2)], ("asr",)),
        ([held("asr", 400, next_use=0), held("llm", 551, next_use=2)], ("llm",)),
        # what works stays until it is given back
        ([held("asr", 400, in_use=True), held("llm", 900, in_use=True)], ()),
        ([held("asr", 400), held("llm", 1200, in_use=True)], ("asr",)),
        ([held("asr", 500, used=1), held("llm", 500, used=2), held("tts", 500, used=3)], ("asr", "llm")),
    ],
)
def test_what_goes_when_the_budget_has_become_smaller(rows: list[Held], expected: tuple[str, ...]) -> None:
    assert excess(snapshot(*rows)) == expected


# --- modes ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("room", "mode"),
    [
        (1000, "resident"),
        (999, "overlap"),
        (700, "overlap"),
        (699, "sequential"),
        (0, "sequential"),
        (-5, "sequential"),
    ],
)
def test_the_mode_follows_from_the_room(room: int, mode: str) -> None:
    needs = [need("asr", 200), need("intent", 100), need("llm", 300, file=100), need("tts", 300)]
    assert sum(one.usage.total for one in needs) == 1000 * MIB
    assert mode_of(room * MIB, needs) == mode


def test_nothing_that_is_expected_is_resident() -> None:
    assert mode_of(0, []) == "resident"
