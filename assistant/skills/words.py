"""How numbers of seconds and lists of things are said, and what slots hold. Pure; imports nothing of ours."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_SPACES = re.compile(r"\s+")


def duration(seconds: float) -> str:
    """ "1 hour, 2 minutes and 5 seconds"; fractions are rounded."""
    left, parts = max(0, round(seconds)), []
    for size, unit in _UNITS[1:]:
        count, left = divmod(left, size)
        if count:
            parts.append(counted(count, unit))
    return listed(parts) or "0 seconds"


def rough(seconds: float) -> str:
    """As people say what is left: seconds only near the end; never less than there is."""
    step = 1 if seconds < 600 else 60
    return duration(math.ceil(max(0.0, seconds) / step) * step)


def ago(seconds: float) -> str:
    """The largest unit alone: "12 minutes ago"."""
    size, unit = next((pair for pair in _UNITS if seconds >= pair[0]), _UNITS[-1])
    return f"{counted(max(1, round(seconds / size)), unit)} ago"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listed(parts: Sequence[str], last: str = "and") -> str:
    """ "a, b and c"."""
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}" if len(parts) > 1 else "".join(parts)


def number(slots: Mapping[str, object], name: str) -> float | None:
    """The value of a slot; None when it is not there or is no number."""
    value = slots.get(name)
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def seconds_of(slots: Mapping[str, object], prefix: str = "") -> float | None:
    """Of hours, minutes and seconds; None when none of them was said."""
    found = [(number(slots, f"{prefix}{unit}s"), size) for size, unit in _UNITS[1:]]
    said = [value * size for value, size in found if value is not None]
    return sum(said) if said else None


def text(slots: Mapping[str, object], name: str, longest: int = 60) -> str:
    """The words of a slot on one line, without control characters; "" when it is not there."""
    value = slots.get(name)
    plain = "".join(char if char.isprintable() else " " for char in value) if isinstance(value, str) else ""
    return _SPACES.sub(" ", plain).strip()[:longest].strip()


def folded(name: str) -> str:
    """What names are compared by: letters and digits alone, without "the", "my" and a plural s."""
    words = re.sub(r"[^\w ]+", "", name.casefold().replace("-", " ")).split()
    kept = [word for word in words if word not in ("the", "my", "our", "a", "an", "some", "timer", "timers")]
    return " ".join(word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
                    for word in kept)  # fmt: skip


def of_name(things: Iterable[T], wanted: str, name: Callable[[T], str]) -> list[T]:
    """Those whose name is the same words, else those with some of these words alone, or with all of them and more."""
    wanted, same, partly = folded(wanted), [], []
    said = set(wanted.split())
    for one in things:
        called = folded(name(one))
        has = set(called.split())
        if called == wanted:
            same.append(one)
        elif said and has and (said <= has or has <= said):
            partly.append(one)
    return same or partly
