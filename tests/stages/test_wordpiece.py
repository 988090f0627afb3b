"""Our tokeniser against the reference implementation, on sentences and on letters of the whole of Unicode."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from assistant.errors import ModelDamaged
from assistant.stages.wordpiece import BEGIN, END, UNKNOWN, WordPiece, words, write_vocabulary
from tests.stages.damage import HARMS, damaged

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "assistant/data/intents-en/vocabulary.bin"
SENTENCES = sorted((ROOT / "assistant/training/data").glob("*.tsv"))
BLOCKS = (
    (0x20, 0x7F), (0x20, 0x7F), (0x20, 0x7F), (0x0, 0x20), (0x80, 0x250),
    (0x300, 0x350), (0x391, 0x3CA), (0x410, 0x450), (0x5D0, 0x5EB), (0x621, 0x64B),
    (0x905, 0x93A), (0xE01, 0xE3B), (0x2000, 0x2050), (0x20A0, 0x20C0), (0x2190, 0x2200),
    (0x3000, 0x3020), (0x3041, 0x3097), (0x30A1, 0x30FB), (0x4E00, 0x9FEF), (0xAC00, 0xD7A4),
    (0xFB00, 0xFB07), (0xFF01, 0xFF5F), (0x1F600, 0x1F64F), (0x20000, 0x2A6D6), (0xE000, 0xE010),
    (0xFFFC, 0xFFFE), (0x130, 0x132), (0x1E9E, 0x1E9F),
)  # fmt: skip
"""Letters whose kind has been the same in all versions of Unicode that are about."""

SMALL = {UNKNOWN: 0, BEGIN: 1, END: 2, "play": 3, "##ing": 4, "p": 5, "##l": 6, "!": 7, "周": 8, "e": 9, "##e": 10}


@pytest.fixture(scope="module")
def pieces() -> WordPiece:
    return WordPiece(SHIPPED)


@pytest.fixture(scope="module")
def reference(pieces: WordPiece) -> Any:
    tokens = {token.decode(): number for token, number in zip(pieces._tokens, pieces._ids, strict=True)}
    found = Tokenizer(models.WordPiece(tokens, unk_token=UNKNOWN, max_input_chars_per_word=100))
    found.normalizer = normalizers.BertNormalizer(lowercase=True)
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    around = [(token, tokens[token]) for token in (BEGIN, END)]
    found.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A {END}", special_tokens=around)
    return found


@pytest.fixture
def small(tmp_path: Path) -> WordPiece:
    write_vocabulary(SMALL, tmp_path / "v.bin")
    return WordPiece(tmp_path / "v.bin")


@pytest.mark.engine
def test_every_sentence_is_cut_as_the_reference_cuts_it(pieces: WordPiece, reference: Any) -> None:
    lines = [line.partition("\t")[0] for path in SENTENCES for line in path.read_text("utf-8").splitlines()]
    assert len(lines) > 3000
    for line in lines:
        assert pieces.encode(line, 10_000) == reference.encode(line).ids, line


@pytest.mark.engine
def test_letters_of_all_scripts_are_cut_as_the_reference_cuts_them(pieces: WordPiece, reference: Any) -> None:
    rng = random.Random(5)
    for _ in range(8000):
        blocks = [rng.choice(BLOCKS) for _ in range(rng.randrange(1, 12))]
        text = "".join(chr(rng.randrange(*block)) for block in blocks)
        assert pieces.encode(text, 10_000) == reference.encode(text).ids, [hex(ord(letter)) for letter in text]


def test_pieces_are_the_longest_from_the_left(small: WordPiece) -> None:
    assert small.encode("Playing, PLAY!", 20) == [1, 3, 4, 0, 3, 7, 2]  # the comma is unknown
    assert small.encode("plé", 20) == [1, 5, 6, 10, 2]
    assert small.encode("周e", 20) == [1, 8, 9, 2]


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\x00\x07", "\ufffd", "\u200b"])
def test_text_without_a_word_has_the_two_ends_alone(small: WordPiece, text: str) -> None:
    assert small.encode(text, 20) == [1, 2]


def test_long_texts_and_long_words_cost_no_more_than_what_is_kept(small: WordPiece) -> None:
    assert small.encode("play " * 100_000, 8) == [1, 3, 3, 3, 3, 3, 3, 2]
    assert small.encode("p" * 1_000_000, 8) == [1, 0, 2]
    assert [len(word) for word in words("a" * 500 + " b")] == [101, 1]


def test_a_lone_surrogate_is_passed_over(small: WordPiece) -> None:
    assert small.encode("play\ud800", 8) == [1, 3, 2]


@pytest.mark.parametrize("harm", HARMS)
def test_a_file_that_is_no_vocabulary_is_refused(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "v.bin"
    write_vocabulary(SMALL, path)
    with pytest.raises(ModelDamaged, match="install again"):
        WordPiece(damaged(path, harm))


def test_a_vocabulary_without_the_special_tokens_is_refused(tmp_path: Path) -> None:
    write_vocabulary({"a": 0, "b": 1}, tmp_path / "v.bin")
    with pytest.raises(ModelDamaged, match="special tokens"):
        WordPiece(tmp_path / "v.bin")
