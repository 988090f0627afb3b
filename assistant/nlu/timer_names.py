"""The name of a timer in a sentence: what it is called, or what it is for. Rules for English. Pure."""

from __future__ import annotations

from assistant.nlu.durations import Duration
from assistant.nlu.fillers import ARTICLES, CLAUSES, FILLERS, STOPS
from assistant.nlu.language import ENGLISH
from assistant.nlu.words import joined, trimmed, word_set

TIMER = frozenset({"timer", "timers", "timer's", "countdown", "countdowns"})
_NAMED = word_set("called named labelled labeled titled label name")
_NOT_NAMES = word_set(
    "timer timers countdown clock one ones two new another second other last current existing same whole long short"
    " little"
    " more extra time it them that this me us you everything all many much longer minutes minute hours hour seconds"
    " number running paused half and wee single good rest phone moment bit sec while mark name called named setting"
    " quarter which going set still cooking lost counting status update remaining final thing no not none middle"
    " fresh beeping ringing"
)
_ORDINALS = {
    **{word: word for word in ("first", "second", "third", "fourth")},
    **dict(zip(("one", "two", "three", "four"), ("first", "second", "third", "fourth"), strict=True)),
    **dict(zip("1234", ("first", "second", "third", "fourth"), strict=True)),
}
_LINKS = word_set("on off from to for of with onto about in before until till")
_STATES = word_set(
    "need needs has have want wants could should is are will be still came looks look can got goes and wasnt isnt"
    " took takes went by short done doing ready finished over"
)
_ENDS = (CLAUSES | TIMER | _NAMED) - {"with", "and"}
_RUN_ENDS = word_set(
    "for please at starting in from by now to set start set run ring go anymore still again off on yet keeps"
    " please add about around"
)
MAX_WORDS = 4


def timer_name(words: list[str], spans: list[Duration], *, new: bool) -> str:
    """The timer's name as it was said, "" without one."""
    taken = {index for span in spans for index in range(span.start, span.end)}
    for index, word in enumerate(words[:-1]):
        told = word in _NAMED and (index == 0 or words[index - 1] not in ("the", "its"))
        if told or words[index : index + 2] == ["call", "it"]:
            start = index + (2 if words[index + 1] in ("it", "as") else 1)
            if name := _run(words, start, taken, TIMER | CLAUSES, said=True):
                return name
    places = [index for index, word in enumerate(words) if word in TIMER or (word == "one" and not new)]
    for at in places:
        if name := _before(words, at, taken, new):
            return name
    for at in places:
        led = words[at + 1 : at + 2] and words[at + 1] in ("for", "of", "on", "in", "to") and words[at] != "one"
        if led and (name := _run(words, at + 2, taken, _ENDS)):
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


def _run(words: list[str], start: int, taken: set[int], stops: frozenset[str], *, said: bool = False) -> str:
    """The words from there on, up to a clause, a length, or too many of them; of a name that is `said` to be one,
    whatever it is."""
    while start < len(words) and words[start] in ARTICLES:
        start += 1
    end = start
    while end < len(words) and end < start + MAX_WORDS and end not in taken and words[end] not in stops:
        if words[end] in _RUN_ENDS and end > start:
            break
        end += 1
    if "and" in words[start:end] and (end - start < 3 or words[end - 1] in STOPS or words[end - 2] in STOPS - {"and"}):
        end = words.index("and", start)
    name = trimmed(words[start:end], ARTICLES | FILLERS, FILLERS | ARTICLES | {"and"})
    number = bool(name) and (name[0] in ENGLISH.small or name[0].isdigit())
    if said and name and not number:
        return joined(name)
    return "" if not name or number or name[0] in STOPS | _NOT_NAMES else joined(name)


def _new_name(words: list[str], spans: list[Duration], taken: set[int]) -> str:
    """ "ten minutes for the eggs", "forty seconds plank"."""
    for index, word in enumerate(words[:-1]):
        if word in ("for", "my", "the") and index not in taken and index + 1 not in taken:
            if word != "for" and not (index and (index - 1 in taken)):
                continue
            if name := _run(words, index + 1, taken, _ENDS):
                return name
    for index, word in enumerate(words[:-2]):
        needs = word in ("the", "my") and words[index + 2] in ("need", "needs", "want", "wants", "takes", "take")
        timed = words[max(0, index - 1) : index] == ["time"] and word in ("the", "my", "these")
        if (needs or timed) and (name := _run(words, index + 1, taken, _ENDS)):
            return name
    for span in spans:
        at = span.start - 1
        while at > 0 and words[at] not in ARTICLES and span.start - at < 4:
            at -= 1
        thing = words[at + 1 : span.start - 1] if words[span.start - 1 : span.start] == ["for"] and at >= 0 else []
        known = not any(word in STOPS | _NOT_NAMES for word in thing)
        if 0 < len(thing) <= 2 and known and words[at] in ("the", "my", "these", "some"):
            return joined(thing)
    for span in spans:
        first = trimmed(words[: span.start], FILLERS | ARTICLES, FILLERS)
        if 0 < len(first) <= 2 and not any(word in STOPS | _NOT_NAMES for word in first):
            return joined(first)
        rest = trimmed(words[span.end :], FILLERS | ARTICLES, FILLERS)
        rest = trimmed(rest, TIMER | FILLERS, FILLERS)
        if 0 < len(rest) <= 2 and not any(word in STOPS | _NOT_NAMES for word in rest):
            return joined(rest)
    return ""


def _thing(words: list[str], taken: set[int]) -> str:
    """What a timer that is not called one is for: "take ten minutes off the roast", "the pasta needs longer"."""
    for at in range(len(words) - 2):
        set_for = words[at : at + 2] in (["set", "for"], ["started", "for"], ["made", "for"]) and at + 2 not in taken
        if set_for and (name := _run(words, at + 2, taken, _ENDS)):
            return name
    own = any(words[at] in ("its", "their") and words[at + 1] in TIMER for at in range(len(words) - 1))
    plain_timer = any(word in TIMER for word in words) and not own
    for index, word in enumerate(words[:-1]):
        led = word in _LINKS and words[index + 1] in ("the", "my", "that") and not plain_timer
        if led and (name := _run(words, index + 2, taken, _ENDS)):
            return name
    if plain_timer:
        return ""
    for index, word in enumerate(words[:-1]):
        if word not in ("the", "my") or index + 1 in taken or words[index + 1] in STOPS | _NOT_NAMES:
            continue
        end = index + 2
        if end < len(words) and words[end] not in STOPS | _NOT_NAMES and end not in taken:
            end += 1
        if end >= len(words) or words[end] in _STATES | FILLERS or end in taken:
            return joined(words[index + 1 : end])
    for index, word in enumerate(words[:-1]):
        if word == "for" and index + 1 not in taken and (name := _run(words, index + 1, taken, _ENDS)):
            return name
    return _only_thing(words, taken)


def _only_thing(words: list[str], taken: set[int]) -> str:
    """ "cancel pasta": what is left of a short sentence."""
    left = [index for index, word in enumerate(words) if index not in taken and word not in STOPS | _NOT_NAMES]
    short = len(words) - len(taken) <= 5 and 0 < len(left) <= 2 and left[-1] - left[0] == len(left) - 1
    return joined([words[index] for index in left]) if short and left[0] > 0 else ""
