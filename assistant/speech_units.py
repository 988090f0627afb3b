"""Units as English people say them: "10 km/h" -> "10 kilometers per hour". Pure; imports `speech_numbers`."""

from __future__ import annotations

import re

from assistant.speech_numbers import NUMBER, Rule

_UNITS = {
    "km": "kilometers", "m": "meters", "cm": "centimeters", "mm": "millimeters", "nm": "nanometers", "mi": "miles",
    "ft": "feet", "yd": "yards", "kg": "kilograms", "g": "grams", "mg": "milligrams", "mcg": "micrograms", "t": "tons",
    "lb": "pounds", "lbs": "pounds", "oz": "ounces", "L": "liters", "l": "liters", "dL": "deciliters",
    "dl": "deciliters",
    "cl": "centiliters", "ml": "milliliters", "mL": "milliliters", "gal": "gallons", "qt": "quarts", "pt": "pints",
    "tsp": "teaspoons", "tbsp": "tablespoons", "Tbsp": "tablespoons", "ha": "hectares", "sq ft": "square feet",
    "sq mi": "square miles", "sq km": "square kilometers", "fl oz": "fluid ounces",
    "°C": "degrees Celsius", "°F": "degrees Fahrenheit", "°": "degrees", "℃": "degrees Celsius",
    "℉": "degrees Fahrenheit", "KB": "kilobytes", "kB": "kilobytes", "MB": "megabytes", "MiB": "mebibytes",
    "GB": "gigabytes", "GiB": "gibibytes", "TB": "terabytes", "kbit": "kilobits", "Mbit": "megabits",
    "Gbit": "gigabits",
    "Hz": "hertz", "kHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz", "W": "watts", "kW": "kilowatts",
    "MW": "megawatts", "GW": "gigawatts", "mW": "milliwatts", "Wh": "watt hours", "kWh": "kilowatt hours",
    "MWh": "megawatt hours", "V": "volts", "mV": "millivolts", "kV": "kilovolts", "mA": "milliamperes",
    "mAh": "milliampere hours", "Pa": "pascals", "hPa": "hectopascals", "kPa": "kilopascals", "mbar": "millibars",
    "mmHg": "millimeters of mercury", "psi": "pounds per square inch", "J": "joules", "kJ": "kilojoules",
    "kcal": "kilocalories", "cal": "calories", "N": "newtons", "ns": "nanoseconds", "ms": "milliseconds",
    "s": "seconds",
    "sec": "seconds", "secs": "seconds", "min": "minutes", "mins": "minutes", "h": "hours", "hr": "hours",
    "hrs": "hours", "yr": "years", "yrs": "years", "dB": "decibels", "px": "pixels", "mph": "miles per hour",
    "kph": "kilometers per hour", "kmh": "kilometers per hour", "mpg": "miles per gallon",
    "rpm": "revolutions per minute",
    "bpm": "beats per minute", "fps": "frames per second", "kbps": "kilobits per second", "Mbps": "megabits per second",
    "Gbps": "gigabits per second", "ppm": "parts per million", "atm": "atmospheres",
}  # fmt: skip
_PER = {
    "h": "hour", "hr": "hour", "s": "second", "sec": "second", "min": "minute", "mo": "month", "yr": "year",
    "m": "meter", "km": "kilometer", "cm": "centimeter", "kg": "kilogram", "g": "gram", "L": "liter", "l": "liter",
    "dL": "deciliter", "ml": "milliliter", "mL": "milliliter", "gal": "gallon", "ft": "foot", "mi": "mile", "d": "day",
    "in": "inch", "W": "watt", "kWh": "kilowatt hour", "GB": "gigabyte",
}  # fmt: skip
_WORDS = "hour|day|week|month|year|person|second|minute|night|kilometer|mile|liter|cup|serving|gallon|user"
_POWERS = {"2": "square ", "²": "square ", "3": "cubic ", "³": "cubic "}
_BARE = {"km/h": "kilometers per hour", "mph": "miles per hour", "m/s": "meters per second", "kWh": "kilowatt hours",
         "kg": "kilograms", "km": "kilometers", "cm": "centimeters", "°C": "degrees Celsius",
         "°F": "degrees Fahrenheit", "Mbps": "megabits per second"}  # fmt: skip
_LONE_FRACTION = re.compile(r"(?:\A|[^\d\s])\s{0,3}\d{1,2}/\Z")
"""Before the lower number of a fraction that has no whole one before it."""
_COMPASS = {"N": "north", "S": "south", "E": "east", "W": "west"}


def _either(words: dict[str, str]) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))


def _one(unit: str) -> str:
    """ "kilometers per hour" -> "kilometer per hour"."""
    first, _, rest = unit.partition(" ")
    if first in ("square", "cubic", "fluid") or rest == "hours":
        return f"{first} {_one(rest)}"
    first = "foot" if first == "feet" else first if first == "hertz" else first.removesuffix("s")
    return f"{first} {rest}".strip()


