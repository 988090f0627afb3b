"""Slots of timers: how long, by how much, and which one. Rules for English, durations in any language with a table.

Pure.
"""

from __future__ import annotations

from assistant.nlu.clock import clock_times
from assistant.nlu.durations import Duration, durations
from assistant.nlu.fillers import STOPS
from assistant.nlu.language import Language
from assistant.nlu.numbers import Number, numbers
from assistant.nlu.timer_names import MAX_WORDS, TIMER, timer_name
from assistant.nlu.vocabulary import Slots
from assistant.nlu.words import joined, trimmed, word_set

_HEARD = {("time", "her"): "timer", ("time", "or"): "timer", ("time", "are"): "timer", ("thyme", "er"): "timer",
          ("time", "a"): "timer", ("tie", "mer"): "timer", ("egg", "time"): "egg timer"}  # fmt: skip
_HEARD_ONE = {"timber": "timer", "tymer": "timer", "timmer": "timer", "timeer": "timer", "times": "timer"}
_WHICH = TIMER | {"one", "ones", "clock", "alarm"}
_BEFORE_AMOUNT = word_set("by another plus minus add extra additional lose")
_AFTER_AMOUNT = word_set("more off extra longer less shorter fewer on to from")


def timer_slots(intent: str, words: list[str], language: Language) -> Slots:
    words = _corrected(words)
    spans = durations(words, language)
    if intent == "HassCancelAllTimers":
        return {}
    if intent == "HassStartTimer":
        amount = _length(words, spans) or _bare_minutes(words, language)
        slots = amount.slots() if amount else {}
        name = timer_name(words, spans, new=True)
        return {**slots, **({"name": name} if name else {})}
    changed = intent in ("HassIncreaseTimer", "HassDecreaseTimer")
    # "pause the timer for five minutes" says how long the pause is to be, "cancel the timer for five minutes" does not
    with_for = intent != "HassPauseTimer" and (not changed or len(spans) > 1)
    which = next((span for span in spans if _tells_which(words, span, with_for=with_for)), None)
    slots = {}
    if changed:
        amount, which = _amount(words, spans, which, language)
        less = intent == "HassDecreaseTimer"  # "the pasta timer minus five minutes"
        slots |= (amount.absolute() if less else amount).slots() if amount else {}
    if which is not None:
        slots |= which.slots("start_")
    name = timer_name(words, spans, new=False)
    return {**slots, **({"name": name} if name else {})}


def duration_answer(words: list[str], language: Language) -> Slots | None:
    """Of "five minutes", or of a bare "five": minutes, as people mean it of a timer."""
    spans = durations(words, language)
    if spans:
        return spans[-1].slots()
    found = [number for number in numbers(words, language) if not number.percent]  # "volume to 20 percent"
    return _minutes(found[-1]).slots() if found else None


def timer_answer(words: list[str], language: Language) -> Slots | None:
    """Of "the pasta one", "pasta", "the ten minute timer"."""
    slots = timer_slots("HassPauseTimer", words, language)
    if slots:
        return slots
    name = trimmed([word for word in words if word not in TIMER | {"one"}], STOPS, STOPS)
    return {"name": joined(name)} if 0 < len(name) <= MAX_WORDS else None


def _corrected(words: list[str]) -> list[str]:
    out, index = [], 0
    while index < len(words):
        pair = _HEARD.get((words[index], words[index + 1])) if index + 1 < len(words) else None
        if pair:
            out += pair.split()
        else:
            out.append(_HEARD_ONE.get(words[index], words[index]))
        index += 2 if pair else 1
    return out


def _length(words: list[str], spans: list[Duration]) -> Duration | None:
    """Of several lengths the one that is nearest to the timer."""
    places = [index for index, word in enumerate(words) if word in TIMER]
    if len(spans) < 2 or not places:
        return spans[-1] if spans else None
    return min(spans, key=lambda span: min(min(abs(span.start - at), abs(span.end - at)) for at in places))


def _bare_minutes(words: list[str], language: Language) -> Duration | None:
    """ "set a timer for five": everybody means minutes."""
    free = [one for one in numbers(words, language) if not _is_label(words, one) and not one.percent]
    hours = {index for time in clock_times(words) for index in range(time.start, time.end)}
    free = [
        one for one in free if words[one.start : one.end] != ["one"] and not one.fraction and one.start not in hours
    ]
    return _minutes(free[-1]) if free else None


def _tells_which(words: list[str], span: Duration, *, with_for: bool) -> bool:
    """ "my ten minute timer", "the twenty minute one", "the ten minute pasta timer", "the timer for ten minutes"."""
    after = words[span.end : span.end + 3]
    if span.start and words[span.start - 1] in ("by", "another", "extra"):
        return False
    before = words[max(0, span.start - 2) : span.start]
    if len(before) == 2 and before[0] in TIMER and before[1] in (("of", "with", "for") if with_for else ("of", "with")):
        return True
    for word in after:
        if word in _WHICH:
            return True
        if word in STOPS or word in ("more", "longer", "less", "extra", "shorter"):
            return False
    return False


def _amount(
    words: list[str], spans: list[Duration], which: Duration | None, language: Language
) -> tuple[Duration | None, Duration | None]:
    """By how much, and the length that tells which timer."""
    others = [span for span in spans if span is not which]
    if others:
        return max(others, key=lambda span: (_is_amount(words, span.start, span.end), span.start)), which
    free = [
        number for number in numbers(words, language) if not _inside(number, spans) and not _is_label(words, number)
    ]
    hinted = [number for number in free if _is_amount(words, number.start, number.end)]
    if hinted or free:
        by = [
            number
            for number in hinted
            if number.start and words[number.start - 1] in ("by", "another", "plus", "minus")
        ]
        return _minutes((by or hinted or free)[-1]), which
    if which is not None and which.start and words[which.start - 1] not in ("my", "the", "that"):
        return which, None
    return None, which


def _is_amount(words: list[str], start: int, end: int) -> bool:
    before = words[start - 1] if start else ""
    after = words[end] if end < len(words) else ""
    return before in _BEFORE_AMOUNT or words[start] in ("minus", "plus") or after in _AFTER_AMOUNT


def _is_label(words: list[str], number: Number) -> bool:
    """ "timer number two", "the last one"."""
    before = words[number.start - 1] if number.start else ""
    return number.value > 0 and (before in ("number", "the", "that", "this", "last", "i", "my") or before in TIMER)


def _inside(number: Number, spans: list[Duration]) -> bool:
    return any(span.start <= number.start < span.end for span in spans)


def _minutes(number: Number) -> Duration:
    whole = int(number.value)
    return Duration(number.start, number.end, 0, whole, round((number.value - whole) * 60))
