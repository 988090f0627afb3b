"""MNN, given our tokenizer file, splits text into the same tokens as Hugging Face's implementation."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.bench.mnn_logits import Job, run
from assistant.model_store.convert_gguf import convert_gguf
from assistant.model_store.gguf import GgufFile
from assistant.model_store.llm_tokenizer import gpt2_alphabet, read_tokenizer
from assistant.model_store.vocabulary import Vocabulary
from tests.model_store import tiny_bpe
from tests.model_store.tiny_gguf import Tiny, write_model

TRICKY = [
    "the capital of France is Paris",
    "Hello world, I don't we're I'LL 's 'T 'RE",
    "naïve café über straße É e\u0301 ﬁ",
    "你好世界 привет мир こんにちは العربية हिन्दी ไทย 한국어",
    "def f(x):\n    return x == 12345\n\n\n",
    "  two  spaces   three\ttab \n x   ",
    "2024 007 1234567 3.14 ½ Ⅷ ٣٤ x²",
    "👨‍👩‍👧 🙂! ...!!! ??",
    "<|im_start|>user\nhi<|im_end|>\n<tool>a <tool>",
    "http://www.x.com/a?b=c&d=%20",
    "\r\n\r\n  \r\n",
    "\u200b zero\u00a0nbsp\u3000ideo x\u2028y",
    "\x01\x7f control",
]


@pytest.mark.engine
@pytest.mark.parametrize("pre", ["smollm", "qwen2", "llama-bpe", "gpt-2", "default"])
def test_token_ids_equal_those_of_the_tokenizers_package(pre: str, tmp_path: Path) -> None:
    gguf = write_model(tmp_path / "x.gguf", Tiny(layers=1), tiny_bpe.metadata(pre))
    convert_gguf(gguf, tmp_path / "model")
    reference = tiny_bpe.tokenizer(pre)
    runs = run(tmp_path / "model", {"memory": "low"}, [Job(prompt=text) for text in TRICKY])
    assert [r.prompt for r in runs] == [reference.encode(text).ids for text in TRICKY]
    vocabulary = Vocabulary.open(tmp_path / "model")
    for text, found in zip(TRICKY, runs, strict=True):
        assert b"".join(map(vocabulary.bytes_of, found.prompt)) == text.encode()


@pytest.mark.engine
def test_a_word_that_llama_3_knows_whole_comes_in_several_tokens(tmp_path: Path) -> None:
    """`ignore_merges`, which MNN does not have. The text is the same; words that merges build are not concerned."""
    word, known = "zyxwvu", "hello"
    gguf = write_model(tmp_path / "x.gguf", Tiny(layers=1), tiny_bpe.metadata("llama-bpe", whole=(word,)))
    report = convert_gguf(gguf, tmp_path / "model")
    reference = tiny_bpe.tokenizer("llama-bpe", whole=(word,))
    rare, common = (
        r.prompt for r in run(tmp_path / "model", {"memory": "low"}, [Job(prompt=t) for t in (word, known)])
    )
    vocabulary = Vocabulary.open(tmp_path / "model")
    assert [vocabulary.bytes_of(i) for i in reference.encode(word).ids] == [word.encode()]
    assert len(rare) == len(word)
    assert b"".join(map(vocabulary.bytes_of, rare)) == word.encode()
    assert common == reference.encode(known).ids
    assert any("no merges build" in note for note in report.notes)


@pytest.mark.parametrize(("architecture", "meant"), [("qwen2", "qwen2"), ("qwen3", "qwen2"), ("llama", "default")])
@pytest.mark.parametrize("unnamed", [None, ""])
def test_a_file_that_names_no_pre_tokenizer(architecture: str, meant: str, unnamed: str | None, tmp_path: Path) -> None:
    spec = Tiny(architecture=architecture, layers=1, bias=architecture == "qwen2", qk_norm=architecture == "qwen3")
    gguf = write_model(tmp_path / "x.gguf", spec, tiny_bpe.metadata(unnamed))
    with GgufFile(gguf) as file:
        found = read_tokenizer(file)
    assert (found.pre, found.pre_named) == (meant, False)
    report = convert_gguf(gguf, tmp_path / "model")
    assert any(repr(meant) in note for note in report.notes)


def test_what_llama_cpp_calls_default_is_not_gpt_2() -> None:
    texts = ["2024 and 1234567", "x==12345", "a-b...c", "$5+3"]
    default, gpt2 = ([tiny_bpe.tokenizer(pre).encode(t).ids for t in texts] for pre in ("default", "gpt-2"))
    assert default != gpt2, "the test of token ids must be able to tell them apart"


def test_the_alphabet_spells_every_byte_once() -> None:
    alphabet = gpt2_alphabet()
    assert sorted(alphabet.values()) == list(range(256))
    assert (alphabet["Ġ"], alphabet["Ċ"], alphabet["a"]) == (0x20, 0x0A, 0x61)


def test_stop_and_special_tokens(tmp_path: Path) -> None:
    tokenizer = {**tiny_bpe.metadata("llama-bpe"), "tokenizer.ggml.eot_token_id": 5}
    gguf = write_model(tmp_path / "x.gguf", Tiny(layers=1), tokenizer)
    with GgufFile(gguf) as file:
        found = read_tokenizer(file)
    first = tiny_bpe.vocab_size() - len(tiny_bpe.SPECIAL) - len(tiny_bpe.ADDED)
    assert found.special_ids == [first, first + 1, first + 2]
    assert found.added_ids == [*found.special_ids, first + 3]
    assert found.stop_ids == [5, first, first + 2]  # eot as told, <|endoftext|> by name, eos as told
    assert found.add_bos, "Llama 3 files mean it even where they do not say it"
    spelled = found.token_bytes()
    assert spelled[first + 3] == b"<tool>"
    assert spelled[:256] == [bytes([byte]) for byte in range(256)]
