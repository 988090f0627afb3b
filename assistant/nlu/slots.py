"""The slots of a command from the words of its sentence, when no template has read them. Pure.

Names and types are those of Home Assistant's sentences. Rules are English; numbers and durations have tables for other
languages (`language`).
"""

from __future__ import annotations

from assistant.nlu import slots_home, slots_levels, slots_lists, slots_media, slots_search, slots_timers
from assistant.nlu.fillers import STOPS
from assistant.nlu.house import House
from assistant.nlu.language import Language, language_of
from assistant.nlu.targets import target
from assistant.nlu.vocabulary import Slots
from assistant.nlu.words import joined, trimmed, words_of

_ANYWHERE = frozenset(
    {"HassMediaPlayerMute", "HassMediaPlayerUnmute", "HassMediaNext", "HassMediaPrevious", "HassMediaPause"}
    | {"HassMediaUnpause"}
)
_SHORT = 5


def slots_of(intent: str, text: str, house: House, language: str = "en") -> Slots:
    """Every slot that the sentence has; {} of an intent without slots, or of one that we do not know. Never raises."""
    words = words_of(text)
    table = language_of(language)
    if not words:
        return {}
    if intent.endswith(("Timer", "Timers", "TimerStatus")):
        return slots_timers.timer_slots(intent, words, table)
    if intent in ("HassSetVolume", "HassSetVolumeRelative"):
        return slots_media.volume(words, house, table, relative=intent == "HassSetVolumeRelative")
    if intent in _ANYWHERE:
        return slots_media.anywhere(words, house)
    match intent:
        case "HassMediaSearchAndPlay":
            return slots_search.search(words, house)
        case "HassTurnOn" | "HassTurnOff":
            return slots_home.switched(words, house)
        case "HassGetState":
            return slots_home.asked(words, house)
        case "HassLightSet":
            return slots_home.light(words, house, table)
        case "HassClimateSetTemperature" | "HassClimateGetTemperature":
            return slots_home.climate(words, house, table, setting=intent == "HassClimateSetTemperature")
        case "HassShoppingListAddItem" | "HassShoppingListCompleteItem":
            return slots_lists.item(intent, words)
        case "HassGetCurrentDate":
            return slots_lists.date(words)
    return {}


def answer_to(intent: str, wanted: str, text: str, house: House, language: str = "en") -> Slots | None:
    """What the reply to a question for one slot says of it; None when it says nothing of the kind."""
    words, table = words_of(text), language_of(language)
    if not words:
        return None
    if wanted in ("duration", "hours", "minutes", "seconds"):
        return slots_timers.duration_answer(words, table)
    if intent.endswith(("Timer", "TimerStatus")):
        return slots_timers.timer_answer(words, table)
    return _value(intent, wanted, words, house, table)


def _value(intent: str, wanted: str, words: list[str], house: House, table: Language) -> Slots | None:
    found: object = None
    match wanted:
        case "volume_level" | "brightness":
            found = slots_levels.level(words, table)
        case "volume_step" | "brightness_step":
            found = slots_levels.step(words, table)
        case "temperature":
            numbers = slots_levels.free_numbers(words, table)
            found = numbers[-1].value if numbers else None
        case "item":
            return slots_lists.item_answer(words)
        case "search_query" | "media_class":
            return slots_search.search(["play", *words], house) or None
        case "name" | "area" | "floor" | "domain":
            return _thing(words, house)
        case _:
            plain = trimmed(words, STOPS, STOPS)
            found = joined(plain) if 0 < len(plain) <= _SHORT else None
    return {wanted: found} if isinstance(found, str | int | float) else None


def _thing(words: list[str], house: House) -> Slots | None:
    found = target(words, house)
    known = any(slot in found for slot in ("area", "floor", "domain")) or found.get("name") in house.names
    return found if found and (known or len(words) <= _SHORT) else None
