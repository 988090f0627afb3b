"""Settings of the LLM engine on MNN, as its worker gets them. Pure."""

from __future__ import annotations

import msgspec

from assistant.messages import KvHome


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    context_tokens: int = 1024
    """Of one conversation: prompt and answer together."""
    slots: int = 1
    """Conversations whose keys and values are kept at the same time."""
    prefill_chunk: int = 128
    """Tokens of the prompt per step: bounds workspace, and how long a cancel can take."""
    attention_mode: int = 8
    """`config` says which ones give right answers."""
    kv_home: KvHome = "heap"
    kv_bytes: int = 0
    """What all slots take when they are full."""
    kv_dir: str = ""
    """Where the folder for the files of keys and values is made; empty = MNN keeps them on its heap."""