def _unit(match: re.Match[str]) -> str:
    amount, power, per = match["amount"], match["power"] or match["sign"], match["per"]
    unit = _POWERS.get(power or "", "") + _UNITS[match["unit"]]
    lone = _LONE_FRACTION.search(match.string[max(0, match.start() - 8) : match.start()])
    if amount == "1" or match["hyphen"] or lone:
        unit = _one(unit)
    if per:
        deep = match["deep"]
        below = _PER.get(per, per)
        after = " squared" if deep in ("2", "²") and below == "second" else ""
        unit += f" per {'' if after else _POWERS.get(deep or '', '')}{below}{after}"
    return f"{amount} {unit}"


def _feet(match: re.Match[str]) -> str:
    return f"{match[1]} foot {match[2]}" + (" inches" if match[3] else "")


def units() -> tuple[Rule, ...]:
    unit, per = _either(_UNITS), _either(_PER)
    return (
        (re.compile(r"(?<![\d.])(\d{1,2})\s?['′]\s?(\d{1,2})\s?([\"″])"), _feet),
        (re.compile(r"(?<![\w.'’])([4-7])['′](\d{1,2})()(?![\w'’])"), _feet),
        (
            re.compile(
                rf"({NUMBER})″"
                rf"|(?<![\w\"])({NUMBER})\"(?=\s(?:screen|pizza|display|monitor|pipe|tv|TV|laptop|wheels?)\b)"
            ),
            lambda m: f"{m[1] or m[2]} inch",
        ),
        (
            re.compile(rf"({NUMBER})\s?(?:ft|feet|foot)\.?\s({NUMBER})\s?(?:in|inches)\b(?:\.(?!\s*\Z))?"),
            r"\1 feet \2 inches",
        ),
        (re.compile(rf"({NUMBER})\s?in(?=\s(?:long|wide|tall|high|thick|deep|screen)\b|\s?[x×]\s?\d)"), r"\1 inches"),
        (re.compile(r"(?<=\d)\s?°\s?([NSEW])\b"), lambda m: f" degrees {_COMPASS[m[1]]}"),
        (re.compile(r"(?<=\d)\s?°(?=\s(?:angle|turn|rotation|view|bend|corner)\b)"), " degree"),
        (
            re.compile(r"(?<![\w.])(-?\d{2,3})([CF])\b(?!\s?[+#])"),
            lambda m: f"{m[1]} degrees {'Celsius' if m[2] == 'C' else 'Fahrenheit'}",
        ),
        (
            re.compile(r"(?<=\d)\s?[mM]\s(?=(?:people|users|views|copies|followers|inhabitants|visitors|customers)\b)"),
            " million ",
        ),
        (
            re.compile(
                rf"(?P<amount>{NUMBER})(?:\s|(?P<hyphen>-))?(?P<unit>{unit})(?:\^?(?P<power>[23])|(?P<sign>[²³]))?"
                rf"(?:\s?/\s?(?P<per>{per}|{_WORDS})(?:\^?(?P<deep>[23²³]))?)?(?![\w/°'’])"
            ),
            _unit,
        ),
        (re.compile(rf"(?<=[a-z\d])\s?/\s?(h|hr|s|min|mo|yr|{_WORDS})\b"), lambda m: f" per {_PER.get(m[1], m[1])}"),
        (re.compile(rf"(?<=[a-z]s)/({per})\b"), lambda m: f" per {_PER[m[1]]}"),
        (re.compile(rf"(?<![\w/°])(?:{_either(_BARE)})(?![\w/])"), lambda m: _BARE[m[0]]),
        (
            re.compile(r"(?<![\w.,])(\d+(?:\.\d+)?)\s?k(?=\+|\s[a-z])(?<!401k)(?!\s(?:run|race|tv|video))"),
            r"\1 thousand",
        ),
        (
            re.compile(r"(?<![\w.,])(\d+\.\d+)\s?([MB])(?=\s[a-z])"),
            lambda m: f"{m[1]} {'million' if m[2] == 'M' else 'billion'}",
        ),
        (re.compile(r"(?<![\w.,])(\d+)([kK])\b(?=\s(?:run|race|TV|tv|video|resolution|screen|display))"), r"\1 K"),
    )


def ranges() -> tuple[Rule, ...]:
    """Dashes between two amounts: before the units, which belong to both."""
    unit = _either(_UNITS)
    return (
        (re.compile(rf"(?<![\d,])(\d{{1,3}}),(\d{{1,2}})(?=\s?(?:{unit}|%)(?!\w))"), r"\1.\2"),
        (re.compile(rf"(?<=\d)(\s?(?:%|{unit}))\s-\s(?={NUMBER}\s?(?:%|{unit})(?!\w))"), r"\1 to "),
        (
            re.compile(
                rf"(?<![A-Za-z\d_])(?<!\d,)(\d[\d,]*(?:\.\d+)?(?:\s?(?:%|(?:{unit})(?:/[a-z]{{1,3}})?))?)"
                rf"\s?(?:–|(?<! )-(?! ))\s?(?={NUMBER}(?![\d-]))"
            ),
            r"\1 to ",
        ),
        (re.compile(r"(?<=\d)\s–\s(?=\d)"), " to "),
    )
