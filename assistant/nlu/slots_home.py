"""Slots of what stands in the house: switching, asking, light and warmth. Rules for English. Pure."""

from __future__ import annotations

from assistant.nlu import slots_levels
from assistant.nlu.house import House
from assistant.nlu.language import Language
from assistant.nlu.targets import DOMAINS, anywhere, target
from assistant.nlu.vocabulary import Slots
from assistant.nlu.words import word_set

_STATES = {
    "on": "on", "off": "off", "open": "open", "opened": "open", "closed": "closed", "shut": "closed",
        "locked": "locked",
    "unlocked": "unlocked", "home": "home", "running": "on", "going": "on", "lit": "on", "burning": "on",
        "bolted": "locked",
    "drawn": "closed",
}  # fmt: skip
_ENDED = {"lock": "locked", "unlock": "unlocked", "close": "closed"}
"""The end of the last word is what recognisers lose first: "is the front door lock"."""
_DONE = {"turn": {"on": "on", "off": "off"}, "switch": {"on": "on", "off": "off"}, "lock": {"": "locked"},
         "unlock": {"": "unlocked"}, "close": {"": "closed"}, "shut": {"": "closed", "off": "off"},
         "leave": {"on": "on", "open": "open", "unlocked": "unlocked", "running": "on", "off": "off"}}  # fmt: skip
_PEOPLE = word_set(
    "anyone anybody someone somebody everyone everybody who whos who's nobody people he she mum dad kids"
)
_COLORS = word_set(
    "red green blue yellow orange purple pink white turquoise violet cyan magenta gold golden lime teal indigo amber"
    " brown"
    " black lavender peach coral crimson aqua navy maroon beige silver lilac mint"
)
_SHADES = frozenset({"lime", "sky", "hot", "navy", "dark", "baby", "royal", "neon", "forest"})
_COLORS_HEARD = {"read": "red", "blew": "blue", "perple": "purple", "wight": "white", "greenish": "green",
    "bluish": "blue",
                 "reddish": "red", "yellowish": "yellow", "pinkish": "pink", "orangey": "orange"}  # fmt: skip
_WHITES = {"warm": 2700, "warmer": 2700, "cool": 4000, "cold": 4000, "cooler": 4000, "colder": 4000}
_NAMED_WHITES = {"daylight": 6500, "candlelight": 1900, "day light": 6500, "candle light": 1900}
_WARMTH = word_set("thermostat heater heating air conditioner ac radiator boiler climate furnace heat pump water")


def switched(words: list[str], house: House) -> Slots:
    """TurnOn, TurnOff."""
    return target(words, house)


def asked(words: list[str], house: House) -> Slots:
    """GetState."""
    slots = target(words, house)
    state = _state(words)
    if state == "home":
        return {"state": "home"}
    covers = any(DOMAINS.get(word) == "cover" for word in words)
    if covers and state in (None, "on", "off") and {"up", "down"} & set(words):
        state = "open" if "up" in words else "closed"
    if state is None and slots.get("domain") == "light" and "out" in words:
        state = "off"
    if slots.get("name") == "all" or (state and slots.get("name") in ("anything",)):
        slots.pop("name")
    return {**slots, **({"state": state} if state else {})}


def _state(words: list[str]) -> str | None:
    """None when two are offered ("on or off"): then it is asked which."""
    if "home" in words and _PEOPLE & set(words):
        return "home"
    found = [
        _STATES[word]
        for word, after in zip(words, [*words[1:], ""], strict=True)
        if word in _STATES and word != "home" and not (word == "on" and after in ("its", "the", "my", "our", "there"))
    ]
    for index, word in enumerate(words):
        if word in _DONE and ({"did", "have", "has", "forget", "remember", "was"} & set(words[:index])):
            for particle, state in _DONE[word].items():
                if not particle or particle in words[index + 1 :]:
                    return state
    if not found and words[0] in ("is", "are", "was", "were") and words[-1] in _ENDED:
        return _ENDED[words[-1]]
    if "or" in words and len(set(found)) > 1:
        return None
    # "is the light on in the bathroom": the state stands behind the thing, "on" elsewhere is a preposition
    return next((state for state in reversed(found) if state not in ("on", "off")), found[0] if found else None)


