"""What a sentence about the house means: a device, a room, a kind of device, or a thing that the house does not know.

Rules for English. Pure; imports fillers, house, vocabulary, words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assistant.nlu.fillers import ARTICLES, CLAUSES, FILLERS, STOPS
from assistant.nlu.house import Found, House
from assistant.nlu.vocabulary import Slots
from assistant.nlu.words import joined, trimmed, word_set

DOMAINS = {
    **dict.fromkeys(
        word_set("light lights lamp lamps bulb bulbs lighting spotlight spotlights spots chandelier"), "light"
    ),
    **dict.fromkeys(word_set("fan fans ventilator ventilators"), "fan"),
    **dict.fromkeys(
        word_set(
            "blind blinds curtain curtains shutter shutters shade shades drape drapes cover covers awning awnings"
        ),
        "cover",
    ),
    **dict.fromkeys(word_set("lock locks"), "lock"),
    **dict.fromkeys(word_set("switch switches plug plugs socket sockets outlet outlets"), "switch"),
    **dict.fromkeys(word_set("speaker speakers"), "media_player"),
}
_HEARD = {"lamb": "lamp", "lam": "lamp", "lambs": "lamps", "lice": "lights", "lites": "lights"}
_DOORS = word_set("door doors window windows gate gates")
_LOCKING = word_set("lock locks unlock locked unlocked bolt unbolt locking")
ACTIONS = word_set(
    "turn switch put get make set open close shut lock unlock start stop begin kill flick hit power fire activate"
    " deactivate enable disable raise lower pull draw roll bring run cut knock flip dim brighten bolt unbolt crank is"
    " are"
    " was were leave left whether if does did of has have check whats what's state status about fade soften change give"
    " want need turning switching shutting take increase decrease reduce up tone go lets swish pop stick"
)
_PARTICLES = frozenset({"on", "off", "up", "down", "out", "the", "all", "my", "both"})
ROOMS = word_set(
    "den study conservatory greenhouse playroom cabin studio salon pantry landing porch patio shed loft cellar"
    " library gym"
    " lobby closet terrace balcony workshop utility"
)
"""That many houses have, for saying that this one does not."""
_FLOOR_WORDS = frozenset({"upstairs", "downstairs"})
_PLACE = frozenset({"in", "at", "on", "for", "of", "inside", "throughout", "across", "out", "around"})
_NEXT_TO = frozenset(
    {"by", "over", "beside", "behind", "under", "near", "above", "next", "at", "on", "outside", "below", "in"}
)
_STATE_WORDS = word_set(
    "on off open opened closed shut locked unlocked running going lit home finished done ready still yet properly up"
    " down"
    " burning switched turned plugged working active charging armed bolted empty currently moment anything anyone"
    " anybody"
    " left people temperature brightness colour color light level battery percent half full max maximum minimum bright"
    " space area place power things thing something nothing house home device devices setting mode red green blue"
    " yellow white here"
    " there"
    " room many which what much any warming long enough no more using lock"
)
_EVERYTHING = frozenset({"everything", "all"})
_VERBS_TOO = word_set("lock switch cover shade plug")
_NO_NAMES = word_set(
    "big little main damn bloody awful stupid blasted horrible nice bright whole single silly annoying other"
)
"""Said of a light, but no part of its name."""
_BEFORE_NEAR = tuple([word] for word in ("the", "my", "our", "those", "that", "both"))
_NOT_THINGS = STOPS | _STATE_WORDS | ACTIONS | _EVERYTHING


@dataclass(frozen=True, slots=True)
class _Candidate:
    slots: Slots
    start: int
    end: int


def target(
    words: list[str], house: House, wanted: Callable[[str], bool] = lambda name: True, *, near: bool = False
) -> Slots:
    """name, area and domain, as far as said; `wanted` says which of the known names may be meant. With `near`, an
    unknown thing counts only where an article and a word of action stand before it."""
    words = [_HEARD.get(word, word) for word in words]
    found = [one for one in house.find(words) if one.kind != "name" or wanted(one.value)]
    places = [one for one in found if one.kind != "name"]
    candidates = [_named(one, places, words) for one in found if one.kind == "name"]
    candidates += _kinds(words, found, house)
    if not candidates:
        where = anywhere(words, places, house)
        thing = unknown(words, found, near=near) if not (near and where) else None
        if thing == "dark" or (thing is None and "dark" in words):
            return {"domain": "light", **where}
        if "everything" in words or (thing is None and "all" in words):
            return where or {"name": "all"}
        if thing is not None and thing in where.values():
            return {"name": thing}
        return {**({"name": thing} if thing else {}), **where}
    return min(candidates, key=lambda one: effort(words, one.start, one.end) + _unlikely(words, one)).slots


def _unlikely(words: Sequence[str], one: _Candidate) -> int:
    """Any door is mentioned more often than it is meant."""
    return 4 if _DOORS & set(words[one.start : one.end]) and "name" not in one.slots else 0


def effort(words: Sequence[str], start: int, end: int) -> float:
    """How far a thing stands from a word of action, better behind it than before it: what the sentence is about is
    near, what it only mentions is not."""
    behind = [start - at for at in range(start) if words[at] in ACTIONS]
    ahead = [at - end + 4 for at in range(end, len(words)) if words[at] in ACTIONS or words[at] in ("on", "off", "to")]
    return min([*(size - 1 for size in behind), *ahead, 40])


def area_slots(place: Found) -> Slots:
    return {"floor" if place.kind == "floor" else "area": place.value}


def nearest(words: Sequence[str], places: list[Found]) -> Found | None:
    """The room that is meant: not "im in the kitchen", when another one is named."""
    return min(places, key=lambda one: effort(words, one.start, one.end)) if places else None


def anywhere(words: Sequence[str], places: list[Found], house: House) -> Slots:
    """The room of the sentence, known or not: {} without one."""
    place = nearest(words, places)
    if place is not None:
        return area_slots(place)
    for index, word in enumerate(words):
        before = words[index - 1] if index else "the"
        if word == "room" and before not in _NOT_THINGS:
            return {"area": f"{before} room"}
        if word in _FLOOR_WORDS or (word in ROOMS and before in ARTICLES | {"in", "to"} and before not in ("a", "an")):
            return _floor(word, house)
    return {}


def _named(one: Found, places: list[Found], words: list[str]) -> _Candidate:
    slots: Slots = {"name": one.value}
    for place in places:
        between = words[one.end : place.start]
        while len(between) > 1 and between[0] in _STATE_WORDS | FILLERS and between[1] not in ARTICLES:
            between = between[1:]  # "the heater going in the office"
        led = 0 < len(between) <= 3 and between[0] in _PLACE | ARTICLES and set(between[1:]) <= ARTICLES
        if place.end == one.start or led:
            slots |= area_slots(place)
    return _Candidate(slots, one.start, one.end)


def _kinds(words: list[str], found: list[Found], house: House) -> list[_Candidate]:
    taken = {index for one in found for index in range(one.start, one.end)}
    out = []
    for at, word in enumerate(words):
        domain = DOMAINS.get(word)
        if word in _DOORS:
            domain = "lock" if _LOCKING & set(words) else "cover"
        twice = words[at + 1 : at + 2] and words[at + 1] in DOMAINS and at + 1 not in taken
        if domain is None or at in taken or twice or (domain in ("lock", "switch", "cover") and _is_verb(words, at)):
            continue
        out.append(_kind(words, at, domain, found, house))
    return out


def _is_verb(words: list[str], at: int) -> bool:
    """ "lock the door", "switch on": no thing."""
    if words[at] not in _VERBS_TOO or (at and words[at - 1] in ARTICLES):
        return False
    after = words[at + 1 : at + 2]
    return at == 0 or words[at - 1] in FILLERS | CLAUSES | {"to"} or bool(after and after[0] in ARTICLES | _PARTICLES)


def _kind(words: list[str], at: int, domain: str, found: list[Found], house: House) -> _Candidate:
    start = at
    place: Found | None = None
    modifiers: list[str] = []
    while start > 0:
        before = next((one for one in found if one.end == start and one.kind != "name"), None)
        if before is not None:
            place, start = before, before.start
            continue
        word = words[start - 1]
        if word in _NOT_THINGS - {"night"} or (word in DOMAINS and start != at) or at - start >= 3:
            break
        start -= 1
        if word in _FLOOR_WORDS:
            return _Candidate({**_floor(word, house), "domain": domain}, start, at + 1)
        if word not in _NO_NAMES:
            modifiers.insert(0, word)
    slots: Slots = {"domain": domain}
    if modifiers:
        slots = {"name": joined([*modifiers, words[at]])}
    end = at + 1
    if place is not None:
        slots |= area_slots(place)
    elif (behind := _behind(words, end, found, house)) is not None:
        more, end = behind
        if "beside" in more and domain == "cover":
            pass
        elif "beside" in more:
            slots = {"name": joined([*modifiers, words[at], *str(more["beside"]).split()])}
        else:
            slots |= more
    if "area" not in slots and "floor" not in slots and "name" not in slots:
        slots |= anywhere(words, [one for one in found if one.kind != "name"], house)
    return _Candidate(_own_name(slots, words[at], house), start, end)


def _own_name(slots: Slots, word: str, house: House) -> Slots:
    """The curtains of the living room may be known by that name."""
    if "name" in slots or "area" not in slots:
        return slots
    stem = word.removesuffix("s")
    known = next(
        (f"{slots['area']} {form}" for form in (stem, stem + "s") if f"{slots['area']} {form}" in house.names), ""
    )
    return {"name": known} if known else slots


def _behind(words: list[str], start: int, found: list[Found], house: House) -> tuple[Slots, int] | None:
    """What follows the kind: "in the office", "upstairs", "by the sofa"; also with "on" and "off" before it."""
    at = start
    while (
        at < len(words)
        and words[at] in ("on", "off", "up", "down", "out", "back", "please", "left")
        and (at + 1 < len(words) and words[at + 1] not in ARTICLES)
    ):
        at += 1
    if at < len(words) and words[at] in _FLOOR_WORDS:
        return _floor(words[at], house), at + 1
    for place in found:
        if place.kind != "name" and at <= place.start <= at + 4 and words[at] in _PLACE and place.start - at <= 3:
            return area_slots(place), place.end
    if at + 1 >= len(words) or words[at] not in _NEXT_TO:
        return None
    thing = at + (2 if words[at : at + 2] == ["next", "to"] else 1)
    while thing < len(words) and words[thing] in ARTICLES:
        thing += 1
    end = thing
    while end < len(words) and end < thing + 3 and words[end] not in _NOT_THINGS | DOMAINS.keys():
        end += 1
    if end == thing or (end == len(words) and words[at] == "on" and thing == at + 1):
        return None
    if words[end : end + 1] == ["room"]:
        end += 1
    beside = joined(words[thing:end])
    if words[at] == "in" and beside != "corner":
        return {"area": beside}, end
    return {"beside": joined(words[at:end])}, end


def _floor(word: str, house: House) -> Slots:
    return {"floor" if word in house.floors else "area": word}


def unknown(words: list[str], found: list[Found], *, near: bool = False) -> str | None:
    """The words of a thing that the house does not know: those that are nothing else, nearest to the action."""
    taken = {index for one in found for index in range(one.start, one.end)}
    runs: list[tuple[int, int]] = []
    for index, word in enumerate(words):
        if index in taken or word in _NOT_THINGS:
            continue
        if runs and runs[-1][1] == index and index - runs[-1][0] < 4:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    if near:
        runs = [run for run in runs if words[run[0] - 1 : run[0]] in _BEFORE_NEAR and effort(words, *run) <= 3]
    if not runs:
        return None
    start, end = min(runs, key=lambda run: (effort(words, *run), run))
    if (
        start
        and words[start - 1] in ("back", "front", "left", "right", "top")
        and words[start - 2 : start - 1] != ["turn"]
    ):
        start -= 1
    name = trimmed(words[start:end], FILLERS | ARTICLES, FILLERS | CLAUSES)
    return joined(name) or None
