"""A sentence as words: lower case, without punctuation, "5min" in two. Pure; imports nothing of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence

LIMIT = 80
"""Words of a sentence that are looked at: commands are short, and everything here stays quick."""
MAX_LENGTH = 1000
"""Characters of the same, for text without spaces."""

APOSTROPHES = re.compile("[’‘`´ʼ]")
"""Written for "'"."""
_CONTRACTED = re.compile(
    r"\b(?:(\w+n)'(t)|(\w+)'(m|re|ve|ll|d)|(it|that|what|there|who|he|she|how|where|let|here|when|why)'(s))\b"
)
_UNPRINTED = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\ufeff]+")
_ENDS = " .,;:!?\"'()[]{}<>|*_~…。，？！"
_GLUED = re.compile(
    r"(?<=\d)(h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|d|days?|k|kelvin|am|pm|percent|degrees?|stunden?)(?=\d|\b)"
)
_HYPHENS = re.compile(r"(?<=[a-z])-(?=[a-z])|(?<=\d)-(?=[a-z])")
_SIGNS = re.compile(r"([%°])c?")


def words_of(text: str) -> list[str]:
    """At most `LIMIT` words. Decimal points, clock colons, signs before digits and inner apostrophes stay, but "it's"
    is "its", as recognisers write it."""
    text = _UNPRINTED.sub(" ", text[:MAX_LENGTH]).lower()
    text = _HYPHENS.sub(" ", APOSTROPHES.sub("'", text))
    text = _CONTRACTED.sub(lambda found: "".join(part for part in found.groups() if part), text)
    text = _SIGNS.sub(r" \1 ", _GLUED.sub(r" \1 ", text))
    found = (word.strip(_ENDS) if word[:1] != "." else "0" + word.strip(_ENDS) for word in text.split()[:LIMIT])
    return [word for word in found if word]


def word_list(text: str) -> tuple[str, ...]:
    """A table of words in order, written as one line."""
    return tuple(text.split())


def word_set(text: str) -> frozenset[str]:
    """A table of words, written as one line."""
    return frozenset(text.split())


def joined(words: Sequence[str]) -> str:
    return " ".join(words)


def trimmed(words: Sequence[str], before: frozenset[str], after: frozenset[str]) -> list[str]:
    """Without the words of `before` at the front and of `after` at the end."""
    first, last = 0, len(words)
    while first < last and words[first] in before:
        first += 1
    while last > first and words[last - 1] in after:
        last -= 1
    return list(words[first:last])
