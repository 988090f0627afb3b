"""Writes `tokenizer.mtok`, MNN's binary tokenizer of kind 4 ("pipeline"). Imports `errors` and `llm_tokenizer`.

Three lines of text, then binary, little-endian; a string is its length as uint16 and UTF-8. MNN finds tokens and merges
by binary search, so both are sorted. It prepends no token by itself here: a conversation is encoded piece by piece.

Llama 3 takes a word that is a token as that token, whether or not the merges would build it (`ignore_merges`). MNN
always merges, so such a word comes in several tokens: the text is the same, the prompt a little longer than the model
has seen it. Not emulated: the words that merges cannot build are few, and MNN has no way to say it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from assistant.errors import ModelDamaged
from assistant.model_store.llm_tokenizer import LlmTokenizer

_NONE, _BYTE_LEVEL, _SPLIT, _SEQUENCE = 0, 1, 4, 6
_ISOLATED = 0
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""The split of Llama 3 and Qwen 2, which differ in how many digits stay together."""
_DEFAULT = (
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)
"""What llama.cpp does with a file that names no pre-tokenizer: one split after another, each within the pieces."""


def _string(text: bytes) -> bytes:
    if len(text) > 0xFFFF:
        raise ModelDamaged(f"a token of {len(text)} bytes does not fit into a tokenizer file")
    return struct.pack("<H", len(text)) + text


def _split(pattern: str) -> bytes:
    return bytes([_SPLIT]) + _string(pattern.encode()) + bytes([0, _ISOLATED])


def _sequence(*children: bytes) -> bytes:
    return struct.pack("<BI", _SEQUENCE, len(children)) + b"".join(children)


def _byte_level(words: bool) -> bytes:
    """Bytes into GPT-2's alphabet, after GPT-2's own split into words if asked for."""
    return bytes([_BYTE_LEVEL, words])


_PRE_TOKENIZERS: dict[str, Callable[[], bytes]] = {
    # Every digit on its own. MNN has a digit splitter, but it knows ASCII digits alone.
    "smollm": lambda: _sequence(_split(r"\p{N}"), _byte_level(True)),
    "qwen2": lambda: _sequence(_split(_WORDS % r"\p{N}"), _byte_level(False)),
    "llama-bpe": lambda: _sequence(_split(_WORDS % r"\p{N}{1,3}"), _byte_level(False)),
    "gpt-2": lambda: _byte_level(True),
    "default": lambda: _sequence(*map(_split, _DEFAULT), _byte_level(False)),
}


def _merges(tokenizer: LlmTokenizer, ids: dict[bytes, int]) -> bytes:
    """(left id, right id, rank) of each merge, sorted by the pair."""
    rows: list[tuple[int, int, int]] = []
    for rank, merge in enumerate(tokenizer.merges):
        cut = merge.find(b" ", 1)
        left, right = ids.get(merge[:cut]), ids.get(merge[cut + 1 :])
        if cut < 0 or left is None or right is None:
            raise ModelDamaged(f"merge {rank} of the tokenizer, {merge[:60]!r}, joins what is no token")
        rows.append((left, right, rank))
    rows.sort()
    return b"".join([struct.pack("<III", *row) for row in rows])


def _bpe(tokenizer: LlmTokenizer) -> bytes:
    tokens = list(tokenizer.tokens)
    order = sorted(range(len(tokens)), key=tokens.__getitem__)
    merges = _merges(tokenizer, {token: i for i, token in enumerate(tokens)})
    head = struct.pack("<BIBBI", 0, len(tokens), 0, 0, len(tokenizer.merges))
    return head + b"".join([_string(tokens[i]) + struct.pack("<I", i) for i in order]) + merges


def _added(tokenizer: LlmTokenizer) -> bytes:
    special = set(tokenizer.special_ids)
    rows = [struct.pack("<IBBB", i, i in special, 0, 0) + _string(tokenizer.tokens[i]) for i in tokenizer.added_ids]
    return struct.pack("<I", len(rows)) + b"".join(rows)


def mtok(tokenizer: LlmTokenizer) -> bytes:
    """The whole file. Raises `ModelDamaged` when a merge joins unknown tokens."""
    special, stop = tokenizer.special_ids, tokenizer.stop_ids
    lines = f"430 4\n{len(special)} {len(stop)} 0\n{' '.join(map(str, [*special, *stop]))}\n"
    template = tokenizer.chat_template.encode()
    eos, bos = (b"" if i is None else tokenizer.tokens[i] for i in (tokenizer.eos_id, tokenizer.bos_id))
    normaliser, decoder = bytes([_NONE]), bytes([0])  # no normaliser; the byte-level decoder
    return b"".join(
        [
            lines.encode(),
            normaliser,
            _PRE_TOKENIZERS[tokenizer.pre](),
            _bpe(tokenizer),
            decoder,
            _added(tokenizer),
            struct.pack("<I", len(template)) + template,
            _string(eos) + bytes([0]) + _string(bos),
        ]
    )
