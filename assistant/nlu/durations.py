"""Lengths of time as people say them: "an hour and a half", "2 min 30". Pure; imports `language`,
`numbers`, `vocabulary` and `words`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assistant.nlu.language import DAY, ENGLISH, HOUR, MINUTE, SECOND, WEEK, Language
from assistant.nlu.numbers import Number, number_at, plain
from assistant.nlu.vocabulary import Slots
from assistant.nlu.words import word_set

Words = Sequence[str]

_GOES_ON = word_set(
    "please timer timers for on to from off more longer left thanks thank mate dear love now go called named in and"
    " countdown one shorter less extra starting so with name before until"
)
"""After a bare number ("an hour ten"): it is no count of something else."""
_ORDINAL = frozenset({"timer", "timers", "one", "countdown", "alarm"})
_SHORTER = {WEEK: DAY, DAY: HOUR, HOUR: MINUTE, MINUTE: SECOND}
_ANOTHER = frozenset({"another"})


@dataclass(frozen=True, slots=True)
class Duration:
    """As it was said: 90 seconds are 90 seconds. A broken number goes on in the next smaller unit."""

    start: int
    end: int
    hours: int = 0
    minutes: int = 0
    seconds: int = 0

    def slots(self, prefix: str = "") -> Slots:
        """hours, minutes, seconds, those that are not 0; of no time at all, minutes 0."""
        parts = {"hours": self.hours, "minutes": self.minutes, "seconds": self.seconds}
        said: Slots = {prefix + unit: value for unit, value in parts.items() if value}
        return said or {prefix + "minutes": 0}

    def absolute(self) -> Duration:
        return Duration(self.start, self.end, abs(self.hours), abs(self.minutes), abs(self.seconds))


def durations(words: Words, language: Language = ENGLISH) -> list[Duration]:
    """All of a sentence, from left to right."""
    found, index = [], 0
    while index < len(words):
        duration = duration_at(words, index, language)
        if duration is None:
            number = number_at(words, index, language)
            # "twenty five things" is not searched again from "five"
            index = number.end if number and not _misheard(words, number.end - 1, language) else index + 1
        else:
            found.append(duration)
            index = duration.end
    return found


def duration_at(words: Words, start: int, language: Language = ENGLISH) -> Duration | None:
    if ":" in words[start]:
        return _colons(words[start], start)
    first = _part(words, start, language)
    if first is None:
        return None
    amount, unit, end = first
    parts = {unit: amount}
    while unit in _SHORTER:
        after = end + (end < len(words) and words[end] in language.join)
        more = _part(words, after, language) if after < len(words) else None
        if (
            more is not None
            and more[1] < unit
            and words[after] not in _ANOTHER
            and not _misheard(words, after, language)
        ):
            amount, unit, end = more
            parts[unit] = amount
            continue
        half = _share(words, end, after, unit, language) or _bare(words, after, unit, language)
        if half is None:
            break
        share, share_unit, end = half
        parts[share_unit] = parts.get(share_unit, 0) + share
        unit = SECOND  # nothing goes on after that
    return _duration(start, end, parts)


def _colons(word: str, start: int) -> Duration | None:
    """1:30:00, or 1:30 (minutes and seconds)."""
    pieces = word.split(":")
    if not 2 <= len(pieces) <= 3 or not all(piece.isascii() and piece.isdigit() and len(piece) < 4 for piece in pieces):
        return None
    *hours, minutes, seconds = map(int, pieces)
    return Duration(start, start + 1, hours[0] if hours else 0, minutes, seconds)


def _misheard(words: Words, index: int, language: Language) -> bool:
    return words[index] in language.misheard and index + 1 < len(words) and words[index + 1] in language.units


def _part(words: Words, start: int, language: Language) -> tuple[float, int, int] | None:
    """One number with its unit: (amount, unit in seconds, end)."""
    number: Number | None = number_at(words, start, language)
    if number is not None and not number.percent:
        unit, end = _unit(words, number.end, language, number.fraction or number.value in (12, 2))
        return (number.value, unit, end) if unit else None
    if words[start] in language.a or words[start] in _ANOTHER:
        unit, end = _unit(words, start + 1, language, False)
        if not unit or (unit in (SECOND, DAY) and end < len(words) and words[end] in _ORDINAL):
            return None  # "a second timer" is not one of a second
        return 1, unit, end
    if _misheard(words, start, language) and words[start + 1] not in ("second", "day", "our", "m", "s", "h"):
        return language.misheard[words[start]], language.units[words[start + 1]], start + 2
    unit = language.units.get(words[start], 0)
    # "hour and a half": the article was swallowed
    if unit in (HOUR, MINUTE) and len(words[start]) > 1 and _share(words, start + 1, start + 2, unit, language):
        return 1, unit, start + 1
    return None


def _unit(words: Words, index: int, language: Language, part: bool) -> tuple[int, int]:
    """(0, index) without a unit. After a part "of an" may stand before it: "quarter of an hour"."""
    skipped = language.more | (language.of | language.a if part else frozenset())
    for _ in range(3):
        if index < len(words) and words[index] in skipped:
            index += 1
    if index >= len(words) or words[index] not in language.units:
        return 0, index
    return language.units[words[index]], index + 1


def _share(words: Words, end: int, after: int, unit: int, language: Language) -> tuple[float, int, int] | None:
    """ "... and a half" behind a unit."""
    if after != end + 1 or after >= len(words) or end >= len(words) or words[end] not in language.join:
        return None
    number = number_at(words, after, language)
    if number is None or not number.fraction or _unit(words, number.end, language, True)[0]:
        return None
    return number.value, unit, number.end


def _bare(words: Words, after: int, unit: int, language: Language) -> tuple[float, int, int] | None:
    """ "an hour ten", "10 minutes and 30"."""
    number = number_at(words, after, language) if after < len(words) else None
    if number is None or number.percent or number.fraction or not 1 <= number.value < 60 or unit not in (HOUR, MINUTE):
        return None
    if words[after] == "one":
        return None  # "the twenty minute one"
    if number.end < len(words) and words[number.end] not in _GOES_ON:
        return None
    return number.value, _SHORTER[unit], number.end


def _duration(start: int, end: int, parts: dict[int, float]) -> Duration:
    hours = parts.get(WEEK, 0) * 168 + parts.get(DAY, 0) * 24 + parts.get(HOUR, 0)
    hours, minutes = _split(hours)
    minutes, seconds = _split(minutes + parts.get(MINUTE, 0))
    return Duration(start, end, hours, minutes, round(seconds + parts.get(SECOND, 0)))


def _split(value: float) -> tuple[int, float]:
    """Whole units, and the rest in the next smaller one: 2.5 -> 2, 30."""
    whole = int(value)
    return whole, plain(round((value - whole) * 60, 3))
