"""What a GGUF file says of its tokenizer: tokens as bytes, merges, special and stop tokens. Imports `errors`, `gguf`.

Byte-level BPE alone ("gpt2"): Llama 3, Qwen 2/2.5/3, SmolLM2 and finetunes. A file's tokens are spelled in GPT-2's
alphabet, which gives each byte a printable character (`bytes_to_unicode` in OpenAI's GPT-2 encoder).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from assistant.errors import ModelDamaged, ModelUnsupported
from assistant.model_store.gguf import StringArray
from assistant.model_store.tensor_source import TensorSource

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_STOP_NAMES = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<|end_of_text|>", "</s>",
)  # fmt: skip
_PRE = {
    "smollm": "smollm", "starcoder": "smollm", "refact": "smollm",
    "qwen2": "qwen2", "deepseek-r1-qwen": "qwen2",
    "llama-bpe": "llama-bpe", "llama3": "llama-bpe", "llama-v3": "llama-bpe",
    "gpt-2": "gpt-2", "default": "default",
}  # fmt: skip
"""llama.cpp's names of pre-tokenizers -> ours; those on the right are built in `mnn_tokenizer`."""
_UNNAMED = {"qwen2": "qwen2", "qwen3": "qwen2"}
"""Architecture -> what a file of it means that names none; others mean llama.cpp's `default`, as there."""


def gpt2_alphabet() -> dict[str, int]:
    """Character -> byte: printable Latin-1 stands for itself, the other bytes for U+0100 and up, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


class LlmTokenizer(msgspec.Struct, frozen=True, kw_only=True):
    pre: str
    """Pre-tokenizer: smollm, qwen2, llama-bpe, gpt-2 or default."""
    pre_named: bool = True
    """False: the file names none, and `pre` is what its architecture makes likely."""
    tokens: Sequence[bytes]
    """As the file spells them, by id."""
    merges: Sequence[bytes]
    """`left right`, most frequent first."""
    added_ids: list[int]
    """Tokens that are found in a text before it is split: special ones and those that the model's makers added."""
    special_ids: list[int]
    """Control tokens: never shown."""
    stop_ids: list[int]
    """Generation ends with any of these."""
    bos_id: int | None
    eos_id: int | None
    add_bos: bool
    """Whether a prompt begins with `bos_id`; a chat template that prints it itself does that already."""
    chat_template: str
    """Jinja; empty when the file has none."""

    def text_of(self, token: int | None) -> str:
        """How the file spells a token; empty for none."""
        return "" if token is None else self.tokens[token].decode("utf-8", "replace")

    def token_bytes(self) -> list[bytes]:
        """What each id stands for in a text, by id. May be part of a UTF-8 character."""
        alphabet = {char.encode(): bytes([byte]) for char, byte in gpt2_alphabet().items()}
        literal = set(self.added_ids)
        return [token if i in literal else _spelled(token, alphabet) for i, token in enumerate(self.tokens)]


def _spelled(token: bytes, alphabet: dict[bytes, bytes]) -> bytes:
    """GPT-2 spelling -> bytes; a token that uses other characters (padding of a vocabulary) means itself."""
    if token.isascii():
        return token  # every printable ASCII character stands for itself
    try:
        return b"".join([alphabet[char.encode()] for char in token.decode()])
    except (KeyError, UnicodeDecodeError):
        return token


def _text(gguf: TensorSource, key: str, default: str = "") -> str:
    value = gguf.metadata.get(key, default.encode())
    if not isinstance(value, bytes):
        raise ModelDamaged(f"{gguf.path}: {key} is no text")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ModelDamaged(f"{gguf.path}: {key} is not UTF-8") from None


def _token_id(gguf: TensorSource, name: str, vocab: int) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    value = gguf.metadata.get(key)
    if value is None or value == 0xFFFFFFFF:  # the latter: llama.cpp's way to say none
        return None
    if not isinstance(value, int) or not 0 <= value < vocab:
        raise ModelDamaged(f"{gguf.path}: {key} is {value!r}, the vocabulary has {vocab} tokens")
    return value


def _types(gguf: TensorSource, vocab: int) -> list[int]:
    value: Any = gguf.metadata.get("tokenizer.ggml.token_type")
    if value is None:
        return [1] * vocab
    if isinstance(value, bytes | StringArray) or not hasattr(value, "tolist") or len(value) != vocab:
        raise ModelDamaged(f"{gguf.path}: tokenizer.ggml.token_type does not give one type for each token")
    return [int(kind) for kind in value.tolist()]


def read_tokenizer(gguf: TensorSource) -> LlmTokenizer:
    """Raises `ModelUnsupported` for another kind of tokenizer, `ModelDamaged` for what makes no sense."""
    model, named = _text(gguf, "tokenizer.ggml.model"), _text(gguf, "tokenizer.ggml.pre")
    pre = named or _UNNAMED.get(_text(gguf, "general.architecture"), "default")
    if model != "gpt2":
        raise ModelUnsupported(
            f"{gguf.path}: the tokenizer is {model[:40]!r}; only byte-level BPE (gpt2) can be converted"
        )
    if pre not in _PRE:
        raise ModelUnsupported(f"{gguf.path}: the pre-tokenizer is {pre[:40]!r}; known are {', '.join(_PRE)}")
    tokens, merges = gguf.metadata.get("tokenizer.ggml.tokens"), gguf.metadata.get("tokenizer.ggml.merges")
    if not isinstance(tokens, StringArray) or not isinstance(merges, StringArray):
        raise ModelDamaged(f"{gguf.path}: the tokenizer has no tokens or no merges")
    types = _types(gguf, len(tokens))
    ids = {name: _token_id(gguf, name, len(tokens)) for name in ("bos", "eos", "eot", "eom")}
    added = [i for i, kind in enumerate(types) if kind in (_CONTROL, _USER_DEFINED)]
    stop = {i for name in ("eos", "eot", "eom") if (i := ids[name]) is not None}
    names = {name.encode() for name in _STOP_NAMES}
    stop |= {i for i in added if tokens[i] in names}
    add_bos = gguf.metadata.get("tokenizer.ggml.add_bos_token", _PRE[pre] == "llama-bpe")
    return LlmTokenizer(
        pre=_PRE[pre],
        pre_named=bool(named),
        tokens=tokens,
        merges=merges,
        added_ids=added,
        special_ids=[i for i in added if types[i] == _CONTROL],
        stop_ids=sorted(stop),
        bos_id=ids["bos"],
        eos_id=ids["eos"],
        add_bos=bool(add_bos) and ids["bos"] is not None,
        chat_template=_text(gguf, "tokenizer.chat_template"),
    )
