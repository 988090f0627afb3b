"""Numbers that something beside them changes: "ten to the power of nine", "five minutes minus three", "half of ten".

We do not calculate; this tells that the number which was understood is not the one that was meant. English, and what is
said in German answers; signs in any language. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from assistant.language_code import base_of
from assistant.nlu.durations import duration_at
from assistant.nlu.language import Language, language_of
from assistant.nlu.numbers import number_at, numbers
from assistant.nlu.words import word_set, words_of

Words = Sequence[str]

_GLUED = re.compile(r"[-+−]?\d[\d.,]*(?:[*x×^÷+–−-]|\*\*|//)[-+−]?\d[\d.,]*", re.ASCII)
""" "5*3", "2^3"; "1/2" is a number."""
_STAR = re.compile(r"(?<=\s)\*{1,2}(?=\s)")
_SIGNED = re.compile(r"[-+−–]\d", re.ASCII)
_SIGNS = word_set("+ - − – × x / ÷ ^ plus minus")


@dataclass(frozen=True, slots=True)
class _Table:
    between: tuple[str, ...]
    """What changes a number with another one behind it."""
    behind: tuple[str, ...]
    """What does so without."""
    before: tuple[str, ...]
    of: str


_EN = _Table(
    between=("times", "less", "mod", "modulo", "divided by", "multiplied by", "multiplied with", "more than",
             "less than", "fewer than", "added to", "raised to", "taken from", "times the", "to power of"),
    behind=("squared", "cubed", "doubled", "tripled", "halved", "factorial", "to the power", "raised to the",
            "times as", "times that", "times more"),
    before=("twice", "thrice", "double", "triple", "root of", "sum of", "product of", "difference of",
            "difference between", "logarithm of", "average of", "twice the", "double the", "half as long as",
            "twice as long as"),
    of="of",
)  # fmt: skip
_DE = _Table(
    between=("mal", "durch", "hoch", "weniger", "geteilt durch", "mehr als", "weniger als"),
    behind=("quadrat", "im quadrat", "zum quadrat", "mal so", "fakultät"),
    before=("doppelt", "das doppelte von", "hälfte von", "wurzel aus", "wurzel von"),
    of="von",
)
_OTHERS = _Table(between=(), behind=(), before=(), of="")
_TABLES = {"en": _EN, "de": _DE}
_BY = word_set("by um")
_CHANGE = word_set("change changed adjust alter shift move ändere verändere")
_ORDINALS = word_set("second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth nth")
_THINGS = word_set("timer timers one countdown alarm")
_DEGREES = word_set("degrees degree ° celsius fahrenheit grad points")


def changed(text: str, code: str = "en") -> bool:
    """Whether a number of the sentence is one that would have to be calculated. `code`: of the language."""
    # a star that stands alone is no word to others
    words, language, table = words_of(_STAR.sub("×", text)), language_of(code), _TABLES.get(base_of(code), _OTHERS)
    if any(_GLUED.fullmatch(word) for word in words):
        return True
    index = 0
    while index < len(words):
        end, part = _amount(words, index, language)
        if (
            end > index
            and (
                any(_ends(words[:index], phrase) for phrase in table.before)
                or any(_takes_away(word, language) for word in words[index + 1 : end])  # "an hour minus ten minutes"
                or _goes_on(words[end:], table, language, part=part)
            )
        ):
            return True
        index = max(end, index + 1)
    return False


def negative(text: str, code: str = "en") -> bool:
    """Whether a number below zero is said."""
    return any(number.value < 0 for number in numbers(words_of(text), language_of(code)))


def backwards(text: str, code: str = "en") -> bool:
    """ "Up by minus five": nobody can tell which way that shall go. "Change it by minus five" can be told."""
    words = words_of(text)
    by = [
        one for one in numbers(words, language_of(code)) if one.value < 0 and one.start and words[one.start - 1] in _BY
    ]
    return bool(by) and not _CHANGE & set(words)


def _amount(words: Words, start: int, language: Language) -> tuple[int, bool]:
    """Where a number or a length of time ends, `start` when none begins there; whether it is a part of something."""
    number, length = number_at(words, start, language), duration_at(words, start, language)
    end = max(number.end if number else start, length.end if length else start)
    part = number is not None and number.end == end and (number.fraction or number.percent)
    while start < end < len(words) and words[end] in _DEGREES:
        end += 1
    return end, part


def _takes_away(word: str, language: Language) -> bool:
    return word in language.minus or word in _SIGNS or _SIGNED.match(word) is not None


def _goes_on(rest: Words, table: _Table, language: Language, *, part: bool) -> bool:
    """`rest`: what stands behind a number; `part`: that is a half, or 50 percent."""
    if not rest:
        return False
    if any(_begins(rest, phrase) for phrase in table.behind) or _SIGNED.match(rest[0]):
        return True
    if part and rest[0] == table.of and len(rest) > 1 and number_at(rest, 1, language):
        return True  # "half of an hour" is a length of its own
    if table is _EN and _powers(rest, language):
        return True
    between = (*table.between, *_SIGNS)
    return any(_begins(rest, phrase) and _follows(rest, len(phrase.split()), language) for phrase in between)


def _powers(rest: Words, language: Language) -> bool:
    """ "(ten) to the ninth minutes", not "(ten) to the 5 minute timer"."""
    nth = [*rest[2:3], *rest[3:4]]
    if list(rest[:2]) != ["to", "the"] or len(nth) < 2 or nth[1] not in {*language.units, *language.percent, "degrees"}:
        return False
    return (nth[0] in _ORDINALS or _follows(nth, 0, language)) and not _THINGS & set(rest[4:6])


def _follows(words: Words, start: int, language: Language) -> bool:
    return start < len(words) and _amount(words, start, language)[0] > start


def _begins(words: Words, phrase: str) -> bool:
    parts = phrase.split()
    return list(words[: len(parts)]) == parts


def _ends(words: Words, phrase: str) -> bool:
    parts = phrase.split()
    return list(words[-len(parts) :]) == parts
