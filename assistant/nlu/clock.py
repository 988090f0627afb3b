"""Times of day as people say them: "half past seven", "7 30 pm", "noon". Pure; imports `language` and `numbers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assistant.nlu.language import ENGLISH
from assistant.nlu.numbers import number_at

_NAMED = {"noon": (12, 0), "midday": (12, 0), "midnight": (0, 0)}
_BEFORE = frozenset({"to", "till", "before"})
_AFTER = frozenset({"past", "after"})
_OCLOCK = frozenset({"o'clock", "oclock"})
_HALVES = {"am": 0, "a.m": 0, "pm": 12, "p.m": 12}


@dataclass(frozen=True, slots=True)
class ClockTime:
    hour: int
    """0-23; 0-12 as it was said where `sure` is false."""
    minute: int
    start: int
    end: int
    sure: bool
    """Morning or evening was said, or follows from the hour."""


def clock_times(words: Sequence[str]) -> list[ClockTime]:
    """All of a sentence. A lone number is none without "am", "pm", "o'clock" or "at" before it."""
    found, index = [], 0
    while index < len(words):
        time = _at(words, index)
        if time is None:
            index += 1
        else:
            found.append(time)
            index = time.end
    return found


def _at(words: Sequence[str], start: int) -> ClockTime | None:
    if words[start] in _NAMED:
        hour, minute = _NAMED[words[start]]
        return ClockTime(hour, minute, start, start + 1, True)
    if (named := _relative(words, start)) is not None:
        hour, minute, end = named
        return _with_half(words, hour, minute, start, end)
    hour_minute = _hour_and_minute(words, start)
    if hour_minute is None:
        return None
    hour, minute, end, certain = hour_minute
    time = _with_half(words, hour, minute, start, end)
    clear = certain or time.end > end or (start > 0 and words[start - 1] == "at")
    return time if clear else None


def _with_half(words: Sequence[str], hour: int, minute: int, start: int, end: int) -> ClockTime:
    if end < len(words) and words[end] in _OCLOCK:
        end += 1
    half = _HALVES.get(words[end]) if end < len(words) else None
    joined = " ".join(words[end : end + 3])
    if half is None and joined in ("in the morning", "in the afternoon", "in the evening"):
        half, end = (0 if joined.endswith("morning") else 12), end + 3
    elif half is not None:
        end += 1
    elif " ".join(words[end : end + 2]) == "at night":
        half, end = 12 if hour >= 6 and hour != 12 else 0, end + 2
    if half is None or hour > 12:
        return ClockTime(hour, minute, start, end, hour > 12 or hour == 0)
    return ClockTime(hour % 12 + half, minute, start, end, True)


def _relative(words: Sequence[str], start: int) -> tuple[int, int, int] | None:
    """ "half past seven", "a quarter to eight", "ten past five", "twenty five to six"."""
    number = number_at(words, start, ENGLISH)
    if number is None:
        return None
    minutes = round(number.value * 60) if number.fraction else number.value
    at = number.end
    if at < len(words) and words[at] in ("minutes", "minute"):
        at += 1
    if not isinstance(minutes, int) or not 0 < minutes < 60 or at + 1 >= len(words):
        return None
    hour = number_at(words, at + 1, ENGLISH)
    if hour is None or hour.fraction or not isinstance(hour.value, int) or not 1 <= hour.value <= 12:
        return None
    if words[at] in _AFTER:
        return hour.value, minutes, hour.end
    if words[at] in _BEFORE and minutes <= 30:
        return (hour.value - 2) % 12 + 1, 60 - minutes, hour.end
    return None


def _hour_and_minute(words: Sequence[str], start: int) -> tuple[int, int, int, bool] | None:
    """(hour, minute, end, surely a time): "7:30", "seven thirty", "seven oh five", "seven o'clock", "7"."""
    pieces = words[start].replace(".", ":").split(":")
    if len(pieces) == 2 and all(piece.isascii() and piece.isdigit() and len(piece) <= 2 for piece in pieces):
        hour, minute = map(int, pieces)
        return (hour, minute, start + 1, ":" in words[start]) if hour < 24 and minute < 60 else None
    number = number_at(words, start, ENGLISH)
    if number is None or number.fraction or number.percent or not isinstance(number.value, int):
        return None
    if 100 < number.value < 2400 and "oh" in words[start : number.end] and number.value % 100 < 60:
        return number.value // 100, number.value % 100, number.end, False
    if not 0 <= number.value < 24:
        return None
    end = number.end
    if end < len(words) and words[end] in _OCLOCK:
        return number.value, 0, end + 1, True
    following = number_at(words, end, ENGLISH) if end < len(words) else None
    if following and isinstance(following.value, int) and 10 <= following.value < 60 and not following.percent:
        return number.value, following.value, following.end, False
    return number.value, 0, end, False
