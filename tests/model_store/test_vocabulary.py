"""`vocabulary.bin` gives the bytes of each token, opens fast, and refuses what is not whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from assistant.errors import ModelDamaged
from assistant.model_store.vocabulary import FILE, LlmFacts, Vocabulary, vocabulary_bytes

FACTS = LlmFacts(
    converter_version="gguf-1", mnn_version="3.6.1", source_sha256="0" * 64, architecture="llama", shape={"layers": 1},
    bos_id=None, eos_id=1, add_bos=False, stop_ids=[1], special_ids=[1], think_ids=[], chat_template="", requantised=[],
)  # fmt: skip
TOKENS = [b"a", b"<|end|>", b"", "é".encode()[:1], "é".encode()[1:]]


def model(path: Path, tokens: list[bytes]) -> Path:
    (path / FILE).write_bytes(vocabulary_bytes(tokens))
    (path / "llm_config.json").write_bytes(msgspec.json.encode({"assistant": FACTS}))
    return path


def test_gives_bytes_and_facts(tmp_path: Path) -> None:
    vocabulary = Vocabulary.open(model(tmp_path, TOKENS))
    assert [vocabulary.bytes_of(i) for i in range(len(vocabulary))] == TOKENS
    assert vocabulary.stop_ids == {1}
    assert vocabulary.facts == FACTS
    for outside in (-1, len(TOKENS)):
        with pytest.raises(IndexError):
            vocabulary.bytes_of(outside)


@pytest.mark.alone("within 10 ms")
def test_opens_150_000_tokens_in_a_moment(tmp_path: Path) -> None:
    model(tmp_path, [b"token%d" % i for i in range(150_000)])
    took = []
    for _ in range(5):
        began = time.perf_counter()
        assert Vocabulary.open(tmp_path).bytes_of(149_999) == b"token149999"
        took.append(time.perf_counter() - began)
    assert min(took) < 0.01


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda raw: b"",
    "header only": lambda raw: raw[:16],
    "no magic": lambda raw: b"X" + raw[1:],
    "another version": lambda raw: raw[:4] + b"\x09" + raw[5:],
    "cut by one byte": lambda raw: raw[:-1],
    "one byte more": lambda raw: raw + b"x",
    "huge count": lambda raw: raw[:8] + b"\xff\xff\xff\xff" + raw[12:],
    "tiny": lambda raw: raw[:3],
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_refused(name: str, tmp_path: Path) -> None:
    path = model(tmp_path, TOKENS) / FILE
    path.write_bytes(DAMAGE[name](path.read_bytes()))
    with pytest.raises(ModelDamaged, match="convert the model again"):
        Vocabulary.open(tmp_path)


@pytest.mark.parametrize("config", [None, b"", b"[]", b"{}", b'{"assistant": {"bos_id": "x"}}', b'{"assistant": 3}'])
def test_facts_that_are_not_ours_are_refused(config: bytes | None, tmp_path: Path) -> None:
    path = model(tmp_path, TOKENS) / "llm_config.json"
    path.unlink()
    if config is not None:
        path.write_bytes(config)
    with pytest.raises(ModelDamaged, match="convert the model again"):
        Vocabulary.open(tmp_path)
