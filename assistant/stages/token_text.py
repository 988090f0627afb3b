"""Tokens of an answer to text that can be shown: whole characters, no thinking aloud, nothing past a stop string.

Pure: no clock, no engine. Three steps in a row: bytes to characters, without control tokens; `Thinking` takes out
what stands between `<think>` and `</think>`; what is left is held back while it could begin a stop string.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence, Set
from typing import Protocol

OPEN, CLOSE = "<think>", "</think>"
_TAIL_TOKENS = 16
"""Of a prompt: more than an opening tag and the white space after it ever takes."""


class Tokens(Protocol):
    """The part of a vocabulary that is needed here."""

    @property
    def special_ids(self) -> Set[int]: ...
    @property
    def think_ids(self) -> Set[int]:
        """Tokens that spell a think tag; they may be special as well."""
        ...

    def bytes_of(self, token: int) -> bytes: ...


class Thinking:
    """Takes out of a stream of text what a model thinks aloud, its tags, and the white space after a closing tag.

    The tags may be cut anywhere. A block that never ends gives nothing; a closing tag without an opening one goes too.
    """

    def __init__(self, *, inside: bool) -> None:
        """`inside`: the prompt has opened a block already."""
        self._inside = inside
        self._after = False
        self._held = ""

    def feed(self, text: str) -> str:
        self._held += text
        return self._take(final=False)

    def flush(self) -> str:
        return self._take(final=True)

    def _take(self, *, final: bool) -> str:
        shown = ""
        while True:
            if self._after:
                self._held = self._held.lstrip()
                self._after = not self._held
            tags = (CLOSE,) if self._inside else (OPEN, CLOSE)
            at, tag = min(((found, tag) for tag in tags if (found := self._held.find(tag)) >= 0), default=(-1, ""))
            if at < 0:
                keep = 0 if final else max(_overlap(self._held, tag) for tag in tags)
                rest = self._held[: len(self._held) - keep]
                self._held = self._held[len(rest) :]
                return shown if self._inside else shown + rest
            if not self._inside:
                shown += self._held[:at]
            self._held = self._held[at + len(tag) :]
            self._inside, self._after = tag == OPEN, tag == CLOSE


class TokenText:
    """Tokens to text: waits for the rest of a split UTF-8 character, of a tag, and of what could be a stop string."""

    def __init__(self, vocabulary: Tokens, stop: tuple[str, ...], *, thinking: bool = False) -> None:
        """`thinking`: the prompt ends inside a think block (`opens_thinking`); what comes first is not shown.

        A stop string counts in what is shown alone.
        """
        self._vocabulary = vocabulary
        self._hidden = vocabulary.special_ids - vocabulary.think_ids
        self._stop = tuple(text for text in stop if text)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._thinking = Thinking(inside=thinking)
        self._held = ""
        self.stopped = False

    def feed(self, token: int) -> str:
        """What may be shown now."""
        if token not in self._hidden:
            self._held += self._thinking.feed(self._decoder.decode(self._vocabulary.bytes_of(token)))
        return self._release(final=False)

    def flush(self) -> str:
        """The rest, at the end of the answer."""
        if not self.stopped:
            self._held += self._thinking.feed(self._decoder.decode(b"", final=True)) + self._thinking.flush()
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


def opens_thinking(vocabulary: Tokens, prompt: Sequence[int]) -> bool:
    """Whether a prompt ends in an opening think tag, as the templates of some reasoning models do."""
    end = b"".join(map(vocabulary.bytes_of, prompt[-_TAIL_TOKENS:]))
    return end.rstrip().endswith(OPEN.encode())


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that begins `stop`."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-size:])), 0)
