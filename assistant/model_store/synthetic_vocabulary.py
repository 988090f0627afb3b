"""A byte-level BPE vocabulary of any size for models of random weights. Imports `llm_tokenizer` and `chat_template`.

The single bytes, words of three syllables with a space before them, the few pieces that its few merges build, and the
control tokens of ChatML. Real text comes in bytes and pairs, and what such a model says can at least be pronounced.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from assistant.model_store.chat_template import FORMATS
from assistant.model_store.gguf import StringArray
from assistant.model_store.llm_tokenizer import gpt2_alphabet

_PAIRS = ("th", "he", "in", "er", "an", "re", "on", "at", "en", "nd", "ti", "es", "or", "te", "of", "ed", "is", "it")
"""The commonest pairs of letters in English text."""
_SYLLABLES = [consonant + vowel for consonant in "bdfghjklmnprstvwz" for vowel in "aeiou"]
_SPACE = "\u0120"
"""How GPT-2's alphabet writes a space."""
_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LARGEST = 256 + len(_PAIRS) + len(_SYLLABLES) ** 3 + len(_CONTROL)


def tokenizer_keys(size: int, pre: str) -> dict[str, Any]:
    """The `tokenizer.*` metadata of a file with `size` tokens, all different, the control tokens last.

    Raises `ValueError` for a size that is too small for the bytes, or beyond `LARGEST`.
    """
    fixed = [*gpt2_alphabet(), *_PAIRS]
    count = size - len(fixed) - len(_CONTROL)
    if count < 0 or size > LARGEST:
        raise ValueError(f"a vocabulary of {size} tokens cannot be made; from {size - count} to {LARGEST} can")
    words = map("".join, itertools.islice(itertools.product([_SPACE], *[_SYLLABLES] * 3), count))
    tokens = [token.encode() for token in itertools.chain(fixed, words, _CONTROL)]
    types = np.ones(size, np.int32)
    types[-len(_CONTROL) :] = 3
    return {
        "tokenizer.ggml.model": b"gpt2",
        "tokenizer.ggml.pre": pre.encode(),
        "tokenizer.ggml.tokens": StringArray.of(tokens),
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": StringArray.of([f"{a} {b}".encode() for a, b in map(tuple, _PAIRS)]),
        "tokenizer.ggml.bos_token_id": size - 2,
        "tokenizer.ggml.eos_token_id": size - 1,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": FORMATS[0].template.encode(),
    }
