"""What holds of the policy for all snapshots."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from assistant.errors import BusyNow, NeverFits
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
    plan,
)
from tests.memory_orchestrator.snapshots import held, need, snapshot

rows = st.builds(
    held,
    st.sampled_from(["asr", "intent", "tts", "x", "y"]),
    st.integers(1, 600),
    in_use=st.booleans(),
    used=st.integers(0, 2),
    until=st.integers(0, 2),
    next_use=st.sampled_from([0, 1, 2, NOT_NEEDED]),
    measured=st.integers(0, 600),
    file=st.integers(0, 300),
)
tables = st.lists(rows, max_size=5, unique_by=lambda row: row.stage)
wishes = st.builds(need, st.sampled_from(["llm", "z"]), st.integers(1, 900), st.integers(0, 900))
needs_of = st.lists(wishes, min_size=1, max_size=2, unique_by=lambda one: one.stage)


@given(tables, needs_of, st.booleans(), st.integers(-1, 3), st.integers(0, 300))
def test_following_the_plan_never_exceeds_the_budget_and_never_evicts_what_works(
    table: list[Held], wanted: list[Need], squeezable: bool, nearer_than: int, others: int
) -> None:
    def with_rows(left: Sequence[Held]) -> Snapshot:
        return replace(snapshot(*left, others=others), squeezable=squeezable)

    before = with_rows(table)
    outcome = plan(before, wanted, nearer_than=nearer_than)
    cost = sum(one.usage.total for one in wanted)
    fits_whole = cost <= before.room + before.others
    match outcome:
        case Admit():
            assert cost <= before.free or (squeezable and not table and not fits_whole)
        case Evict(victims):
            assert victims
            gone = [row for row in table if row.stage in victims]
            assert len(gone) == len(victims)
            assert not any(row.in_use or row.next_use <= nearer_than for row in gone)
            left = [row for row in table if row.stage not in victims]
            assert plan(with_rows(left), wanted, nearer_than=nearer_than) == Admit()
        case Refuse(NeverFits()):
            assert not fits_whole
        case Refuse(error):
            assert isinstance(error, BusyNow)
            fixed = [row for row in table if row.in_use or row.next_use <= nearer_than]
            assert error.code == TAKEN or plan(with_rows(fixed), wanted, nearer_than=nearer_than) != Admit()


@given(tables)
def test_the_order_of_victims_is_total_whatever_the_order_of_rows(table: list[Held]) -> None:
    order = sorted(table, key=lambda row: row.eviction_order)
    assert all(one.eviction_order < other.eviction_order for one, other in itertools.pairwise(order))
    outcomes = {excess(snapshot(*some)) for some in itertools.permutations(table)}
    assert len(outcomes) == 1


@given(tables)
def test_after_the_excess_has_gone_nothing_idle_is_in_excess(table: list[Held]) -> None:
    gone = excess(snapshot(*table))
    left = snapshot(*(row for row in table if row.stage not in gone))
    assert excess(left) == ()
    assert left.free >= 0 or all(row.in_use for row in left.held)
