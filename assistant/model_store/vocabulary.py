"""`vocabulary.bin` and the `assistant` part of `llm_config.json`: what our own token loop needs. Imports `errors`.

Layout of `vocabulary.bin`, little-endian: 4 bytes `AVOC`, uint32 version (1), uint32 number of tokens n, uint32 0, then
uint32 [n + 1] offsets into what follows, then the bytes of all tokens one after another. It is mapped, not read, so it
opens in about a millisecond and costs no memory of our own. Imports neither MNN nor the converter.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from assistant.errors import ModelDamaged

FILE = "vocabulary.bin"
_HEAD = struct.Struct("<4sIII")
_MAGIC, _VERSION = b"AVOC", 1


class LlmFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The object under `assistant` in `llm_config.json`."""

    converter_version: str
    mnn_version: str
    source_sha256: str
    architecture: str
    shape: dict[str, int | bool]
    """layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_position, tied."""
    bos_id: int | None
    eos_id: int | None
    add_bos: bool
    """A prompt must begin with `bos_id`, unless its chat template has printed it already."""
    stop_ids: list[int]
    special_ids: list[int]
    """Control tokens, which are never shown."""
    think_ids: list[int]
    """The tokens that open and close a model's thinking aloud, in this order, or empty."""
    chat_template: str
    """Jinja source that MNN renders."""
    requantised: list[str]
    """Tensors whose weights are not exactly those of the source, with the source's type."""
    notes: list[str] = []
    """What else a user should know of the conversion, in sentences."""
    bits: int | None = None
    """What every matrix was brought to; None = the source's own bits."""
    emergency_skip: list[int] = []
    """Layers that `llm.emergency.mnn` leaves out; empty = there is no such graph."""


def vocabulary_bytes(tokens: list[bytes]) -> bytes:
    """The contents of `vocabulary.bin` for the bytes of each id."""
    offsets = np.zeros(len(tokens) + 1, "<u4")
    np.cumsum([len(token) for token in tokens], out=offsets[1:])
    return _HEAD.pack(_MAGIC, _VERSION, len(tokens), 0) + offsets.tobytes() + b"".join(tokens)


class Vocabulary:
    """Token id -> bytes, and the facts about the model that a token loop needs."""

    def __init__(self, facts: LlmFacts, offsets: NDArray[np.uint32], data: memoryview) -> None:
        self.facts = facts
        self.stop_ids = frozenset(facts.stop_ids)
        self.special_ids = frozenset(facts.special_ids)
        self.think_ids = frozenset(facts.think_ids)
        self._offsets = offsets
        self._data = data

    @classmethod
    def open(cls, model_dir: Path) -> Vocabulary:
        """Raises `ModelDamaged` when a file is missing, cut off or of another version."""
        facts = _facts(model_dir / "llm_config.json")
        path = model_dir / FILE
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            raise ModelDamaged(f"{path}: missing or empty; convert the model again") from None
        magic, version, count, _ = _HEAD.unpack_from(mapped) if len(mapped) >= _HEAD.size else (b"", 0, 0, 0)
        begin = _HEAD.size + 4 * (count + 1)
        if (magic, version) != (_MAGIC, _VERSION) or begin > len(mapped):
            raise ModelDamaged(f"{path}: it is no vocabulary of this version; convert the model again")
        offsets = np.frombuffer(mapped, "<u4", count + 1, _HEAD.size)
        if begin + int(offsets[-1]) != len(mapped):
            raise ModelDamaged(f"{path}: its length is wrong; convert the model again")
        return cls(facts, offsets, memoryview(mapped)[begin:])

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def bytes_of(self, token: int) -> bytes:
        """What the token adds to a text; may be part of a UTF-8 character. Raises `IndexError` for no token."""
        if not 0 <= token < len(self):
            raise IndexError(f"token {token}: the vocabulary has {len(self)}")
        return bytes(self._data[self._offsets[token] : self._offsets[token + 1]])


def _facts(path: Path) -> LlmFacts:
    try:
        config: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        return msgspec.convert(config["assistant"], LlmFacts)
    except OSError as error:
        raise ModelDamaged(f"{path}: {error.strerror}; convert the model again") from None
    except (msgspec.MsgspecError, KeyError, TypeError):
        raise ModelDamaged(f"{path}: not written by this converter; convert the model again") from None
