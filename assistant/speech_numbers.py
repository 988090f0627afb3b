"""Numbers as English people say them: years, ordinals, fractions, roman numerals, ranges, sums. Pure; imports nothing.

Plain numbers stay digits: espeak-ng reads cardinals, decimals and ordinals below a thousand as people do (a test
compares its phonemes with the words of num2words). num2words itself is no part of the program: importing it takes
45 ms and 4.5 MB of memory, for ninety languages of which one is spoken.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str] | str]

# begins where digits begin: tried from each of a thousand digits it would take a second
NUMBER = r"(?<!\d)\d+(?:,\d{3})*(?:\.\d+)?"


def _list(text: str) -> list[str]:
    return text.split()


_SMALL = _list(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen"
)
_TENS = _list("zero ten twenty thirty forty fifty sixty seventy eighty ninety")
_PARTS = {2: "half", 3: "third", 4: "quarter", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth", 9: "ninth",
          12: "twelfth", 16: "sixteenth", 20: "twentieth", 32: "thirty-second", 64: "sixty-fourth"}  # fmt: skip
_VULGAR = dict(zip("½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞", _list("1/2 1/3 2/3 1/4 3/4 1/5 2/5 3/5 4/5 1/6 5/6 1/8 3/8 5/8 7/8"),
                   strict=True))  # fmt: skip
_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50}
_NUMBERED = (
    "War|Part|Chapter|Act|Scene|Volume|Vol|Type|Phase|Class|Section|Book|Episode|Article|Title|Level|Stage|Grade|Figure"
    "|Table|Bowl|Apollo|Gemini|Rocky|Fantasy|Factor|Appendix|Mark|Schedule|Group"
)
_RULERS = (
    "Henry|Louis|Elizabeth|George|Charles|Edward|James|William|Richard|Philip|Paul|Benedict|Pius|Francis|Leo|Gregory"
    "|Innocent|Nicholas|Alexander|Catherine|Peter|Frederick|Napoleon|Wilhelm|Ivan|Ramses|Ramesses|Ptolemy|Darius|Xerxes"
    "|Otto|Ludwig|Leopold|Felipe|Carlos|Albert|Harald|Margrethe|Gustaf|Mary|Clement|Urban|Sixtus|Boniface|Constantine"
    "|Theodosius|Mehmed|Murad|Selim|Suleiman|John|Robert|Ferdinand|Joseph|Leopold|Cleopatra|Thutmose|Abdullah"
)
_NUMERAL = r"(?=[IVX])(?:X{0,3})(?:IX|IV|V?I{0,3})(?<=[IVX])"
"""Of at least one letter."""


def in_words(number: int) -> str:
    """Of 0 to 99."""
    if number < 20:
        return _SMALL[number]
    tens, ones = divmod(number, 10)
    return _TENS[tens] + (f"-{_SMALL[ones]}" if ones else "")


def year(text: str) -> str:
    """ "1980" -> "nineteen eighty", "1905" -> "nineteen oh five", "1900" -> "nineteen hundred"; 2000 to 2009 and what
    is no year of four digits stay: they are read well as they are."""
    if len(text) != 4 or text.startswith("200") or (text[:2] == "10" and text < "1066"):
        return text
    century, rest = in_words(int(text[:2])), int(text[2:])
    if not rest:
        return f"{century} hundred"
    return f"{century} {'oh ' if rest < 10 else ''}{in_words(rest)}"


def decade(text: str) -> str:
    """ "80" -> "eighties", "1980" -> "nineteen eighties", "1900" -> "nineteen hundreds"."""
    if text == "2000":
        return "two thousands"
    head, tens = text[:-2], text[-2:]
    said = "hundreds" if tens == "00" else "tens" if tens == "10" else in_words(int(tens)).removesuffix("y") + "ies"
    return f"{in_words(int(head))} {said}" if head else said


def ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def roman(text: str) -> int:
    values = [_ROMAN[letter] for letter in text]
    return sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0], strict=True))


def _fraction(match: re.Match[str]) -> str:
    whole, top, bottom = match["whole"], int(match["top"]), int(match["bottom"])
    if (top, bottom) in ((24, 7), (9, 11)) or (top == bottom >= 20) or (top >= 1000 and bottom < 100):
        return f"{top} {bottom}"
    if bottom in _PARTS and 0 < top < bottom and not match["cue"]:
        part = _PARTS[bottom]
        if top > 1:
            return f"{whole + ' and ' if whole else ''}{in_words(top)} {part}s"
        return f"{whole} and {'an' if part[0] == 'e' else 'a'} {part}" if whole else f"one {part}"
    if top == 1 and bottom in (10, 100, 1000) and not whole:
        return "one " + {10: "tenth", 100: "hundredth", 1000: "thousandth"}[bottom]
    lead = f"{whole} " if whole else ""
    if bottom in (10, 100) or match["cue"]:
        return f"{lead}{top} out of {bottom}" + (match["cue"] or "")
    return f"{lead}{top} over {bottom}"


def _power(match: re.Match[str]) -> str:
    exponent = match[1] or match[2]
    if exponent in ("2", "3"):
        return " squared" if exponent == "2" else " cubed"
    return " to the power of " + exponent.replace("-", "minus ")


def _scientific(match: re.Match[str]) -> str:
    return f"{match[1]} times 10 to the power of {str(int(match[2])).replace('-', 'minus ')}"


def _ruler(match: re.Match[str]) -> str:
    return f"{match[1]} the {ordinal(roman(match[2]))}"


def _difference(match: re.Match[str]) -> str:
    """ "10 - 3" is a sum, "3 - 10" a range."""
    first, second = (float(text.replace(",", "")) for text in (match[1], match[2]))
    return f"{match[1]} {'minus' if first > second or match[3] else 'to'} {match[2]}"


def signs() -> tuple[Rule, ...]:
    """Signs that belong to a number, before anything looks for numbers."""
    return (
        (re.compile("[" + "".join(_VULGAR) + "]"), lambda m: " " + _VULGAR[m[0]]),
        (re.compile(r"−\s?(?=\d)"), "-"),
        (re.compile(r"(?<![\w.,])\.(?=\d)"), "0."),
    )


def before_units() -> tuple[Rule, ...]:
    """Scientific notation and ranges: what changes where a number ends."""
    return (
        (re.compile(r"(?<![\d.,])([1-9]\d{0,2}(?: \d{3}){2,6})(?![\d.])"), lambda m: m[1].replace(" ", ",")),
        (re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([+-]?\d{1,3})(?!\w)"), _scientific),
        (re.compile(r"(?<![\d.,])(\d{1,3}(?:,\d{3})*),000th\b"), r"\1 thousandth"),
        (re.compile(r"(?<![\d.,])1000th\b"), "1 thousandth"),
        (re.compile(rf"({NUMBER})\s-\s({NUMBER})(?![\d-])(\s?=)?"), lambda m: _difference(m) + (m[3] or "")),
    )


def fractions() -> tuple[Rule, ...]:
    return (
        (re.compile(rf"({NUMBER})\s/\s({NUMBER})"), r"\1 divided by \2"),
        (re.compile(r"(?<![\w.,/])(\d{1,3}\.\d{1,2})/(\d{1,3})(?![\d/]|\.\d)"), r"\1 out of \2"),
        (
            re.compile(
                r"(?:(?<![\d/.,])(?P<whole>\d{1,4})\s+)?(?<![\d/.])(?P<top>\d{1,4})/(?P<bottom>\d{1,4})(?![\d/]|\.\d)"
                r"(?P<cue>\s(?:stars?|points?|rating)\b)?"
            ),
            _fraction,
        ),
    )


def numerals() -> tuple[Rule, ...]:
    """Roman numerals where it is sure that they are."""
    return (
        (
            re.compile(rf"\b((?i:{_NUMBERED}))\.?\s+(XL|L(?:IX|IV|V?I{{0,3}})|{_NUMERAL})\b(?!['’.]\w)"),
            lambda m: f"{m[1]} {roman(m[2])}",
        ),
        (
            re.compile(
                rf"\b({_RULERS})\s+({_NUMERAL})\b"
                r"(?=\s*(?:[.,;:!?)]|$|['’]s\b|\s(?:of|was|and|ruled|reigned|died|became|in|is|from)\b))"
            ),
            _ruler,
        ),
        (re.compile(rf"\b({_RULERS})\s+(?!I\b)({_NUMERAL})\b"), _ruler),
        (re.compile(rf"\b(?=[IVX]{{2}})({_NUMERAL})(?=\s+century\b)"), lambda m: ordinal(roman(m[1]))),
        (
            re.compile(r"\b([A-Z][a-z]+)\s+(I{2,3}|IV|VI{1,3}|IX|XI{1,3}|XIV|XV|XVI)\b"),
            lambda m: f"{m[1]} {roman(m[2])}",
        ),
    )


def sums() -> tuple[Rule, ...]:
    """Powers and what stands between numbers."""
    return (
        (re.compile(r"(?<=\w)x(?=\d+\s?(?:p|px|pixels|cm|mm|m|in|inches|ft|feet|meters)\b)"), " by "),
        (re.compile(r"(?<=\d)x(?=\d)"), " by "),
        (re.compile(r"(?<=\d)\s?[x×*]\s?(?=\d)|(?<=[\w)])\s?[×·]\s?(?=[\w(])"), " times "),
        (re.compile(r"(?<=\d)x\b(?!\s?[=+*/^²³-])"), " times"),
        (re.compile(r"(?<=[\w)])\^(?:\((-?\w{1,8})\)|(-?\w{1,8}))"), _power),
        (re.compile(r"√\s?"), " the square root of "),
        (re.compile(r"∞"), " infinity "),
        (re.compile(r"\s?(?:÷)\s?"), " divided by "),
        (re.compile(r"(?<=[\w)])\s\*\s(?=[\w(])"), " times "),
        (re.compile(r"\s?(?:!=|≠)\s?"), " is not equal to "),
        (re.compile(r"(?:(?<=\w)|(?<=\w )|(?<=[)]) ?)(?:<=|≤)\s?"), " is at most "),
        (re.compile(r"(?:(?<=\w)|(?<=\w )|(?<=[)]) ?)(?:>=|≥)\s?"), " is at least "),
        (re.compile(r"(?:<=|≤)\s?"), " at most "),
        (re.compile(r"(?:>=|≥)\s?"), " at least "),
        (re.compile(r"\s?±\s?"), " plus or minus "),
        (re.compile(r"\s?={1,3}\s?"), " equals "),
        (re.compile(r"(?<=[\w)])\s<\s(?=[\w(-])|(?<=\d)<(?=\d)"), " is less than "),
        (re.compile(r"(?<=[\w)])\s>\s(?=[\w(-])|(?<=\d)>(?=\d)"), " is more than "),
        (re.compile(r"(?<!\S)<\s?(?=[\d$€£])"), "less than "),
        (re.compile(r"(?<!\S)>\s?(?=[\d$€£])"), "more than "),
        (re.compile(r"(?<=[\w)])\s?\+\s?(?=\d)|(?<=[\w)])\s\+\s(?=[\w(])|(?<=\d)\+(?!\w)"), " plus "),
        (re.compile(r"(?<=squared)\s?\+\s?(?=\w)"), " plus "),
        (re.compile(r"(?<=\w)\s?≈\s?"), " is about "),
        (re.compile(r"[~≈]\s?(?=[\d$€£])"), "about "),
        (re.compile(r"\s?≈\s?"), " is about "),
        (re.compile(r"(?<=\d)\s?%"), " percent"),
        (re.compile(r"(?<=\d)\s?‰"), " per thousand"),
    )
