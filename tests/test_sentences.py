"""Pieces of text that are worth saying at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.sentences import FIRST_MAX_CHARS, MAX_CHARS, SentenceSplitter, pieces, spoken_parts
from assistant.speech_text import SpeechText


def split(text: str, step: int = 1, *, clause_first: bool = False) -> list[str]:
    splitter = SentenceSplitter(clause_first=clause_first)
    pieces: list[str] = []
    for at in range(0, len(text), step):
        pieces += splitter.feed(text[at : at + step])
    return pieces + splitter.flush()


CASES = [
    ("It is 98.6 degrees. That is 1,000 times 22,1 better. Good.", 3),
    ("It was in 1980. Then it ended in 1980.", 2),
    ("Dr. Smith and Mr. Jones met Mrs. Miller at St. John vs. Mt. Hood.", 1),
    ("Fruit, e.g. apples, i.e. sweet ones, costs approx. five dollars.", 1),
    ("The U.S. Army is here. He lives in the U.S. It is big.", 3),
    ("John F. Kennedy was president. J. R. R. Tolkien wrote.", 2),
    ("At 8 p.m. we eat. It ends at 8 p.m. Then we go.", 3),
    ("Well... maybe. Wait... What? Yes! No?! Fine.", 6),
    ('"Really?" he asked. "Stop." She ran.', 3),
    ("The answer is no. It is No. 5 of them.", 2),
    ("Bread, milk, etc. are here. Bread, milk, etc. We go.", 3),
    ("Version 1.2.3 is at example.com. Get it.", 2),
    ("Here is a list:\n- one\n- two\n\n1. Add the eggs.\n2. Stir.\n", 5),
    ("これは一文です。次の文です！「はい。」終わり", 4),
    ("Am 3. Mai kam er, bzw. am 4. Er blieb, z. B. bis Juni.", 2),
    ("M. Dupont est là. Il part.", 2),
    ("I am. So are you. Meet me on Sunday. It was Jan. 5 then.", 4),
]


@pytest.mark.parametrize(("text", "count"), CASES)
@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_a_sentence_ends_where_a_reader_would_end_it(text: str, count: int, step: int) -> None:
    pieces = split(text, step)
    assert len(pieces) == count, pieces


def test_a_sentence_is_handed_out_as_soon_as_its_end_is_certain() -> None:
    splitter = SentenceSplitter()
    assert splitter.feed("It was in 1980.") == []
    assert splitter.feed(" T") == ["It was in 1980."]
    assert splitter.feed("he end.") == []
    assert splitter.flush() == ["The end."]
    assert splitter.flush() == []


def test_the_first_piece_of_a_long_sentence_is_a_clause() -> None:
    text = "The capital of France is the city of Paris, which lies on the river Seine and is old. It is big, I hear."
    assert split(text, 3, clause_first=True) == [
        "The capital of France is the city of Paris,",
        "which lies on the river Seine and is old.",
        "It is big, I hear.",
    ]


def test_without_a_comma_the_first_piece_ends_before_a_joining_word() -> None:
    text = "The quick brown fox jumped over the lazy dog and then went home to sleep in the shade of the old tree."
    first = split(text, 1, clause_first=True)[0]
    assert first == "The quick brown fox jumped over the lazy dog"
    assert len(first) <= FIRST_MAX_CHARS


def test_a_short_first_sentence_is_not_cut() -> None:
    assert split("Paris, of course. Why?", 1, clause_first=True) == ["Paris, of course.", "Why?"]


@pytest.mark.parametrize(
    ("text", "ends"),
    [("word " * 200, " "), ("x" * 1000, ""), ("one two, three four " * 40, ","), ("あ" * 600, "")],
)
def test_an_endless_run_is_cut(text: str, ends: str) -> None:
    pieces = split(text, 10)
    assert all(len(piece) <= MAX_CHARS for piece in pieces)
    assert all(piece.endswith(ends.strip()) for piece in pieces[:-1])
    assert len(pieces) <= 2 * len(text) // MAX_CHARS + 1


_TEXT = st.lists(
    st.sampled_from(
        [
            "Dr.",
            "e.g.",
            "U.S.",
            "98.6",
            "1980.",
            "Hello",
            "world",
            "...",
            "…",
            "?!",
            '"',
            "\n",
            "- ",
            ", ",
            "。",
            "そう",
            "x" * 90,
        ]
    )
    | st.text(max_size=8),
    max_size=60,
).flatmap(lambda parts: st.sampled_from([" ".join(parts), "".join(parts)]))


@given(_TEXT, st.integers(1, 9), st.booleans())
def test_nothing_is_lost_and_no_piece_is_long(text: str, step: int, clause_first: bool) -> None:
    pieces = split(text, step, clause_first=clause_first)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(0 < len(piece) <= MAX_CHARS and piece == piece.strip() for piece in pieces)


@given(st.lists(st.sampled_from([text for text, _ in CASES]), max_size=4), st.integers(1, 30))
def test_how_the_text_was_cut_on_its_way_makes_no_difference(texts: list[str], step: int) -> None:
    text = " ".join(texts)
    assert split(text, step) == split(text, len(text) or 1)


def test_a_hundred_kilobytes_at_once_are_no_trouble() -> None:
    pieces = split("This is a sentence of some words. " * 3000, 102_000)
    assert len(pieces) == 3000


HUGE = {
    "a word": "x" * 10_000,
    "digits": "9" * 10_000,
    "Chinese": "我们今天去公园" * 1_500,
    "Chinese with commas": "我们今天去公园，" * 1_500,
    "marks": "?!." * 3_000,
    "an address": "Look: https://example.com/" + "a1b2-" * 2_000 + " is it.",
    "amounts": "$1,234.56 and 10 km/h " * 400,
    "amounts without spaces": "$1,234.56/kg;" * 800,
    "units": "5kWh," * 2_000,
    "emoji": "😀" * 10_000,
    "lines": "- a\n" * 3_000,
    "a table": "| 5 km | $3 " * 1_000 + "|",
}


@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE.keys())
@pytest.mark.parametrize("step", [7, 100_000])
def test_no_piece_is_too_long_neither_shown_nor_spoken(text: str, step: int) -> None:
    shown = split(text, step, clause_first=True)
    assert all(0 < len(piece) <= MAX_CHARS for piece in shown)
    assert "".join("".join(shown).split()) == "".join(text.split())
    speech = SpeechText()
    said = [part for piece in shown for part in spoken_parts(speech.say(piece))]
    assert all(0 < len(part) <= MAX_CHARS for part in said)


def test_of_a_very_long_address_only_the_host_is_said() -> None:
    speech = SpeechText()
    said = [speech.say(piece) for piece in split(HUGE["an address"], 100_000)]
    assert list(filter(None, said)) == ["Look:", "example dot com", "is it."]


@pytest.mark.parametrize(
    "whole",
    [
        "Dr. Smith",
        "98.6",
        "1,000,000",
        "No. 5",
        "5 km",
        "https://example.com/a.b?c=d,e",
        "+49 30 1234567",
        "8:30",
        "e.g. tea",
    ],
)
def test_no_cut_inside_what_belongs_together(whole: str) -> None:
    for before in range(180, 250):
        text = ("and so it is " * 30)[:before].rstrip() + f" {whole} " + "and so it went on " * 12
        assert any(whole in piece for piece in split(text, 50)), before


def test_the_first_clause_of_dense_writing_is_shorter() -> None:
    text = "法国的首都是巴黎这座城市，它位于塞纳河畔，历史非常悠久，也是欧洲最大的城市之一。它很大。"
    assert split(text, 1, clause_first=True)[0] == "法国的首都是巴黎这座城市，"
    assert split(text, 1)[0].endswith("之一。")


def test_pieces_of_a_whole_text_are_those_of_one_that_comes_in_parts() -> None:
    text = " ".join(text for text, _ in CASES)
    assert pieces(text) == split(text, 3)
    assert all(len(one) <= 40 for one in pieces(text, max_chars=40))
