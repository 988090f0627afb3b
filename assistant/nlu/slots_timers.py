"""Slots of timers: how long, by how much, and which one. Rules for English, durations in any language with a table.

Pure; imports words, numbers, durations.
"""

from __future__ import annotations

from assistant.nlu.durations import Duration, Slots, durations
from assistant.nlu.fillers import ARTICLES, CLAUSES, FILLERS, STOPS
from assistant.nlu.language import Language
from assistant.nlu.numbers import Number, numbers
from assistant.nlu.words import joined, trimmed, word_set

_TIMER = frozenset({"timer", "timers", "timer's", "countdown", "countdowns"})
_HEARD = {("time", "her"): "timer", ("time", "or"): "timer", ("time", "are"): "timer", ("thyme", "er"): "timer",
          ("time", "a"): "timer", ("tie", "mer"): "timer", ("egg", "time"): "egg timer"}  # fmt: skip
_HEARD_ONE = {"timber": "timer", "tymer": "timer", "timmer": "timer", "timeer": "timer", "times": "timer"}
_NAMED = word_set("called named labelled labeled titled label name")
_WHICH = _TIMER | {"one", "ones", "clock", "alarm"}
_NOT_NAMES = word_set(
    "timer timers countdown clock one ones two new another second other last current existing same whole long short little"
    " more extra time it them that this me us you everything all many much longer minutes minute hours hour seconds"
    " number running paused half and wee single good rest phone moment bit sec while mark name called named setting"
    " quarter which going set still cooking lost counting status update remaining final thing"
)
_ORDINALS = {"first": "first", "second": "second", "third": "third", "fourth": "fourth", "one": "first", "two": "second",
             "three": "third", "four": "fourth", "1": "first", "2": "second", "3": "third"}  # fmt: skip
_BEFORE_AMOUNT = word_set("by another plus minus add extra additional lose")
_AFTER_AMOUNT = word_set("more off extra longer less shorter fewer on to from")
_LINKS = word_set("on off from to for of with onto about in before until till")
_STATES = word_set(
    "need needs has have want wants could should is are will be still came looks look can got goes and wasnt isnt"
)
_ENDS = (CLAUSES | _TIMER | _NAMED) - {"with"}
_ROOM_FOR_NAME = 4


def timer_slots(intent: str, words: list[str], language: Language) -> Slots:
    words = _corrected(words)
    spans = durations(words, language)
    if intent == "HassCancelAllTimers":
        return {}
    if intent == "HassStartTimer":
        amount = _length(words, spans)
        slots = amount.slots() if amount else {}
        name = _name(words, spans, new=True)
        return {**slots, **({"name": name} if name else {})}
    which = next((span for span in spans if _tells_which(words, span)), None)
    slots = {}
    if intent in ("HassIncreaseTimer", "HassDecreaseTimer"):
        amount, which = _amount(words, spans, which, language)
        slots |= amount.absolute().slots() if amount else {}
    if which is not None:
        slots |= which.slots("start_")
    name = _name(words, spans, new=False)
    return {**slots, **({"name": name} if name else {})}


def duration_answer(words: list[str], language: Language) -> Slots | None:
    """Of "five minutes", or of a bare "five": minutes, as people mean it of a timer."""
    spans = durations(words, language)
    if spans:
        return spans[-1].slots()
    found = numbers(words, language)
    return _minutes(found[-1]).slots() if found else None


def timer_answer(words: list[str], language: Language) -> Slots | None:
    """Of "the pasta one", "pasta", "the ten minute timer"."""
    slots = timer_slots("HassPauseTimer", words, language)
    if slots:
        return slots
    name = trimmed([word for word in words if word not in _TIMER | {"one"}], STOPS, STOPS)
    return {"name": joined(name)} if 0 < len(name) <= _ROOM_FOR_NAME else None


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
    places = [index for index, word in enumerate(words) if word in _TIMER]
    if len(spans) < 2 or not places:
        return spans[-1] if spans else None
    return min(spans, key=lambda span: min(min(abs(span.start - at), abs(span.end - at)) for at in places))


def _tells_which(words: list[str], span: Duration) -> bool:
    """ "my ten minute timer", "the twenty minute one", "the ten minute pasta timer", "the timer for ten minutes"."""
    after = words[span.end : span.end + 3]
    if span.start and words[span.start - 1] in ("by", "another", "extra"):
        return False
    before = words[max(0, span.start - 2) : span.start]
    if len(before) == 2 and before[0] in _TIMER and before[1] in ("for", "of", "with"):
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
    return before in _BEFORE_AMOUNT or after in _AFTER_AMOUNT


def _is_label(words: list[str], number: Number) -> bool:
    """ "timer number two", "the last one"."""
    before = words[number.start - 1] if number.start else ""
    return before in ("number", "the", "that", "this", "last", "i") or before in _TIMER


