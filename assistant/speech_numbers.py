"""English as it is spoken: money, times, dates, units and what else a voice reads wrong. Pure; imports nothing of ours.

Only what espeak-ng gets wrong is touched (checked by its phonemes): it reads plain numbers, decimals, percentages and
ordinals well, but "$49.95" as "dollar forty-nine point nine five" and "8:00" as "eight zero zero". Words for digits
are left to it; a year becomes two numbers ("19 80"), which it reads as people do.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str] | str]

# begins where digits begin: tried from each of a thousand digits it would take a second
_NUMBER = r"(?<!\d)\d+(?:,\d{3})*(?:\.\d+)?"
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip
_MONTH = "|".join([*_MONTHS, *(month[:3] for month in _MONTHS if month != "May"), "Sept"])
_COINS = {"$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "penny"), "¥": ("yen", ""), "₹": ("rupee", "")}
_SCALES = {"k": "thousand", "m": "million", "b": "billion", "bn": "billion", "t": "trillion"}
_UNITS = {
    "km/h": "kilometers per hour", "kph": "kilometers per hour", "mph": "miles per hour", "m/s": "meters per second",
    "km": "kilometers", "m": "meters", "cm": "centimeters", "mm": "millimeters", "mi": "miles", "ft": "feet",
    "yd": "yards", "kg": "kilograms", "g": "grams", "mg": "milligrams", "lb": "pounds", "lbs": "pounds", "oz": "ounces",
    "L": "liters", "l": "liters", "ml": "milliliters", "mL": "milliliters", "°C": "degrees Celsius",
    "°F": "degrees Fahrenheit", "°": "degrees", "KB": "kilobytes", "kB": "kilobytes", "MB": "megabytes",
    "MiB": "mebibytes", "GB": "gigabytes", "GiB": "gibibytes", "TB": "terabytes", "Hz": "hertz", "kHz": "kilohertz",
    "MHz": "megahertz", "GHz": "gigahertz", "W": "watts", "kW": "kilowatts", "kWh": "kilowatt hours", "V": "volts",
    "mAh": "milliampere hours", "ms": "milliseconds", "sec": "seconds", "secs": "seconds", "min": "minutes",
    "mins": "minutes", "h": "hours", "hr": "hours", "hrs": "hours", "dB": "decibels",
}  # fmt: skip
_PER = {"h": "hour", "hr": "hour", "s": "second", "min": "minute", "mo": "month", "yr": "year"}
_FRACTIONS = {"1/2": "one half", "1/3": "one third", "2/3": "two thirds", "1/4": "one quarter", "3/4": "three quarters",
              "1/8": "one eighth"}  # fmt: skip
_VULGAR = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅛": "1/8"}
_DECADES = {"10": "tens", "20": "twenties", "30": "thirties", "40": "forties", "50": "fifties", "60": "sixties",
            "70": "seventies", "80": "eighties", "90": "nineties"}  # fmt: skip
_ROMAN = {"I": 1, "V": 5, "X": 10}
_UNIT = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
_YEAR_CUE = "in|since|from|until|till|by|before|after|around|circa|year|of|and|between|during|to|early|late|born|died"
_YEAR_CUE += "|spring|summer|autumn|fall|winter|" + "|".join(_MONTHS)


def expand(text: str) -> str:
    """The text with what is written short spelled out; one line, markdown and symbols already gone."""
    for pattern, how in _RULES:
        text = pattern.sub(how, text)
    return text


def _plural(amount: str, one: str) -> str:
    if amount == "1" or one == "yen":
        return one
    return "pence" if one == "penny" else one + "s"


def _money(match: re.Match[str]) -> str:
    sign, whole, part, scale = match["sign"], match["whole"], match["part"], match["scale"]
    coin, small = _COINS[sign]
    minus = "minus " if match["minus"] else ""
    if scale:
        amount = whole + (f".{part}" if part else "")
        return f"{minus}{amount} {_SCALES.get(scale.lower(), scale)} {_plural('2', coin)}"
    if part and len(part) == 2 and small:
        cents = str(int(part))
        change = f"{cents} {_plural(cents, small)}" if cents != "0" else ""
        if whole == "0" and change:
            return minus + change
        return f"{minus}{whole} {_plural(whole, coin)}" + (f" and {change}" if change else "")
    amount = whole + (f".{part}" if part else "")
    return f"{minus}{amount} {_plural(amount, coin)}"


def _money_behind(match: re.Match[str]) -> str:
    return f"{match[1]} {_plural(match[1], _COINS[match[2]][0])}"


def _time(match: re.Match[str]) -> str:
    hour, minute, second, half = int(match[1]), int(match[2]), match[3], match[4]
    if minute:
        said = f"{hour} {minute}" if minute > 9 else f"{hour} oh {minute}"
    elif half:
        said = str(hour)
    elif hour in (0, 12) or hour > 12:
        said = {0: "midnight", 12: "12 o'clock"}.get(hour, f"{hour} hundred hours")
    else:
        said = f"{hour} o'clock"
    if second:
        said += f" and {int(second)} seconds"
    return f"{said} {half.upper()}M" if half else said


def _year(text: str) -> str:
    """ "1980" -> "19 80", "1905" -> "19 oh 5", "1900" -> "19 hundred"; 2000 to 2009 are read well as they are."""
    century, rest = text[:2], text[2:]
    if text.startswith("200") or (century == "10" and rest < "66"):
        return text
    if rest == "00":
        return f"{century} hundred"
    return f"{century} oh {rest[1]}" if rest[0] == "0" else f"{century} {rest}"


def _decade(match: re.Match[str]) -> str:
    if match[2] != "0":
        return f"{match[1]} {_DECADES[match[2] + '0']}"
    return "2 thousands" if match[1] == "20" else f"{match[1]} hundreds"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _date(year: str, month: str, day: str, otherwise: str) -> str:
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return otherwise
    return f"{_MONTHS[int(month) - 1]} {_ordinal(int(day))}, {_year(year)}"


def _day_of_month(match: re.Match[str]) -> str:
    month = next(name for name in _MONTHS if name.startswith(match[1][:3]))
    year = f", {_year(match[3])}" if match[3] else ""
    return f"{month} {_ordinal(int(match[2]))}{year}"


def _digits(match: re.Match[str]) -> str:
    """A telephone number, digit by digit, with a breath between its groups."""
    groups = re.findall(r"\d+", match[0])
    return ("plus " if match[0].startswith("+") else "") + ", ".join(" ".join(group) for group in groups)


def _unit(match: re.Match[str]) -> str:
    amount, unit, power = match[1], _UNITS[match[2]], match[3]
    if amount == "1" and unit != "hertz":
        first, _, rest = unit.partition(" ")
        first = "foot" if first == "feet" else first.removesuffix("s")
        unit = f"{first} {rest.removesuffix('s') if first == 'kilowatt' else rest}".strip()
    words = {"²": "square ", "2": "square ", "³": "cubic ", "3": "cubic "}
    return f"{amount} {words.get(power or '', '')}{unit}"


def _fraction(match: re.Match[str]) -> str:
    whole, part = match[1], f"{match[2]}/{match[3]}"
    said = "24 7" if part == "24/7" else _FRACTIONS.get(part, f"{match[2]} over {match[3]}")
    return f"{whole} and {said}" if whole else said


def _roman(text: str) -> int:
    values = [_ROMAN[letter] for letter in text]
    return sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0], strict=True))


_RULES: tuple[_Rule, ...] = (
    (re.compile("[" + "".join(_VULGAR) + "]"), lambda m: " " + _VULGAR[m[0]]),
    (re.compile(r"−\s?(?=\d)"), "-"),
    (re.compile(r"\b([AaPp])\.\s?[Mm]\.(?=\s*$|\s+[A-Z])"), lambda m: m[1].upper() + "M."),
    (re.compile(r"\b([AaPp])\.\s?[Mm]\b\.?"), lambda m: m[1].upper() + "M"),
    (re.compile(rf"(?P<minus>(?<!\w)-)?(?:\bUS)?(?P<sign>[{''.join(_COINS)}])\s?(?P<whole>\d+(?:,\d{{3}})*)(?:\.(?P<part>\d+))?"
                r"(?:\s?(?P<scale>thousand|million|billion|trillion|[kKmMbBtT]|bn)\b)?"), _money),
    (re.compile(rf"({_NUMBER})\s?([€£¥₹])"), _money_behind),
    (re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)"), lambda m: _date(m[1], m[2], m[3], m[0])),
    (re.compile(r"(?<![\d/])(\d{1,2})/(\d{1,2})/(\d{4})(?![\d/])"), lambda m: _date(m[3], m[1], m[2], m[0])),
    (re.compile(r"(?<![\d.])\+\d[\d ().-]{6,16}\d(?!\d)"), _digits),
    (re.compile(r"(?<![\d.])(?:1[ .-])?\(?\d{3}\)?[ .-]\d{3}[.-]\d{4}(?!\d)"), _digits),
    (re.compile(r"(?<![\d.-])\d{3}-\d{4}(?![\d-])"), _digits),
    (re.compile(r"(?<![\d:])([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?(?![\d:])(?:\s?([AaPp])[Mm]\b)?"), _time),
    (re.compile(rf"\b({_MONTH})\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?![:,.]\d)(?:,?\s+((?:1\d|20)\d\d)\b)?"),
     _day_of_month),
    (re.compile(r"\b(1[1-9]|20)(\d)0'?s\b"), _decade),
    (re.compile(r"(?<!\w)['’]?([1-9]0)s\b"), lambda m: _DECADES[m[1]]),
    (re.compile(r"(?<![\d.,-])((?:1[1-9]|20)\d\d)\s?[-–]\s?((?:1[1-9]|20)\d\d)(?!,?\d|\.\d)"),
     lambda m: f"{_year(m[1])} to {_year(m[2])}"),
    (re.compile(rf"(?<=\d)\s?[-–]\s?(?={_NUMBER}(?![\d-]))"), " to "),
    (re.compile(rf"({_NUMBER})\s?({_UNIT})([²³23])?(?![\w/°])"), _unit),
    (re.compile(r"(?<=[a-z\d])\s?/\s?(h|hr|s|min|mo|yr|hour|day|week|month|year|person|second|minute)\b"),
     lambda m: f" per {_PER.get(m[1], m[1])}"),
    (re.compile(r"(?:(?<![\d/.])(\d+)\s+)?(?<![\d/.])(\d{1,3})\s?/\s?(\d{1,3})(?![\d/])"), _fraction),
    (re.compile(rf"(?i:\b({_YEAR_CUE})\s+|(\())((?:1[1-9]|20)\d\d)(?![\d,]?\d|\.\d|\s+(?:people|{'|'.join(set(_UNITS.values()))})\b)\b"),
     lambda m: (f"{m[1]} " if m[1] else m[2]) + _year(m[3])),
    (re.compile(r"\b(War|Part|Chapter|Act|Volume|Type|Phase|Class)\s+([IVX]+)\b"), lambda m: f"{m[1]} {_roman(m[2])}"),
    (re.compile(r"\b([A-Z][a-z]+)\s+(I{2,3}|IV|VI{0,3}|IX|XI{0,3}|XIV|XV|XVI)\b"),
     lambda m: f"{m[1]} the {_ordinal(_roman(m[2]))}"),
    (re.compile(r"(?<=\d)\s?[x×*]\s?(?=\d)"), " times "),
    (re.compile(r"(?:#|\b(?:No|no|Nr)\.\s?)(?=\d)"), "number "),
    (re.compile(r"[~≈]\s?(?=\d)"), "about "),
    (re.compile(r"(?<=\w)²|\^2\b"), " squared"),
    (re.compile(r"(?<=\w)³|\^3\b"), " cubed"),
    (re.compile(r"(?<=\w)\^(?=\w)"), " to the power of "),
)  # fmt: skip
