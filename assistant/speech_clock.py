"""Times, dates, years and telephone numbers as English people say them. Pure; imports `speech_numbers`."""

from __future__ import annotations

import re

from assistant.speech_numbers import Rule, decade, in_words, ordinal, year

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip
_SHORT_MONTH = "|".join([*(month[:3] for month in _MONTHS if month != "May"), "Sept"])
_MONTH = "|".join([*_MONTHS, _SHORT_MONTH])
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DAY = "Mon|Tues|Tue|Wed|Thurs|Thur|Thu|Fri|Sat|Sun"
_YEAR_CUE = "in|since|from|until|till|by|before|circa|years?|between|during|early|late|born|died"
_YEAR_CUE += "|spring|summer|autumn|fall|winter|" + "|".join(_MONTHS)
_WEAK_CUE = "after|around|of|and|to"
"""Before a year, and before other numbers as often: "a pin of 1234"."""
_DECADE_CUE = "|".join(f"(?<={word})" for word in ("the ", "early ", "late ", "mid-", "his ", "her ", "your ", "my ",
                                                   "their "))  # fmt: skip
_CENTURY = r"(?:1[1-9]|20)"
_WORDED = "(?:" + "|".join(in_words(century) for century in range(11, 21)) + ")"
"""How years begin that were said already: numbers in a list with them are years, too."""
_CLOCK = r"(?:[01]?\d|2[0-4]):[0-5]\d"
_HALF = r"\s?(?P<half>[AaPp])\.?[Mm]\b"
_COUNTED = (
    "people|men|women|children|years?|days?|hours?|minutes?|seconds?|meters|metres|kilometers|miles|feet|inches|yards"
    "|kilograms|pounds|grams|dollars|euros|cents|calories|degrees|percent|bytes|words|times|square|cubic|liters|watts"
    "|points|steps|pages"
)


def time(text: str, half: str = "", *, short: bool = False) -> str:
    """ "8:05" -> "8 oh 5", "8:00" -> "8 o'clock", with a half of the day or `short`: "8". `text` may have seconds."""
    hour, minute, *rest = (int(part) for part in text.split(":"))
    if minute:
        said = f"{hour} {minute}" if minute > 9 else f"{hour} oh {minute}"
    elif half or (short and 0 < hour < 13):
        said = str(hour)
    elif hour in (0, 24):
        said = "midnight"
    else:
        said = f"{hour} o'clock" if hour <= 12 else f"{hour} hundred hours"
    if rest and rest[0]:
        said += f" and {rest[0]} second{'' if rest[0] == 1 else 's'}"
    return f"{said} {half.upper()}M" if half else said


def _range_of_times(match: re.Match[str]) -> str:
    first = time(match[1], match[2] or "", short=True)
    return f"{first} to {time(match[3], match[4] or '', short=True)}"


def _date(year_: str, month: str, day: str, otherwise: str) -> str:
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return otherwise
    return f"{_MONTHS[int(month) - 1]} {ordinal(int(day))}, {year(year_)}"


def _moment(match: re.Match[str]) -> str:
    zone = {"": "", "Z": " UTC"}.get(match["zone"] or "", f" UTC {match['zone']}")
    date = _date(match["year"], match["month"], match["day"], match[0])
    return match[0] if date == match[0] else f"{date} at {time(match['time'])}{zone}"


def _short_date(match: re.Match[str]) -> str:
    """ "3/10" after "on"."""
    month, day = int(match[2]), int(match[3])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return f"{month}/{day}"
    return f"{_MONTHS[month - 1]} {ordinal(day)}"


def _month(text: str) -> str:
    return next(name for name in _MONTHS if name.startswith(text[:3]))


def _day_of_month(match: re.Match[str]) -> str:
    if int(match["day"]) > 31:
        return match[0]
    last = f" to {ordinal(int(match['last']))}" if match["last"] else ""
    when = f", {year(match['year'])}" if match["year"] else ""
    return f"{_month(match['month'])} {ordinal(int(match['day']))}{last}{when}"


def _day_before_month(match: re.Match[str]) -> str:
    if not 1 <= int(match["day"]) <= 31:
        return match[0]
    article = match["the"] or ("The " if not match.start() else "the ")
    when = f", {year(match['year'])}" if match["year"] else ""
    return f"{article}{ordinal(int(match['day']))} of {_month(match['month'])}{when}"


