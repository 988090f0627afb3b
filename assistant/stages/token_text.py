"""Tokens of an answer to text that can be shown: whole characters, no control tokens, nothing past a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Set
from typing import Protocol


class Tokens(Protocol):
    """The part of a vocabulary that is needed here."""

    @property
    def special_ids(self) -> Set[int]: ...
    def bytes_of(self, token: int) -> bytes: ...


class TokenText:
    """Tokens to text: waits for the rest of a split UTF-8 character, and for what could be a stop string."""

    def __init__(self, vocabulary: Tokens, stop: tuple[str, ...]) -> None:
        self._vocabulary = vocabulary
        self._stop = tuple(text for text in stop if text)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stopped = False

    def feed(self, token: int) -> str:
        """What may be shown now."""
        if token not in self._vocabulary.special_ids:
            self._held += self._decoder.decode(self._vocabulary.bytes_of(token))
        return self._release(final=False)

    def flush(self) -> str:
        if not self.stopped:
            self._held += self._decoder.decode(b"", final=True)
        return self._release(final=True)

    def _release(self, *, final: bool) -> str:
        found = [at for text in self._stop if (at := self._held.find(text)) >= 0]
        if found:
            self.stopped = True
            shown, self._held = self._held[: min(found)], ""
            return shown
        keep = 0 if final else max((_overlap(self._held, text) for text in self._stop), default=0)
        shown = self._held[: len(self._held) - keep]
        self._held = self._held[len(shown) :]
        return shown


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that begins `stop`."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-size:])), 0)
