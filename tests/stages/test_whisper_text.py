"""Tokens to text, and what is not believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.stages.whisper_text import (
    INVENTIONS,
    MAX_NEW_TOKENS,
    believable,
    decode,
    folded,
    max_tokens,
    prompt,
    without_loops,
)


def test_an_english_model_is_asked_without_a_language() -> None:
    assert prompt(None) == ["<|startoftranscript|>", "<|notimestamps|>"]
    assert prompt("<|fr|>") == ["<|startoftranscript|>", "<|fr|>", "<|transcribe|>", "<|notimestamps|>"]


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["ĠWhat", "'s", "Ġthe", "Ġdate", "?"], "What's the date?"),
        (["<|startoftranscript|>", "ĠStop", ".", "<|endoftext|>"], "Stop."),
        (["ĠcafÃ©"], "café"),
        (["Ġä½", "ł"], "你"),
        (["Ġä½"], ""),
        ([], ""),
    ],
)
def test_byte_level_tokens_become_text(tokens: list[str], text: str) -> None:
    assert decode(tokens) == text


@given(st.lists(st.text(max_size=6), max_size=20))
def test_any_tokens_decode(tokens: list[str]) -> None:
    assert "\N{REPLACEMENT CHARACTER}" not in decode(tokens)


def test_tokens_are_capped_by_the_duration() -> None:
    assert max_tokens(0.5) == 14
    assert max_tokens(30) == MAX_NEW_TOKENS


@pytest.mark.parametrize(
    ("text", "seconds", "kept"),
    [
        ("turn on the lamp. Turn on the lamp", 1.5, "turn on the lamp."),
        ("Computer. Computer. Computer. Computer. Computer. Computer.", 60, "Computer."),
        ("go to the bathroom and go to the bathroom and go to the bathroom and", 2, "go to the bathroom and"),
        ("oh what time is it? What time is it? What time is it? What time", 2, "oh what time is it?"),
        ("stop stop stop", 2.0, "stop stop stop"),
        ("row row row your boat", 1.0, "row row row your boat"),
        ("what time is it", 0.5, "what time is it"),
        ("", 1.0, ""),
    ],
)
def test_loops_are_cut_and_real_repetition_stays(text: str, seconds: float, kept: str) -> None:
    assert without_loops(text, seconds) == kept


@given(st.text(alphabet="ab ", max_size=60), st.floats(0, 30))
def test_cutting_a_loop_only_shortens(text: str, seconds: float) -> None:
    assert text.startswith(without_loops(text, seconds)) or without_loops(text, seconds) in " ".join(text.split())


def test_inventions_need_certainty() -> None:
    assert believable("Thank you.", -0.2, 0.1)
    assert not believable("Thank you.", -0.9, 0.1)
    assert not believable("Thanks for watching!", -0.9, 0.1)
    assert believable("Turn on the lamp.", -0.9, 0.1)


def test_improbable_silent_and_empty_texts_are_not_believed() -> None:
    assert not believable("Turn on the lamp.", -1.9, 0.0)
    assert not believable("Turn on the lamp.", -1.1, 0.7)
    assert believable("Turn on the lamp.", -0.5, 0.7)
    assert not believable(" . ", -0.1, 0.0)


def test_inventions_are_stored_folded() -> None:
    assert {folded(text) for text in INVENTIONS} == INVENTIONS