def _digits(match: re.Match[str]) -> str:
    """A telephone number, digit by digit, with a breath between its groups."""
    text = match[0].replace("(0)", "") if match[0].startswith("+") else match[0]
    said = ", ".join(" ".join(group) for group in re.findall(r"\d+", text))
    return f"plus {said}" if text.startswith("+") else said


def _weekday(text: str) -> str:
    return next(day for day in _DAYS if day.startswith(text[:3]))


def _bare_year(match: re.Match[str]) -> str:
    return (f"{match[1]} " if match[1] else match[2]) + year(match[3])


def dates() -> tuple[Rule, ...]:
    """What consists of several numbers: before ranges and fractions are looked for."""
    return (
        (
            re.compile(
                r"(?<!\d)(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)[T ](?P<time>\d\d:\d\d(?::\d\d)?)(?:\.\d+)?"
                r"(?P<zone>Z|[+-]\d\d:?\d\d)?(?!\d)"
            ),
            _moment,
        ),
        (re.compile(r"(?<![\d-])(\d{4})-(\d{2})-(\d{2})(?![\d-])"), lambda m: _date(m[1], m[2], m[3], m[0])),
        (re.compile(r"(?<![\d/])(\d{1,2})/(\d{1,2})/(\d{4})(?![\d/])"), lambda m: _date(m[3], m[1], m[2], m[0])),
        (re.compile(r"(?<![\d.])(\d{1,2})\.(\d{1,2})\.(\d{4})(?![\d]|\.\d)"), lambda m: _date(m[3], m[2], m[1], m[0])),
        (
            re.compile(
                r"(?i:\b(on|until|till|from|since|by) )(\d{1,2})/(\d{1,2})"
                r"(?![/\d]|\.\d|\s(?:cups?|of|tea|table|tsp|tbsp|the|inch|full))"
            ),
            lambda m: f"{m[1]} " + _short_date(m),
        ),
        (re.compile(r"(?<![\d.])\+\d[\d ().-]{6,16}\d(?!\d)"), _digits),
        (re.compile(r"(?<![\d.])(?:1[ .-])?\(?\d{3}\)?[ .-]\d{3}[.-]\d{4}(?!\d)"), _digits),
        (re.compile(r"(?<![\d.-])\d{3}-\d{4}(?![\d-])"), _digits),
        (re.compile(r"(?<!\w)(?:\(0\d{1,4}\)\s?|0\d{1,4}[ /-])\d{3,8}(?!\d)"), _digits),
        (re.compile(r"(?<=[Cc]all )\d{3}\b|(?<=[Dd]ial )\d{3}\b|(?<![\w.,$/-])911\b"), _digits),
        (re.compile(r"(?<![\w-])\d{4}(?: \d{4}){2,4}(?![\w-])"), _digits),
        (re.compile(r"(?<![\w.-])\d{1,8}(?:-\d{1,8}){2,8}(?![\w-])"), _digits),
    )


def times() -> tuple[Rule, ...]:
    return (
        (
            re.compile(r"\b(\d{1,3})\s?:\s?(\d{1,3})(?=\s(?:aspect|ratio|screen|display|win|loss|victory|odds)\b)"),
            r"\1 to \2",
        ),
        (
            re.compile(
                r"(?i:(?<=score of )|(?<=ratio of )|(?<=won )|(?<=lost )|(?<=odds of ))"
                r"(\d{1,3}):(\d{1,3})\b"
            ),
            r"\1 to \2",
        ),
        (
            re.compile(
                rf"(?<![\d:])({_CLOCK})(?:\s?([AaPp])\.?[Mm]\b)?\s?(?:[-–]|\bto\b)"
                rf"\s?({_CLOCK})(?![\d:])(?:\s?([AaPp])\.?[Mm]\b)?"
            ),
            _range_of_times,
        ),
        (
            re.compile(rf"(?<![\d:])({_CLOCK}(?::[0-5]\d)?)(?![\d:])(?:\s?([AaPp])[Mm]\b)?"),
            lambda m: time(m[1], m[2] or ""),
        ),
        (
            re.compile(rf"(?<![\d.:])(?P<hour>1[0-2]|0?[1-9]){_HALF}"),
            lambda m: f"{int(m['hour'])} {m['half'].upper()}M",
        ),
        (re.compile(r"(?<=\b[AP]M)\s?[-–]\s?(?=\d)|(?<=\d)\s?[-–]\s?(?=\d{1,2}(?: \d\d)? [AP]M\b)"), " to "),
        (re.compile(r"(?<![\d:.])(\d{1,3}):(\d{1,3})(?!\d|[:.,]\d)"), r"\1 to \2"),
    )


