"""What differs between languages in numbers and durations, as tables. Another language is another table.

Pure; imports `words` and `language_code`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from assistant.language_code import base_of
from assistant.nlu.words import word_list, word_set

HOUR, MINUTE, SECOND = 3600, 60, 1
DAY, WEEK = 24 * HOUR, 7 * 24 * HOUR


@dataclass(frozen=True, slots=True)
class Language:
    """The words of one language; all lower case, without accents lost."""

    small: Mapping[str, int]
    """0 to 999, as far as one word says it ("twenty", "dreiundzwanzig", "zweihundertfünf")."""
    hundred: frozenset[str] = frozenset()
    powers: Mapping[str, int] = field(default_factory=dict)
    """thousand, million, billion: what stands before them multiplies."""
    a: frozenset[str] = frozenset()
    """Says "one" before a unit or a power only."""
    join: frozenset[str] = frozenset()
    minus: frozenset[str] = frozenset()
    point: frozenset[str] = frozenset()
    zero_digit: frozenset[str] = frozenset()
    """Inside of a spelled number: "one oh five"."""
    fractions: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    """a dozen, a couple: numbers that behave like nouns."""
    of: frozenset[str] = frozenset()
    more: frozenset[str] = frozenset()
    """Stands between a number and its unit: "five more minutes"."""
    units: Mapping[str, int] = field(default_factory=dict)
    """Of time, in seconds."""
    percent: frozenset[str] = frozenset({"%"})
    misheard: Mapping[str, int] = field(default_factory=dict)
    """What a recogniser writes for a number before a unit of time: "for minutes"."""


_ONES = word_list("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
                  " sixteen seventeen eighteen nineteen")  # fmt: skip
_TENS = word_list("twenty thirty forty fifty sixty seventy eighty ninety")

ENGLISH = Language(
    small={
        **{word: value for value, word in enumerate(_ONES)},
        **{word: 10 * value for value, word in enumerate(_TENS, 2)},
        "fourty": 40,
        "nought": 0,
        "fiveteen": 15,
    },
    hundred=frozenset({"hundred"}),
    powers={"thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12},
    a=frozenset({"a", "an"}),
    join=frozenset({"and", "n"}),
    minus=frozenset({"minus", "negative"}),
    point=frozenset({"point", "dot"}),
    zero_digit=frozenset({"oh", "o"}),
    fractions={"half": 1 / 2, "halves": 1 / 2, "quarter": 1 / 4, "quarters": 1 / 4, "third": 1 / 3, "thirds": 1 / 3},
    counts={"dozen": 12, "couple": 2},
    of=frozenset({"of"}),
    more=word_set("more extra additional further full whole little short entire other wee fewer less quick solid"),
    units={
        **dict.fromkeys(("hour", "hours", "hr", "hrs", "h", "our", "ours", "hour's"), HOUR),
        **dict.fromkeys(word_list("minute minutes min mins m minute's minuet minuets minit minits minnits"), MINUTE),
        **dict.fromkeys(("second", "seconds", "sec", "secs", "s"), SECOND),
        **dict.fromkeys(("day", "days"), DAY),
        **dict.fromkeys(("week", "weeks"), WEEK),
    },
    percent=frozenset({"%", "percent", "percents", "pct"}),
    misheard={"to": 2, "too": 2, "for": 4, "fore": 4, "ate": 8, "won": 1, "tree": 3, "sex": 6, "tin": 10, "sicks": 6},
)  # fmt: skip

_EINS = word_list("null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn"
                  " sechzehn siebzehn achtzehn neunzehn")  # fmt: skip
_ZEHNER = word_list("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")


def _german() -> dict[str, int]:
    """0 to 999; what is written in one word cannot be read as several."""
    below = {word: value for value, word in enumerate(_EINS)} | {"zwo": 2}
    for tens, ten in enumerate(_ZEHNER, 2):
        below[ten] = 10 * tens
        below |= {f"{one.replace('eins', 'ein')}und{ten}": 10 * tens + ones for ones, one in enumerate(_EINS[1:10], 1)}
    below |= {word.replace("ß", "ss"): value for word, value in below.items()}
    words = dict(below)
    for hundreds, hundred in enumerate(("hundert", *(f"{one}hundert" for one in ("ein", *_EINS[2:10])))):
        whole = 100 * max(1, hundreds)
        words |= {hundred: whole} | {f"{hundred}{word}": whole + value for word, value in below.items() if value}
    return words


GERMAN = Language(
    small=_german(),
    hundred=frozenset({"hundert"}),
    powers={"tausend": 1000, "million": 10**6, "millionen": 10**6, "milliarde": 10**9, "milliarden": 10**9},
    a=frozenset({"ein", "eine", "einen", "einer", "einem"}),
    join=frozenset({"und"}),
    minus=frozenset({"minus"}),
    point=frozenset({"komma"}),
    fractions={"halbe": 1 / 2, "halben": 1 / 2, "viertel": 1 / 4},
    more=frozenset({"weitere", "mehr"}),
    units={
        **dict.fromkeys(("stunde", "stunden", "std"), HOUR),
        **dict.fromkeys(("minute", "minuten", "min"), MINUTE),
        **dict.fromkeys(("sekunde", "sekunden", "sek"), SECOND),
        **dict.fromkeys(("tag", "tage", "tagen"), DAY),
        "viertelstunde": HOUR // 4,
    },
    percent=frozenset({"%", "prozent"}),
)

_DIGITS_ALONE = Language(small={}, units={"h": HOUR, "min": MINUTE, "s": SECOND})
_LANGUAGES = {"en": ENGLISH, "de": GERMAN}


def language_of(code: str) -> Language:
    """Of "de-AT", German; of a language without a table, one that reads digits alone."""
    return _LANGUAGES.get(base_of(code), _DIGITS_ALONE)
