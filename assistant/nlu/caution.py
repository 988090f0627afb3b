"""What must not be done at once, or not at all, though a command stands in the sentence. English. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from assistant.nlu import sums

SWITCHES = frozenset({"HassTurnOn", "HassTurnOff"})
FOR_SEVERAL = SWITCHES | {"HassLightSet"}
"""What may be meant of many things at once."""
_DOERS = FOR_SEVERAL | {
    "HassClimateSetTemperature", "HassMediaSearchAndPlay", "HassMediaPause", "HassMediaUnpause",
    "HassMediaNext", "HassMediaPrevious", "HassMediaPlayerMute", "HassMediaPlayerUnmute", "HassSetVolume",
    "HassSetVolumeRelative",
}  # fmt: skip
_NUMBERED = frozenset({"HassSetVolume", "HassSetVolumeRelative", "HassLightSet", "HassClimateSetTemperature"})
_NEVER = re.compile(
    r"\s*(?:(?:please|no|hey|and|but|so|just|ok|okay|you)[\s,]+)*"
    r"(?:never|do not|don'?t|must not|should not|shouldn'?t)\s+(?:you\s+|ever\s+|dare\s+|please\s+|to\s+)*"
    r"(?:turn|switch|set|put|open|close|shut|lock|unlock|start|stop|play|pause|mute|unmute|dim|change|touch|make|raise"
    r"|lower|skip|run|activate|cut|kill)\b",
    re.I,
)
_NUMBER = (
    r"(?:an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|fifty|sixty"
    r"|ninety|half an|a couple of|a few|\d+)(?:[\s-](?:one|two|three|four|five|six|seven|eight|nine|and a half))?"
)
_LATER = re.compile(
    rf"\b(?:in|after)\s+{_NUMBER}\s+(?:more\s+)?(?:second|minute|hour|min|sec)s?\b"
    rf"|\bat\s+(?:{_NUMBER}\s*(?:\d\d|thirty|fifteen|forty five)?\s*(?:o'?clock|[ap]\.?m\b)|noon|midnight|sunset"
    r"|sunrise|half past|quarter (?:past|to))"
    r"|\b(?:tomorrow|when i (?:get|come|arrive) (?:home|back))\b",
    re.I,
)
_EXCEPT = re.compile(
    r"\b(?:except|excluding|apart from|other than|besides|every\w* (?:\w+ ){0,3}but|all (?:\w+ ){0,4}but)\b",
    re.I,
)
_SWITCHING = re.compile(r"\b(?:turn|switch)\b.*\b(?:on|off)\b", re.I)
_OTHER_DAY = re.compile(
    r"\b(?:next|last|this coming) (?:mon|tues|wednes|thurs|fri|satur|sun)day\b|\bwhat week\b|\bweek number\b"
    r"|\b(?:christmas|easter|ramadan|hanukkah|thanksgiving|halloween)\b"
    r"|\b(?:days|weeks|months) (?:ago|from now|from today)\b|\bin \w+ (?:days|weeks|months)\b",
    re.I,
)
_LOCK = re.compile(r"\b(?:lock|unlock|locked|unlocked|bolt|unbolt)\b", re.I)
_COVER = re.compile(r"\b(?:open|close|shut|raise|lower|roll|pull|draw)\b", re.I)


def forbidden(intent: str, text: str) -> bool:
    """ "Never turn off the heater" is no order to do it, and other days than those near by are not known here."""
    if intent == "HassGetCurrentDate":
        return _OTHER_DAY.search(text) is not None
    return intent in _DOERS and _NEVER.match(text) is not None


def later(intent: str, text: str) -> bool:
    """Whether it is to be done at another time: "turn off the lights in five minutes"."""
    if intent.endswith("Timer"):  # "turn the coffee machine off in ten minutes" shortens no timer
        return "timer" not in text.lower() and _SWITCHING.search(text) is not None and _LATER.search(text) is not None
    return intent in _DOERS and intent != "HassMediaSearchAndPlay" and _LATER.search(text) is not None


def leaves_out(intent: str, text: str) -> bool:
    """ "All lights except the desk lamp"."""
    return intent in FOR_SEVERAL and _EXCEPT.search(text) is not None


def calculates(intent: str, text: str, language: str = "en", *, exact: bool = False) -> bool:
    """Whether a number of it would have to be calculated first: "ten to the power of nine minutes", "up by minus five".
    In any language. `exact`: it was a template's, and those of steps have a verb that says which way."""
    if intent not in _NUMBERED and not intent.endswith("Timer"):
        return False
    if exact and intent == "HassSetVolumeRelative" and sums.negative(text, language):
        return True
    return sums.changed(text, language) or sums.backwards(text, language)


_ROOM = re.compile(r"\bin (?:the |my |our )([a-z]+(?: [a-z]+)?)(?: please)?[.!]?$", re.I)
_NO_ROOM = re.compile(
    r"(?:whole |entire )?(?:house|home|place|flat|apartment|dark|morning|evening|afternoon|night)$", re.I
)


def room(intent: str, text: str, slots: Mapping[str, object]) -> str | None:
    """A room that is named and unknown: "everything in the ballroom" is not everything."""
    if intent not in FOR_SEVERAL or "area" in slots or "floor" in slots:
        return None
    if "name" in slots and slots["name"] not in ("all", "everything"):
        return None
    found = _ROOM.search(text)
    return found[1].lower() if found and not _NO_ROOM.match(found[1]) else None


def kind(intent: str, text: str, slots: Mapping[str, object]) -> str | None:
    """Of what is switched, as the verb tells it: "open" and "lock" are both `HassTurnOn`, and a front door may be
    either. None: the verb does not tell, or a slot does."""
    if intent not in SWITCHES or "domain" in slots:
        return None
    if _LOCK.search(text):
        return "lock"
    return "cover" if _COVER.search(text) and re.search(r"\b(?:door|gate|window|blind|curtain|shutter)", text) else None
