"""How loud, how bright, how warm: a level, or a step up or down. Rules for English. Pure; imports numbers."""

from __future__ import annotations

from collections.abc import Iterable

from assistant.nlu.durations import durations
from assistant.nlu.language import Language
from assistant.nlu.numbers import Number, numbers, plain
from assistant.nlu.words import word_set

_TOP = word_set("max maximum maximal full highest loudest brightest fullest top maxed")
_BOTTOM = word_set("min minimum lowest quietest minimal dimmest faintest")
_TO = word_set("to at on level volume brightness be percent loudness sound than setting number two is is's down up")
_COUNTED = word_set("notch notches step steps tick ticks touch bit bits click clicks songs tracks levels")
_HOURS = word_set("am pm o'clock oclock")
_UP = word_set(
    "up plus louder increase raise boost crank pump amplify higher blast more brighter brighten lighten intensify"
    " upper raising"
    " increased stronger loud bump"
)
_DOWN = word_set(
    "down minus quieter softer lower decrease reduce less drop ease tone quiet dim dimmer darker soften darken fade"
    " fainter"
    " weaker lowered gentler calmer lessen dimmed hush reduced off gloomier dampen low"
)
_COMPLAINTS_DOWN = word_set(
    "loud noisy deafening blaring blasting racket shouting headache bright blinding dazzling harsh glaring strong"
    " screaming"
    " yelling ears hurts hurting"
)
_COMPLAINTS_UP = word_set("quiet faint soft silent hear whispering dark dim gloomy see low mumbling oomph")
_HEARD = {"app": "up", "op": "up", "town": "down", "dawn": "down", "don": "down", "quite": "quiet", "allowed": "loud",
          "louder's": "louder", "dem": "dim"}  # fmt: skip
_WEAK = frozenset({"loud", "quiet", "dim", "low", "off", "lower"})


def free_numbers(words: list[str], language: Language, taken: Iterable[int] = ()) -> list[Number]:
    """Those that are no length of time, no count of steps, not refused ("not ninety"), and not in `taken`."""
    used = {index for span in durations(words, language) for index in range(span.start, span.end)} | set(taken)
    return [
        number
        for number in numbers(words, language)
        if number.start not in used
        and not _pronoun(words, number)
        and not (number.end < len(words) and words[number.end] in _COUNTED | _HOURS | {"more"})
        and not (number.start and words[number.start - 1] in ("not", "than"))
    ]


def _pronoun(words: list[str], number: Number) -> bool:
    """ "i love this one"."""
    before = words[number.start - 1] if number.start else ""
    return words[number.start : number.end] == ["one"] and before not in _TO | {"by", "about"}


def level(words: list[str], language: Language) -> int | float | None:
    """A level of 0-100 as it was said: also 150, or -5."""
    found = free_numbers(words, language)
    named = named_level(words)
    if named is not None and all(number.fraction for number in found):
        return named
    if found:
        after_to = [number for number in found if number.percent or (number.start and words[number.start - 1] in _TO)]
        return percent((after_to or found)[-1])
    return named


def named_level(words: list[str]) -> int | None:
    text = " ".join(words)
    if any(word in _BOTTOM for word in words) or "all the way down" in text or "as low as" in text:
        return 0
    if any(word in _TOP for word in words) or "all the way" in text or "as loud as" in text or "as bright as" in text:
        return 100
    return 50 if "halfway" in words or "middle" in words else None


def percent(number: Number) -> int | float:
    """A part is one of a hundred: "three quarters" = 75; "half a percent" stays 0.5."""
    return plain(round(number.value * 100)) if number.fraction and not number.percent else number.value


def step(words: list[str], language: Language) -> int | float | str | None:
    """ "up", "down", or by how many percent points, with its sign."""
    way = direction(words)
    found = free_numbers(words, language)
    if way is None or not found:
        return way
    by = [number for number in found if number.percent or (number.start and words[number.start - 1] == "by")]
    size = percent((by or found)[-1])
    return plain(-abs(size) if way == "down" else abs(size))


def direction(words: list[str]) -> str | None:
    """By the last word that orders it; without one, by what is complained of."""
    words = [*words]
    for index, word in enumerate(words):
        if (
            word in _HEARD
            and index
            and words[index - 1] in ("it", "volume", "sound", "turn", "bit", "music", "more", "too")
        ):
            words[index] = _HEARD[word]
    strong = weak = None
    for index, word in enumerate(words):
        before = words[index - 1] if index else ""
        if words[index + 1 : index + 2] in (["here"], ["there"]):
            continue  # "down here"
        further = words[max(0, index - 2) : index]
        turned = before in ("less", "not") or "not" in further or "less" in further
        complained = (
            before in ("too", "so", "very", "way", "bit", "really", "is", "its", "it's") and "not" not in further
        )
        if (
            word in ("more", "less")
            and words[index + 1 : index + 2]
            and words[index + 1] in _WEAK | {"bright", "strong", "soft"}
        ):
            continue  # the word behind it tells
        if before == "more" and word in _WEAK | {"soft", "bright", "strong"}:
            strong = "up" if word in ("loud", "bright", "strong") else "down"
        elif turned and word in _COMPLAINTS_DOWN | {"loud"}:
            strong = "down"
        elif (turned and word in _COMPLAINTS_UP) or (word in _UP and not (word == "loud" and complained)):
            strong = "up"
        elif word in _DOWN and not (word in _WEAK and complained and word != "off" and word != "lower"):
            strong = "down"
        elif word in _COMPLAINTS_DOWN:
            weak = "down"
        elif word in _COMPLAINTS_UP:
            weak = "up"
    return strong or weak


def brightness_step(words: list[str], language: Language, number: Number) -> bool:
    """Whether a number of a light is a step: "by twenty", "ten percent brighter"."""
    before = words[number.start - 1] if number.start else ""
    after = words[number.end] if number.end < len(words) else ""
    if before in ("to", "at", "on", "about", "around"):
        return before in ("about", "around") and number.start > 1 and words[number.start - 2] == "by"
    return before in ("by", "up", "down") or after in (
        "brighter",
        "dimmer",
        "darker",
        "more",
        "less",
        "up",
        "down",
        "higher",
        "lower",
        "off",
    )


def temperature(words: list[str], language: Language) -> int | float | None:
    """Degrees to be set; None of a step ("two degrees warmer"), which is no temperature."""
    found = [number for number in free_numbers(words, language) if not number.fraction]
    best: Number | None = None
    for number in found:
        after = words[number.end : number.end + 2]
        before = words[number.start - 1] if number.start else ""
        warmer = set(after) & {"warmer", "cooler", "colder", "hotter", "higher", "lower", "more", "less", "up", "down"}
        if (
            warmer
            or (before in ("by", "up", "down") and _degrees(after))
            or words[number.start : number.end][-1] == "of"
        ):
            continue
        if _is_hour(words, number):
            continue
        if best is None or (_degrees(after) or before in ("to", "at", "on", "be")):
            best = number
    return best.value if best else None


def _degrees(after: list[str]) -> bool:
    return bool(after) and after[0] in ("degrees", "degree", "°", "celsius", "fahrenheit", "centigrade")


def _is_hour(words: list[str], number: Number) -> bool:
    """ "by nine", "at 10 pm"."""
    before = words[number.start - 1] if number.start else ""
    after = words[number.end] if number.end < len(words) else ""
    return after in _HOURS or (before in ("by", "until", "till", "before") and number.value <= 12)
