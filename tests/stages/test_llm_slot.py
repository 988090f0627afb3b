"""How a prompt is cut, which slot a conversation gets, and that neither changes the numbers."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.model_store.store import ModelInfo
from assistant.stages.llm_slot import ROWS, Slot, pieces


@given(st.integers(1, 3000), st.integers(0, 400), st.integers(1, 600))
def test_pieces_are_whole_rows_and_a_rest_and_cover_everything_once(length: int, kept: int, chunk: int) -> None:
    kept = min(kept, length - 1) // ROWS * ROWS
    cut = pieces(length, kept, chunk)
    assert cut[0][0] == kept
    assert cut[-1][1] == length
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(cut))
    if len(cut) > 1:
        assert all((end - begin) % ROWS == 0 for begin, end in cut[:-1])
        assert all(end - begin <= max(ROWS, chunk) for begin, end in cut)
    assert all(end > begin for begin, end in cut)


def test_of_nothing_there_are_no_pieces() -> None:
    assert pieces(0, 0, 128) == pieces(8, 8, 128) == []


@pytest.fixture(scope="module")
def measured(
    model: Callable[[str], ModelInfo], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., dict[str, Any]]:
    """What `prefill_logits` finds in a process of its own."""
    llm = model("smollm2-135m-instruct")
    cache = tmp_path_factory.mktemp("cache")

    def run(*args: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "tests.stages.prefill_logits", str(llm.path), str(cache), *args]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=110)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run


@pytest.mark.engine
@pytest.mark.timeout(120)
def test_however_a_prompt_is_cut_its_logits_are_the_same_to_the_bit(measured: Callable[..., dict[str, Any]]) -> None:
    found = measured("cuts", "8")
    assert found["cases"] > 20
    assert found["different"] == []


@pytest.mark.engine
@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["9", "10"])
def test_8_bit_keys_answer_otherwise_when_a_prompt_is_cut(measured: Callable[..., dict[str, Any]], mode: str) -> None:
    """Why `config` refuses them. When this fails, MNN has learned it, and they may be allowed."""
    assert measured("cut", mode)["largest"] > 3


@pytest.mark.engine
@pytest.mark.timeout(120)
def test_what_a_slot_keeps_changes_nothing(measured: Callable[..., dict[str, Any]]) -> None:
    found = measured("keeps", "8")
    assert found["kept"] > 20
    assert found["exact"] == 0.0
    assert found["after a decode"] < 1.5  # the engine's own rounding
    assert found["same greedy"]


@pytest.mark.engine
@pytest.mark.timeout(120)
def test_room_made_at_once_changes_no_bit_and_is_there(measured: Callable[..., dict[str, Any]]) -> None:
    """When this fails, MNN's library has changed: see `mnn_reserve`."""
    found = measured("reserved", "8")
    assert found["begun"] == ROWS
    assert found["difference"] == 0.0
    assert found["same greedy"]
    assert found["taken"][0] > 512 * 46080 / (1 << 20)
    assert found["taken"][1] < 4  # the second time it is in MNN's pool


@pytest.mark.engine
@pytest.mark.timeout(120)
def test_slots_share_the_weights_and_nothing_else(measured: Callable[..., dict[str, Any]]) -> None:
    found = measured("slots", "8")
    assert found["difference"] == 0.0
    assert found["anon of one more"] < 16
    assert found["taken"] == ["a", "b", "a", "b kept", "c takes the oldest", "a is new"]


def test_the_beginning_is_compared_not_searched_for() -> None:
    """`common` reads the prompt from its beginning alone: a prompt that merely contains the cache begins anew."""
    slot = Slot(None)
    slot.tokens = list(range(100))
    assert slot.common([*range(100), 7], exact=False) == 100
    assert slot.common([*range(50), *[7] * 50], exact=False) == 48
    assert slot.common([5, *range(100)], exact=False) == 0
    assert slot.common(list(range(100)), exact=True) == 0
