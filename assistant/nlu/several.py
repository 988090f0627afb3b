"""One command for several things: "turn off the tv and the kitchen lights". Rules for English. Pure."""

from __future__ import annotations

from assistant.nlu.caution import FOR_SEVERAL
from assistant.nlu.house import House
from assistant.nlu.targets import ACTIONS, DOMAINS, target
from assistant.nlu.vocabulary import Slots
from assistant.nlu.words import words_of

_WHERE = ("name", "area", "floor", "domain")
_BETWEEN = frozenset({"and", "plus"})
_LOOSE = frozenset({"on", "off", "up", "down", "to", "of", "go"})


def each_of(intent: str, text: str, slots: Slots, house: House) -> list[Slots]:
    """`slots` (those of the whole sentence) once for each thing that is named, in its order; [slots] when there is
    one, or when a part is not known for sure."""
    words = words_of(text)
    parts = _parts(words)
    if intent not in FOR_SEVERAL or len(parts) < 2:
        return [slots]
    found = [target(part, house) for part in parts]
    kinds = [one["domain"] for one in found if "domain" in one]
    for one in found:
        if set(one) == {"area"} and kinds:
            one["domain"] = kinds[0]  # "the lights in the kitchen and the hallway"
    if any(not one or ("name" in one and one["name"] not in house.names) for one in found):
        return [slots]
    rest = {name: value for name, value in slots.items() if name not in _WHERE}
    each = [{**rest, **one} for one in found]
    return [one for index, one in enumerate(each) if one not in each[:index]]


def _parts(words: list[str]) -> list[list[str]]:
    """Between the conjunctions; none when a later part is a command or a clause of its own."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word in _BETWEEN:
            parts.append([])
        else:
            parts[-1].append(word)
    alone = all(part and not (ACTIONS - _LOOSE - DOMAINS.keys()) & set(part) for part in parts[1:])
    return parts if alone and len(parts) <= 4 else []
