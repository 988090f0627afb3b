"""Slots of what plays: what to play, where, how loud. Rules for English. Pure."""

from __future__ import annotations

import re

from assistant.nlu import slots_levels
from assistant.nlu.fillers import ARTICLES, FILLERS
from assistant.nlu.house import Found, House
from assistant.nlu.language import Language
from assistant.nlu.targets import area_slots
from assistant.nlu.vocabulary import Slots
from assistant.nlu.words import joined, trimmed, word_set

SILENT = word_set(
    "lamp light lights door fan machine kettle dishwasher vacuum heater thermostat blinds curtains conditioner"
    " humidifier"
    " sprinkler camera lock window plug switch"
)
_PLAYER_THINGS = (
    r"(?:speakers?|soundbar|sound bar|stereo|projector|telly|television|hi ?fi|headphones|big screen|computer)"
)
_UNKNOWN_PLACE = re.compile(
    rf"(?:\b(?:in|on|at|for|of|through)\b|\b(?:set|mute|turn|unmute|pause|put|give|make)\b(?: up| down)?)"
    rf" (?:(?:the|my|our) )?((?:(?!the\b|my\b|our\b|on\b|in\b|up\b|down\b|to\b)[\w']+ ){{0,2}}{_PLAYER_THINGS})\b"
)
_PROGRAMMES = tuple(
    [word] for word in ("station", "drama", "show", "channel", "programme", "program", "play", "series")
)
"""After "radio": what plays there is meant."""
_GENERIC = frozenset({"speaker", "speakers", "computer speaker"})


_SOMEBODY = word_set("im i'm was were hes shes theyre someone somebody someones somebodys youre need")


def place(words: list[str], house: House) -> tuple[Slots, list[Found]]:
    """Where it plays, and the words that say so."""
    found = house.find(words)
    names = [one for one in found if one.kind == "name" and not SILENT & set(one.value.split())]
    names = [one for one in names if words[one.end : one.end + 1] not in _PROGRAMMES]
    areas = [one for one in found if one.kind != "name" and _plays_there(words, one)]
    slots: Slots = {}
    if names:
        name = min(names, key=lambda one: (one.score < 1, -(one.end - one.start), -one.start))
        slots["name"] = name.value
        used = [name]
        beside = [one for one in areas if one.end == name.start or 0 < one.start - name.end <= 3]
        return ({**slots, **area_slots(beside[0])}, [*used, beside[0]]) if beside else (slots, used)
    if areas:
        return area_slots(areas[-1]), [areas[-1]]
    return {}, []


def _plays_there(words: list[str], area: Found) -> bool:
    """Not where somebody is: "pause it im in the hall"."""
    before = words[max(0, area.start - 4) : area.start]
    led = [word for word in before if word not in ARTICLES]
    return not _SOMEBODY & set(before) and led[-2:] not in (
        ["back", "from"],
        ["down", "to"],
        ["going", "to"],
        ["go", "to"],
    )


def anywhere(words: list[str], house: House) -> Slots:
    """Mute, pause, next and the like: only where."""
    where, _ = place(words, house)
    if where:
        return where
    unknown = _UNKNOWN_PLACE.search(joined(words))
    name = joined(trimmed(unknown[1].split(), FILLERS | ARTICLES, FILLERS)) if unknown else ""
    return {"name": name} if name and name not in _GENERIC else {}


def volume(words: list[str], house: House, language: Language, *, relative: bool) -> Slots:
    where = anywhere(words, house)
    if relative:
        change = slots_levels.step(words, language)
        return {**({"volume_step": change} if change is not None else {}), **where}
    level = slots_levels.level(words, language)
    return {**({"volume_level": level} if level is not None else {}), **where}
