"""What of a conversation stays when the context is full. Pure: one token per letter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.errors import BadText
from assistant.messages import Turn
from assistant.stages.llm_window import LEAST_ANSWER, fit

SYSTEM = Turn(role="system", content="s" * 10)


def said(*texts: str) -> tuple[Turn, ...]:
    """Questions and answers in turns, the last one a question."""
    return tuple(Turn(role="assistant" if at % 2 else "user", content=text) for at, text in enumerate(texts))


def encode(turns: tuple[Turn, ...]) -> list[int]:
    return [ord(letter) for turn in turns for letter in turn.content]


def test_a_conversation_that_fits_is_left_alone() -> None:
    found = fit((SYSTEM, *said("a" * 20, "b" * 20, "c" * 20)), encode, 100, 16)
    assert (len(found.prompt), found.dropped) == (70, 0)


def test_the_oldest_exchange_goes_and_the_system_and_the_latest_question_stay() -> None:
    found = fit((SYSTEM, *said("a" * 30, "b" * 30, "c" * 10, "d" * 10, "e" * 10)), encode, 100, 16)
    assert bytes(found.prompt).decode() == "s" * 10 + "c" * 10 + "d" * 10 + "e" * 10
    assert found.dropped == 2


def test_a_question_without_an_answer_goes_by_itself() -> None:
    turns = (SYSTEM, *(Turn(role="user", content=letter * 30) for letter in "abcd"))
    found = fit(turns, encode, 100, 16)
    assert bytes(found.prompt).decode() == "s" * 10 + "d" * 30
    assert found.dropped == 3


def test_more_goes_than_must_so_that_the_next_turns_find_room() -> None:
    turns = said(*("x" * 12 for _ in range(9)))
    first = fit(turns, encode, 100, 16)
    assert first.dropped
    answered = (*turns[first.dropped :], Turn(role="assistant", content="x" * 12), Turn(role="user", content="x" * 12))
    assert fit(answered, encode, 100, 16).dropped == 0


@pytest.mark.parametrize("context", [1, 20, 40 + LEAST_ANSWER - 1])
def test_what_cannot_fit_alone_is_refused_with_what_to_do(context: int) -> None:
    with pytest.raises(BadText, match="context_tokens") as caught:
        fit((SYSTEM, *said("a" * 30)), encode, context, 96)
    assert caught.value.code == "prompt-too-long"


def test_a_short_answer_needs_little_room() -> None:
    assert fit((SYSTEM, *said("a" * 30)), encode, 41, 1).dropped == 0


lengths = st.lists(st.integers(1, 60), min_size=1, max_size=15).filter(lambda found: len(found) % 2 == 1)


@given(lengths, st.integers(1, 300), st.integers(1, 200), st.booleans())
def test_any_conversation_is_cut_from_its_beginning_or_refused(
    sizes: list[int], context: int, max_new_tokens: int, system: bool
) -> None:
    head = (SYSTEM,) if system else ()
    turns = said(*(chr(97 + at) * size for at, size in enumerate(sizes)))
    try:
        found = fit((*head, *turns), encode, context, max_new_tokens)
    except BadText:
        least = len(encode((*head, turns[-1])))
        assert context - least < min(LEAST_ANSWER, max_new_tokens)
        return
    assert found.prompt == encode((*head, *turns[found.dropped :]))
    assert len(found.prompt) + min(LEAST_ANSWER, max_new_tokens) <= context
    assert turns[found.dropped].role == "user"
