"""Streaming text: no half characters, no control tokens, no part of a stop string, and nothing lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assistant.stages.token_text import TokenText


class Bytes:
    """A vocabulary of the 256 bytes, and 256 as a control token."""

    special_ids = frozenset({256})

    def bytes_of(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b"<|end|>"


def stream(data: bytes, *stop: str, special_at: int | None = None) -> tuple[list[str], bool]:
    text = TokenText(Bytes(), stop)
    pieces = []
    for at, byte in enumerate(data):
        if at == special_at:
            pieces.append(text.feed(256))
        pieces.append(text.feed(byte))
        if text.stopped:
            break
    return [*pieces, text.flush()], text.stopped


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
