"""A small byte-level BPE vocabulary made by hand: as GGUF metadata, and the same for the `tokenizers` package."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer

from assistant.model_store.llm_tokenizer import gpt2_alphabet

ALPHABET = {byte: char for char, byte in gpt2_alphabet().items()}
WORDS = (
    "the capital of France is Paris hello world don't we're I'll HELLO naïve café über straße 你好 世界 привет мир "
    "こんにちは def return import for in range 12345 2024 007 ... !!! == != ++ -- // http www com 🙂 👨‍👩‍👧 \n\n "
    "\t   ½ Ⅷ ٣٤"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED = ("<tool>",)
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + ': ' + m['content'] + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant: ' }}{% endif %}"
)
"""A format of its own, so that a test can tell it from ChatML."""
_DEFAULT = (
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)
"""llama.cpp's splits for files that name no pre-tokenizer, one within the pieces of the other."""
_R = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def spell(raw: bytes) -> str:
    return "".join(ALPHABET[byte] for byte in raw)


def _vocabulary() -> tuple[list[str], list[str]]:
    """Every byte, then the beginnings of each word, byte by byte, with and without a space before."""
    tokens, merges = [ALPHABET[byte] for byte in range(256)], []
    known = set(tokens)
    for word in [w for plain in WORDS.split(" ") if plain for w in (plain, " " + plain)] + ["  ", "   ", "\n\n"]:
        spelled = spell(word.encode())
        for end in range(2, len(spelled) + 1):
            if spelled[:end] not in known:
                known.add(spelled[:end])
                tokens.append(spelled[:end])
                merges.append(f"{spelled[: end - 1]} {spelled[end - 1]}")
    return tokens, merges


_TOKENS, _MERGES = _vocabulary()


def metadata(
    pre: str | None = "smollm",
    *,
    special: tuple[str, ...] = SPECIAL,
    template: str | None = TEMPLATE,
    whole: tuple[str, ...] = (),
) -> dict[str, Any]:
    """`tokenizer.*` keys of a GGUF file; the special and added tokens come last. None leaves a key out.

    `whole`: words that are tokens and that no merges build.
    """
    plain = [*_TOKENS, *(spell(word.encode()) for word in whole)]
    keys: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*plain, *special, *ADDED],
        "tokenizer.ggml.token_type": [1] * len(plain) + [3] * len(special) + [4] * len(ADDED),
        "tokenizer.ggml.merges": _MERGES,
        "tokenizer.ggml.bos_token_id": len(plain) + 1,
        "tokenizer.ggml.eos_token_id": len(plain) + 2,
        "tokenizer.chat_template": template,
    }
    return {key: value for key, value in keys.items() if value is not None}


def vocab_size() -> int:
    return len(_TOKENS) + len(SPECIAL) + len(ADDED)


def tokenizer(pre: str, *, whole: tuple[str, ...] = ()) -> Tokenizer:
    """The same vocabulary in Hugging Face's implementation, with the pre-tokenizer that the name stands for.

    With `whole` words, each of them is taken as its token, as Llama 3 does.
    """
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    words = {"qwen2": r"\p{N}", "llama-bpe": r"\p{N}{1,3}"}
    if pre in words:
        pattern = {"Regex": _R % words[pre]}
        steps = [{**split, "pattern": pattern}, {**byte_level, "use_regex": False}]
    elif pre == "default":
        splits = [{**split, "pattern": {"Regex": pattern}} for pattern in _DEFAULT]
        steps = [*splits, {**byte_level, "use_regex": False}]
    else:
        digits = [{"type": "Digits", "individual_digits": True}] if pre == "smollm" else []
        steps = [*digits, {**byte_level, "use_regex": True}]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    plain = [*_TOKENS, *(spell(word.encode()) for word in whole)]
    first = len(plain)
    added = [
        {"id": first + i, "content": text, "special": text in SPECIAL, **flags}
        for i, text in enumerate(SPECIAL + ADDED)
    ]
    described = {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate([*plain, *SPECIAL, *ADDED])},
            "merges": _MERGES,
            "byte_fallback": False,
            "fuse_unk": False,
            "ignore_merges": bool(whole),
        },
    }
    return Tokenizer.from_str(json.dumps(described))
