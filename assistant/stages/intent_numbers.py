"""Numbers beyond what a template's list says: "a timer for 437 minutes" is a timer, and "volume 150 percent", or one of
-20, is refused by the skill, which knows why; a template that does not know the number would leave all of them to the
language model.

Imports `nlu`. Knows hassil's lists of numbers; the trie that hassil makes of their words is its own business.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hassil.intents import Intents, RangeSlotList

from assistant.nlu.language import language_of
from assistant.nlu.numbers import Number, number_at
from assistant.nlu.words import word_set, words_of

MOST = 10**15
"""No timer, light or room has such a number; what is larger is as good as this one."""
IN_WORDS = 100
"""Up to this, hassil knows numbers in words."""
_LONG = re.compile(r"(?<![\w.,])(?:\d{16,}|(\d{1,3})e(\d{1,3}))(?!\w)", re.ASCII)
""" "1e9" is typed, never said."""
_TO = word_set("to for of at auf für von")
"""Behind these a minus is a sign."""


class _Digits(Iterable[float]):
    """Contains what may be said in digits, and yields what may be said in words: all words would take minutes."""

    def __init__(self, words: Iterable[float]) -> None:
        self._words = words

    def __iter__(self) -> Iterator[float]:
        return iter(self._words)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int | float) and -MOST <= number <= MOST


@dataclass
class Open(RangeSlotList):  # type: ignore[misc]
    """A list of numbers that digits may leave. hassil keeps words by the bounds, so `stop` tells `words` apart."""

    listed: RangeSlotList = field(kw_only=True)

    def get_numbers(self) -> Iterable[float]:
        return _Digits(self.listed.get_numbers())


def opened(intents: Any, names: Collection[str]) -> None:
    """Lets the lists `names` take any number in digits, those that are lists of numbers. `intents`: hassil's."""
    assert isinstance(intents, Intents)
    for name in names:
        listed = intents.slot_lists.get(name)
        if isinstance(listed, RangeSlotList) and listed.digits:
            intents.slot_lists[name] = Open(
                name=listed.name, start=-MOST, stop=MOST + 1000 * listed.start + listed.stop, step=listed.step,
                type=listed.type, fraction_type=listed.fraction_type, multiplier=listed.multiplier, words=listed.words,
                words_language=listed.words_language, listed=listed,
            )  # fmt: skip


def in_digits(text: str, language: str) -> str:
    """With "four hundred and thirty seven" as "437", and "to minus five" as "to -5"; `text` itself where every number
    is small."""
    known, words, index = language_of(language), words_of(_LONG.sub(_shorter, text)), 0
    found: list[str] = []
    large = _LONG.search(text) is not None
    while index < len(words):
        number = number_at(words, index, known)
        if number is None or not _rewritten(number, words):
            found.append(words[index])
            index += 1
        else:
            found.append(f"{number.value}%" if number.percent else str(number.value))
            index, large = number.end, True
    return " ".join(found) if large else text


def _shorter(found: re.Match[str]) -> str:
    return str(min(MOST, int(found[1]) * 10 ** int(found[2])) if found[1] else MOST)


def _rewritten(number: Number, words: Sequence[str]) -> bool:
    if number.end - number.start == 1 and words[number.start][-1].isdigit():
        return False
    if number.value < 0:  # "volume minus ten" is a step
        return number.start > 0 and words[number.start - 1] in _TO
    return IN_WORDS < number.value <= MOST