def _inside(number: Number, spans: list[Duration]) -> bool:
    return any(span.start <= number.start < span.end for span in spans)


def _minutes(number: Number) -> Duration:
    whole = int(number.value)
    return Duration(number.start, number.end, 0, whole, round((number.value - whole) * 60))


def _name(words: list[str], spans: list[Duration], *, new: bool) -> str:
    """The timer's name as it was said, "" without one."""
    taken = {index for span in spans for index in range(span.start, span.end)}
    for index, word in enumerate(words[:-1]):
        told = word in _NAMED and (index == 0 or words[index - 1] not in ("the", "its"))
        if told or words[index : index + 2] == ["call", "it"]:
            start = index + (2 if words[index + 1] in ("it", "as") else 1)
            if name := _run(words, start, taken, _TIMER | CLAUSES):
                return name
    places = [index for index, word in enumerate(words) if word in _TIMER or (word == "one" and not new)]
    for at in places:
        if name := _before(words, at, taken, new):
            return name
    for at in places:
        if at + 1 < len(words) and words[at + 1] in ("for", "of", "on", "in", "to") and words[at] != "one":
            if name := _run(words, at + 2, taken, _ENDS):
                return name
        if not new and words[at + 1 : at + 2] and words[at] != "one":
            number = words[at + 2 : at + 3] if words[at + 1] == "number" else words[at + 1 : at + 2]
            if number and number[0] in _ORDINALS and at + 1 not in taken:
                return _ORDINALS[number[0]]
    return _new_name(words, spans, taken) if new else _thing(words, taken)


def _before(words: list[str], at: int, taken: set[int], new: bool) -> str:
    """What stands before "timer": "the slow cooker timer"."""
    start = at
    while start > 0 and start > at - 3 and start - 1 not in taken and words[start - 1] not in STOPS | _NOT_NAMES:
        start -= 1
    if start < at:
        return joined(words[start:at])
    if not new and words[at] != "one" and at and at - 1 not in taken and words[at - 1] in ("first", "second", "third"):
        return words[at - 1]
    return ""


def _run(words: list[str], start: int, taken: set[int], stops: frozenset[str]) -> str:
    """The words from there on, up to a clause, a length, or too many of them."""
    while start < len(words) and words[start] in ARTICLES:
        start += 1
    end = start
    while end < len(words) and end < start + _ROOM_FOR_NAME and end not in taken and words[end] not in stops:
        if words[end] in ("for", "please", "at", "starting", "in", "from", "by", "now", "to") and end > start:
            break
        end += 1
    name = trimmed(words[start:end], ARTICLES | FILLERS, FILLERS | ARTICLES)
    return "" if not name or name[0] in STOPS | _NOT_NAMES else joined(name)


def _new_name(words: list[str], spans: list[Duration], taken: set[int]) -> str:
    """ "ten minutes for the eggs", "forty seconds plank"."""
    for index, word in enumerate(words[:-1]):
        if word in ("for", "my", "the") and index not in taken and index + 1 not in taken:
            if word != "for" and not (index and (index - 1 in taken)):
                continue
            if name := _run(words, index + 1, taken, _ENDS):
                return name
    for span in spans:
        rest = trimmed(words[span.end :], FILLERS | ARTICLES, FILLERS)
        rest = trimmed(rest, _TIMER | FILLERS, FILLERS)
        if 0 < len(rest) <= 2 and not any(word in STOPS | _NOT_NAMES for word in rest):
            return joined(rest)
    return ""


def _thing(words: list[str], taken: set[int]) -> str:
    """What a timer that is not called one is for: "take ten minutes off the roast", "the pasta needs longer"."""
    own = any(words[at] in ("its", "their") and words[at + 1] in _TIMER for at in range(len(words) - 1))
    plain_timer = any(word in _TIMER for word in words) and not own
    for index, word in enumerate(words[:-1]):
        if word in _LINKS and words[index + 1] in ("the", "my", "that") and not plain_timer:
            if name := _run(words, index + 2, taken, _ENDS):
                return name
    if plain_timer:
        return ""
    for index, word in enumerate(words[:-2]):
        if word not in ("the", "my") or index + 1 in taken or words[index + 1] in STOPS | _NOT_NAMES:
            continue
        end = index + 2
        if end < len(words) and words[end] not in STOPS and end not in taken:
            end += 1
        last = end >= len(words) or words[end] in STOPS or end in taken
        if last and (end >= len(words) or words[end] in _STATES | FILLERS or end in taken):
            return joined(words[index + 1 : end])
    for index, word in enumerate(words[:-1]):
        if word == "for" and not plain_timer and index + 1 not in taken:
            if name := _run(words, index + 1, taken, _ENDS):
                return name
    return ""
