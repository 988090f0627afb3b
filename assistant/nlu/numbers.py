"""Numbers in words or digits, with the place where they stand. Pure; imports `language` alone.

A number stays what was said, however large or negative: the skill says what it thinks of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from assistant.nlu.language import ENGLISH, Language

Words = Sequence[str]
_DIGITS = re.compile(r"([-+−–]?)(\d{1,3}(?:,\d{3})+(?:\.\d{1,9})?|\d{1,15}(?:[.,]\d{1,9})?)", re.ASCII)
_RATIO = re.compile(r"(\d{1,4})/([1-9]\d{0,3})", re.ASCII)
_SIGNS = {"½": 1 / 2, "¼": 1 / 4, "¾": 3 / 4, "⅓": 1 / 3, "⅔": 2 / 3}


@dataclass(frozen=True, slots=True)
class Number:
    value: int | float
    start: int
    end: int
    """Of its words, the first and the one behind the last; a percent sign is in it."""
    percent: bool = False
    fraction: bool = False
    """Said as a part: "half", "three quarters"."""


def numbers(words: Words, language: Language = ENGLISH) -> list[Number]:
    """All of a sentence, from left to right, the longest at each place."""
    found, index = [], 0
    while index < len(words):
        number = number_at(words, index, language)
        if number is None:
            index += 1
        else:
            found.append(number)
            index = number.end
    return found


def number_at(words: Words, start: int, language: Language = ENGLISH) -> Number | None:
    """The longest that begins there."""
    index, sign = start, 1
    if index + 1 < len(words) and (words[index] in language.minus or words[index] in ("-", "−")):
        index, sign = index + 1, -1
    found = _fraction(words, index, language)
    part = found is not None
    found = found or _count(words, index, language) or _mixed(words, index, language)
    if found is None:
        return None
    value, end = found
    percent = end < len(words) and words[end] in language.percent
    if not percent and tuple(words[end : end + 2]) == ("per", "cent"):
        percent, end = True, end + 1
    return Number(plain(sign * value), start, end + percent, percent, part)


def plain(value: float) -> int | float:
    """A whole number as int; a broken one without noise of arithmetic."""
    return int(value) if float(value).is_integer() else round(float(value), 6)


def _fraction(words: Words, index: int, language: Language) -> tuple[float, int] | None:
    """ "half", "a quarter", "three quarters", "two thirds", "1/2", "½"."""
    word = words[index] if index < len(words) else ""
    if word in _SIGNS:
        return _SIGNS[word], index + 1
    if ratio := _RATIO.fullmatch(word):
        return int(ratio[1]) / int(ratio[2]), index + 1
    if (
        word in language.a
        and index + 1 < len(words)
        and (words[index + 1] in _SIGNS or _RATIO.fullmatch(words[index + 1]))
    ):
        return _fraction(words, index + 1, language)
    times, next_index = 1, index
    if word in language.a or 1 <= language.small.get(word, 0) <= 9:
        times, next_index = language.small.get(word, 1), index + 1
    part = language.fractions.get(words[next_index]) if next_index < len(words) else None
    if part is None:
        return None
    if next_index + 2 < len(words) and words[next_index + 1] in language.a and words[next_index + 2] in language.counts:
        return part * language.counts[words[next_index + 2]], next_index + 3  # half a dozen
    return times * part, next_index + 1


def _count(words: Words, index: int, language: Language) -> tuple[float, int] | None:
    """ "a dozen", "two dozen", "a couple of"."""
    times, after = 1, index
    if words[index] in language.a or words[index] in language.small:
        times, after = language.small.get(words[index], 1), index + 1
    if after >= len(words) or words[after] not in language.counts:
        return None
    end = after + 1
    return times * language.counts[words[after]], end + (end < len(words) and words[end] in language.of)


def _mixed(words: Words, index: int, language: Language) -> tuple[float, int] | None:
    """A whole number, with what is said behind it: "point five", "and a half"."""
    if index < len(words) and words[index] in language.point:
        return _decimals(words, 0, index, language)
    whole = _whole(words, index, language)
    if whole is None:
        return None
    value, end = whole
    if end < len(words) and words[end] in language.point:
        return _decimals(words, value, end, language) or whole
    if end < len(words) and words[end] in _SIGNS:
        return value + _SIGNS[words[end]], end + 1
    if end + 1 < len(words) and words[end] in language.join:
        part = _fraction(words, end + 1, language)
        if part is not None:
            return value + part[0], part[1]
    return whole


def _decimals(words: Words, value: float, point: int, language: Language) -> tuple[float, int] | None:
    digits, index = "", point + 1
    while index < len(words) and len(digits) < 9:
        word = words[index]
        small = 0 if word in language.zero_digit else language.small.get(word)
        if word.isascii() and word.isdigit():
            digits += word
        elif small is not None and (small < 10 or not digits):
            digits += str(small)  # "point twenty five" is 0.25: the ten's own zero is overwritten below
        else:
            break
        index += 1
        if len(digits) == 2 and digits[1] == "0" and small and small >= 20 and index < len(words):
            one = language.small.get(words[index], 0)
            if 1 <= one <= 9:
                digits, index = digits[0] + str(one), index + 1
            break
    return (value + int(digits) / 10 ** len(digits), index) if digits else None


def _whole(words: Words, index: int, language: Language) -> tuple[float, int] | None:
    first = _below_thousand(words, index, language)
    if first is None:
        return None
    total, (value, end), bound = 0.0, first, float("inf")
    while True:
        power = language.powers.get(words[end]) if end < len(words) else None
        if power is None or power >= bound:
            return total + value, end
        total, bound, end = total + value * power, power, end + 1
        following = end + (end + 1 < len(words) and words[end] in language.join)
        more = _below_thousand(words, following, language)
        # "two thousand and a half" and "one thousand 5000" are not one number
        if more is None or more[0] >= bound or words[following] in language.a:
            return total, end
        value, end = more


def _below_thousand(words: Words, index: int, language: Language) -> tuple[float, int] | None:
    """Up to 9900: "twenty seven hundred" is said of kelvins."""
    found = _below_hundred(words, index, language)
    if found is None:
        counted = language.hundred | language.powers.keys()
        if index + 1 < len(words) and words[index] in language.a and words[index + 1] in counted:
            found = (1, index + 1)
        else:
            return None
    value, end = found
    if end >= len(words) or words[end] not in language.hundred:
        return found
    value, end = value * 100, end + 1
    following = end + (end + 1 < len(words) and words[end] in language.join)
    more = _below_hundred(words, following, language)
    return (value + more[0], more[1]) if more and more[0] < 100 else (value, end)


def _below_hundred(words: Words, index: int, language: Language) -> tuple[float, int] | None:
    """Words up to 99, any digits, or "one oh five"."""
    if index >= len(words):
        return None
    if digits := _DIGITS.fullmatch(words[index]):
        text = digits[2].replace(",", "" if re.search(r",\d{3}(?!\d)", digits[2]) else ".")
        value = float(text) if "." in text else int(text)
        return (-value if digits[1] in ("-", "−", "–") else value), index + 1
    tens = language.small.get(words[index])
    if tens is None:
        return None
    end, value = index + 1, tens
    one = language.small.get(words[end], 0) if end < len(words) else 0
    if tens >= 20 and tens % 10 == 0 and 1 <= one <= 9:
        end, value = end + 1, tens + one
    if value and end + 1 < len(words) and words[end] in language.zero_digit:
        last = language.small.get(words[end + 1], 0)
        if 1 <= last <= 9:
            return value * 100 + last, end + 2
    return value, end
