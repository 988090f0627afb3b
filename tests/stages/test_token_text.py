"""Streaming text: no half characters, no control tokens, no thinking aloud, no part of a stop string, nothing lost."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.stages.token_text import TokenText, opens_thinking

END, OPEN, CLOSE = 256, 257, 258


class Bytes:
    """A vocabulary of the 256 bytes, a control token, and the think tags as tokens."""

    def __init__(self, *, special_tags: bool = False) -> None:
        self.special_ids = frozenset({END, OPEN, CLOSE} if special_tags else {END})
        self.think_ids = frozenset({OPEN, CLOSE})

    def bytes_of(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else (b"<|end|>", b"<think>", b"</think>")[token - 256]


class Slices:
    """A vocabulary whose tokens are the slices of one text."""

    special_ids: frozenset[int] = frozenset()
    think_ids: frozenset[int] = frozenset()

    def __init__(self, data: bytes, cuts: list[int]) -> None:
        places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
        self.pieces = [data[a:b] for a, b in itertools.pairwise(places)]

    def bytes_of(self, token: int) -> bytes:
        return self.pieces[token]


def stream(data: bytes, *stop: str, special_at: int | None = None) -> tuple[list[str], bool]:
    text = TokenText(Bytes(), stop)
    pieces = []
    for at, byte in enumerate(data):
        if at == special_at:
            pieces.append(text.feed(END))
        pieces.append(text.feed(byte))
        if text.stopped:
            break
    return [*pieces, text.flush()], text.stopped


def shown(text: str, *, thinking: bool = False) -> str:
    filtered = TokenText(Bytes(), (), thinking=thinking)
    return "".join([*map(filtered.feed, text.encode()), filtered.flush()])


def of_tokens(tokens: Sequence[int], *, special_tags: bool) -> str:
    filtered = TokenText(Bytes(special_tags=special_tags), ())
    return "".join([*map(filtered.feed, tokens), filtered.flush()])


@given(st.text())
def test_any_text_arrives_whole_and_in_whole_characters(text: str) -> None:
    pieces, _ = stream(text.encode())
    assert "".join(pieces) == text
    assert all("�" not in piece for piece in pieces) or "�" in text


def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    assert "".join(stream("ok 🌍".encode()[:-1])[0]) == "ok �"


def test_control_tokens_are_not_shown() -> None:
    assert "".join(stream(b"abc", special_at=1)[0]) == "abc"


@given(st.text(alphabet="ab#", max_size=30), st.sampled_from(["##", "a#b", "b"]))
def test_nothing_of_a_stop_string_is_ever_shown(text: str, stop: str) -> None:
    pieces, stopped = stream(text.encode(), stop)
    assert "".join(pieces) == text.split(stop)[0]
    assert stopped == (stop in text)


def test_text_that_only_could_begin_a_stop_string_is_held_back_and_then_shown() -> None:
    text = TokenText(Bytes(), ("END",))
    assert [text.feed(byte) for byte in b"xEN"] == ["x", "", ""]
    assert text.feed(ord("x")) == "ENx"


# --- thinking aloud ---------------------------------------------------------------------------------------------------
TAGGED = st.lists(st.sampled_from(["<think>", "</think>", "<th", "ink>", "</", "<", ">", " ", "\n", "a", "é"])).map(
    "".join
)


def without_thinking(text: str, *, thinking: bool) -> str:
    """The same in one step and from the whole text."""
    out, rest = "", ("<think>" if thinking else "") + text
    while found := re.search(r"</?think>", rest):
        out, tag, rest = out + rest[: found.start()], found[0], rest[found.end() :]
        if tag == "<think>":
            _, closed, rest = rest.partition("</think>")
            if not closed:
                return out
        rest = rest.lstrip()
    return out + rest


@given(TAGGED, st.booleans())
def test_what_stands_between_the_tags_is_never_shown(text: str, thinking: bool) -> None:
    assert shown(text, thinking=thinking) == without_thinking(text, thinking=thinking)


@given(TAGGED | st.text(), st.lists(st.integers(0, 60)), st.booleans())
def test_where_the_text_is_cut_makes_no_difference(text: str, cuts: list[int], thinking: bool) -> None:
    pieces = Slices(text.encode(), cuts)
    filtered = TokenText(pieces, (), thinking=thinking)
    found = [*map(filtered.feed, range(len(pieces.pieces))), filtered.flush()]
    assert "".join(found) == shown(text, thinking=thinking)


@pytest.mark.parametrize(
    ("text", "thinking", "said"),
    [
        ("<think>\nHm. 1 < 2.\n</think>\n\nYes.", False, "Yes."),
        ("Hm.\n</think>\n\nYes.", True, "Yes."),
        ("Well, <think>no</think> yes.", False, "Well, yes."),
        ("<think>for ever and ever", False, ""),
        ("for ever and ever", True, ""),
        ("<think></think>Yes.</think>", False, "Yes."),
        ("1 <thin 2 </think", False, "1 <thin 2 </think"),
    ],
)
def test_examples_of_thinking(text: str, thinking: bool, said: str) -> None:
    assert shown(text, thinking=thinking) == said


@pytest.mark.parametrize("special_tags", [True, False])
def test_tags_that_are_tokens(special_tags: bool) -> None:
    tokens = [*b"a", OPEN, *b"hm", END, CLOSE, *b"\n\nb"]
    assert of_tokens(tokens, special_tags=special_tags) == "ab"


def test_an_answer_is_not_held_back_longer_than_a_tag_could_last() -> None:
    text = TokenText(Bytes(), (), thinking=True)
    assert [text.feed(token) for token in [*b"hm", CLOSE, *b" \nYes <b"]][3:] == ["", "", "Y", "e", "s", " ", "", "<b"]


def test_a_stop_string_counts_in_what_is_shown_alone() -> None:
    text = TokenText(Bytes(), ("END",))
    assert "".join(map(text.feed, b"<think>END</think>yes END")) == "yes "
    assert text.stopped


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [
        (b"Q<|A|><think>\n", True),
        (b"<think>", True),
        (b"<think>\n\n</think>\n\n", False),
        (b"<think> Q", False),
        (b"", False),
    ],
)
def test_a_prompt_that_opens_a_think_block(prompt: bytes, opened: bool) -> None:
    assert opens_thinking(Bytes(), list(prompt)) == opened
    if prompt.startswith(b"Q"):
        assert opens_thinking(Bytes(), [*b"Q", OPEN, *b"\n"])