def light(words: list[str], house: House, language: Language) -> Slots:
    """LightSet: colour, white, brightness or a step of it, and which light."""
    slots = _color(words)
    taken = _label_numbers(words, house)
    numbers = slots_levels.free_numbers(words, language, taken)
    kelvin = next((n for n in numbers if n.value >= 1000 or words[n.end : n.end + 1] in (["k"], ["kelvin"])), None)
    numbers = [number for number in numbers if number is not kelvin]
    if kelvin is not None:
        slots = {"temperature": int(kelvin.value)}
    if numbers:
        number = next((one for one in numbers if one.percent), numbers[-1])
        value = slots_levels.percent(number)
        if slots_levels.brightness_step(words, language, number):
            way = slots_levels.direction(words)
            slots["brightness_step"] = -abs(value) if way == "down" else abs(value)
        else:
            slots["brightness"] = value
    elif (named := _named_brightness(words)) is not None:
        slots["brightness"] = named
    elif not slots and (way := slots_levels.direction(_as_light(words))) is not None:
        slots["brightness_step"] = way
    where = target(_without_values(words), house, _may_shine, near=True)
    if where.get("name") == "all":
        where = {"domain": "light"}
    return {**slots, **where}


def _as_light(words: list[str]) -> list[str]:
    """A soft light is a dim one, while soft music is to be louder."""
    return ["softer" if word == "soft" else word for word in words if word not in ("on", "off")]


def _named_brightness(words: list[str]) -> int | None:
    named = slots_levels.named_level(words)
    return 1 if named == 0 else named  # a light that is dimmed stays on


_DARK = word_set(
    "door kettle dishwasher vacuum sprinkler thermostat heater tv radio speaker machine blinds curtains conditioner"
    " humidifier"
    " camera lock"
)


def _may_shine(name: str) -> bool:
    return not _DARK & set(name.split())


def _color(words: list[str]) -> Slots:
    text = " ".join(words)
    for name, kelvin in _NAMED_WHITES.items():
        if name in text:
            return {"temperature": kelvin}
    for index, word in enumerate(words[:-1]):
        if word in _WHITES and words[index + 1] == "white":
            return {"temperature": _WHITES[word]}
    colors = [index for index, word in enumerate(words) if word in _COLORS]
    if colors:
        last = colors[-1]
        shade = words[last - 1] if last and words[last - 1] in _SHADES else ""
        return {"color": f"{shade} {words[last]}".strip()}
    heard = [_COLORS_HEARD[word] for word in words if word in _COLORS_HEARD and word != "read"]
    if not heard and words and words[-1] == "read":
        heard = ["red"]
    if heard:
        return {"color": heard[-1]}
    return next(({"temperature": _WHITES[word]} for word in words if word in _WHITES), {})


def _without_values(words: list[str]) -> list[str]:
    """Colours and levels are no part of a light's name."""
    out = []
    for index, word in enumerate(words):
        shade = word in _SHADES and words[index + 1 : index + 2] and words[index + 1] in _COLORS
        white = word in _WHITES and words[index + 1 : index + 2] == ["white"]
        if word in _COLORS or word in _COLORS_HEARD or shade or white or word in _LEVEL_WORDS:
            out.append("to")
        else:
            out.append(word)
    return out


_LEVEL_WORDS = word_set(
    "half full max maximum minimum percent % low dim dimmer brighter bright brightness darker higher lower quarter"
    " third"
    " colour color romantic glow cosy cozy mood soft softer stronger level least lot good deal notch notches somewhat"
    " smidge slowly warmer cooler shade hundred zero one two three four five six seven eight nine ten fifteen twenty"
    " thirty forty fifty sixty seventy eighty ninety eleven twelve intensity kelvin k daylight candlelight dark"
    " blinding"
    " too very way less more much strong movie film"
)


def _label_numbers(words: list[str], house: House) -> set[int]:
    """Numbers inside of known names ("lamp two") are no levels."""
    return {index for one in house.find(words) if one.score >= 1 for index in range(one.start, one.end)}


def climate(words: list[str], house: House, language: Language, *, setting: bool) -> Slots:
    """Where, and when it is to be set, how warm."""
    slots: Slots = {}
    if setting and (value := slots_levels.temperature(words, language)) is not None:
        slots["temperature"] = value
    found = [one for one in house.find(words) if one.kind != "name" or _WARMTH & set(one.value.split())]
    names = [one for one in found if one.kind == "name"]
    places = [one for one in found if one.kind != "name"]
    if names:
        slots["name"] = names[-1].value
    if places:
        slots["area" if places[-1].kind == "area" else "floor"] = places[-1].value
    elif not names:
        slots |= anywhere(words, [], house)
    return slots