def days() -> tuple[Rule, ...]:
    when = rf"(?:,?\s+(?P<year>{_CENTURY}\d\d)\b)?"
    return (
        (
            re.compile(rf"\b({_DAY})\b\.?\s?(?:[-–]|\bto\b)\s?({_DAY})\b\.?(?![a-z])"),
            lambda m: f"{_weekday(m[1])} to {_weekday(m[2])}",
        ),
        (
            re.compile(rf"\b({_DAY})(?:\.,?|,)(?=\s(?:{_MONTH}|\d|&|and\b))|\b(Mon|Tues?|Wed|Thurs?|Fri)\."),
            lambda m: _weekday(m[1] or m[2]) + ("," if m[0][-1] == "," else ""),
        ),
        (
            re.compile(
                rf"\b(?P<month>{_MONTH})\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b"
                r"(?![:,.]\d|\s(?:AM|PM|to \d+ [AP]M)\b)"
                rf"(?:\s?[-–]\s?(?P<last>\d{{1,2}})(?:st|nd|rd|th)?\b)?{when}"
            ),
            _day_of_month,
        ),
        (
            re.compile(
                rf"(?P<the>\b[Tt]he\s)?(?<![\d.,:/-])(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\.?\s+"
                rf"(?P<month>{_MONTH})\b(?!\s\d{{1,2}}\b){when}"
            ),
            _day_before_month,
        ),
        (
            re.compile(rf"\b({_SHORT_MONTH})\.?(?=\s+{_CENTURY}\d\d\b)"),
            lambda m: _month(m[1]),
        ),
    )


def years() -> tuple[Rule, ...]:
    return (
        (re.compile(rf"\b({_CENTURY}\d0)['’]?s\b"), lambda m: decade(m[1])),
        (
            re.compile(
                rf"(?<!\w)['’]([1-9]0)s\b|\b(?:{_DECADE_CUE})([1-9]0)s\b"
                r"|\b([2-9]0)['’]s\b"
            ),
            lambda m: decade(next(filter(None, m.groups()))),
        ),
        (
            re.compile(rf"(?<![\w.,-])({_CENTURY}\d\d)\s?[-–]\s?((?:{_CENTURY})?\d\d)(?!,?\d|\.\d|\w)"),
            lambda m: f"{year(m[1])} to {year(m[2]) if len(m[2]) == 4 else m[2]}",
        ),
    )


def bare_years() -> tuple[Rule, ...]:
    """Four digits that are a year, because of what stands beside them, or because they look like one of our time."""
    no_amount = rf"(?!,?\d|\.\d|\w|\s?[-–/x×%]\s?\d|\s+(?:{_COUNTED})\b)"
    return (
        (re.compile(rf"(?i:\b({_YEAR_CUE})\s+|(\())({_CENTURY}\d\d|10[6-9]\d){no_amount}"), _bare_year),
        (re.compile(rf"(?i:\b({_WEAK_CUE})\s+)()((?:1[4-9]|20)\d\d){no_amount}"), _bare_year),
        (re.compile(rf"(?<![\w.,$€£#/^-])(?<![-+=<>×*] )((?:19|20)\d\d){no_amount}"), lambda m: year(m[1])),
        (
            re.compile(
                rf"(?<![\w.,$€£#/^-])({_CENTURY}\d\d|10[6-9]\d)"
                rf"(?=(?:,|,? and|,? or) (?:{_WORDED}|{_CENTURY}\d\d(?![\d,.]?\d))\b)"
            ),
            lambda m: year(m[1]),
        ),
        (re.compile(rf"\b({_CENTURY}\d\d)(?=\s(?:BCE?|AD|CE)\b)"), lambda m: year(m[1])),
        (re.compile(r"\b(720|1080|1440|2160)p\b"), lambda m: f"{m[1][:-2]} {m[1][-2:]} p"),
    )
