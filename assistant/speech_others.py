"""What little is said of German, French, Chinese and Korean text; all else is left to espeak-ng. Pure; imports
`speech_numbers` for its `Rule`.

espeak-ng knows the numbers, the percent sign and the currencies of these languages (checked by its phonemes), but says
"k m" for kilometers in all but French, leaves out the dash of a range, and reads "%" and "°C" in Chinese and Korean in
English.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from assistant.speech_numbers import Rule

_NUMBER = r"(?<![\d.,])\d{1,15}(?:[.,]\d{1,15}){0,5}"
"""Bounded, so that a thousand of digits and dots take no second."""
# digits stand beside letters without a space: no \b
_WHOLE_HOUR = r"(?<![\d:])([01]?\d|2[0-3]):00(?![\d:])"
_CLOCK = r"(?<![\d:])([01]?\d|2[0-3]):([0-5]\d)(?![\d:])"
_DATE = r"(?<![\d-])(\d{4})-0?(\d{1,2})-0?(\d{1,2})(?![\d-])"
_GERMAN_HUNDREDS = {
    11: "elf", 12: "zwölf", 13: "dreizehn", 14: "vierzehn", 15: "fünfzehn", 16: "sechzehn", 17: "siebzehn",
    18: "achtzehn", 19: "neunzehn",
}  # fmt: skip
_GERMAN_MONTHS = ("Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober",
                  "November", "Dezember")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Words:
    """How a few things that are written short are said in one language."""

    to: str
    """Between the ends of a range."""
    units: Mapping[str, str]
    """Behind a number."""
    short: Mapping[str, str]
    """Regular expressions and what is said instead."""
    space: str = " "


WORDS: Mapping[str, Words] = {
    "de": Words(
        to=" bis ",
        units={"km/h": "Kilometer pro Stunde", "km": "Kilometer", "m": "Meter", "cm": "Zentimeter", "mm": "Millimeter",
               "kg": "Kilogramm", "g": "Gramm", "l": "Liter", "ml": "Milliliter", "°C": "Grad Celsius", "°": "Grad",
               "GB": "Gigabyte", "MB": "Megabyte", "kWh": "Kilowattstunden", "kW": "Kilowatt", "W": "Watt",
               "min": "Minuten", "Std": "Stunden", "h": "Stunden", "s": "Sekunden"},
        short={r"\bz\.\s?B\.": "zum Beispiel", r"\bd\.\s?h\.": "das heißt", r"\bu\.\s?a\.": "unter anderem",
               r"\busw\.": "und so weiter", r"\bbzw\.": "beziehungsweise", r"\bca\.": "circa", r"\bDr\.": "Doktor",
               r"\bNr\.\s?(?=\d)": "Nummer ", r"\bStr\.": "Straße", r"(?<=\d)\s?&\s?(?=\d)|\s&\s": " und "},
    ),
    "fr": Words(
        to=" à ",
        units={"km/h": "kilomètres à l'heure", "km": "kilomètres", "m": "mètres", "cm": "centimètres", "kg": "kilos",
               "g": "grammes", "l": "litres", "ml": "millilitres", "°C": "degrés Celsius", "°": "degrés",
               "Go": "gigaoctets", "Mo": "mégaoctets", "kWh": "kilowattheures", "min": "minutes"},
        short={r"\bM\.(?=\s[A-Z])": "Monsieur", r"\bMme\b\.?": "Madame", r"\bp\.\s?ex\.": "par exemple",
               r"\bc\.-à-d\.": "c'est-à-dire", r"\b[nN]°\s?(?=\d)": "numéro ", r"\s&\s": " et ",
               _CLOCK: r"\1 heures \2", r"(?<=\d)\s?h\s?(?=[0-5]\d\b)": " heures "},
    ),
    "zh": Words(
        to="到",
        units={"km/h": "公里每小时", "km": "公里", "m": "米", "cm": "厘米", "mm": "毫米", "kg": "公斤", "g": "克",
               "ml": "毫升", "l": "升", "L": "升",
               "°C": "摄氏度", "℃": "摄氏度", "°": "度", "GB": "千兆字节", "kWh": "千瓦时"},
        short={rf"({_NUMBER})\s?[%％]": r"百分之\1", _WHOLE_HOUR: r"\1点",
               _CLOCK: r"\1点\2分", rf"[¥￥]\s?({_NUMBER})": r"\1元",
               rf"\$\s?({_NUMBER})": r"\1美元",
               r"\s?&\s?": "和", _DATE: r"\1年\2月\3日"},
        space="",
    ),
    "ko": Words(
        to="에서 ",
        units={"km/h": "킬로미터", "km": "킬로미터", "m": "미터", "cm": "센티미터", "mm": "밀리미터",
               "kg": "킬로그램", "g": "그램",
               "ml": "밀리리터", "L": "리터", "l": "리터", "°C": "도", "℃": "도", "°": "도",
               "GB": "기가바이트", "kWh": "킬로와트시"},
        short={rf"({_NUMBER})\s?km/h": r"시속 \1 킬로미터", r"(?<=\d)\s?%": " 퍼센트",
               rf"₩\s?({_NUMBER})": r"\1원",
               rf"\$\s?({_NUMBER})": r"\1 달러", _WHOLE_HOUR: r"\1시",
               _CLOCK: r"\1시 \2분",
               _DATE: r"\1년 \2월 \3일"},
    ),
}  # fmt: skip


def spell_out(language: str, text: str) -> str:
    """One line with what is written short spelled out; unchanged for a language that is not in `WORDS`."""
    for pattern, how in _rules(language):
        text = pattern.sub(how, text)
    return text


@lru_cache(maxsize=8)
def _rules(language: str) -> tuple[Rule, ...]:
    words = WORDS.get(language)
    if words is None:
        return ()
    units = "|".join(sorted(map(re.escape, words.units), key=len, reverse=True))
    return (
        *_own(language),
        *((re.compile(pattern), by) for pattern, by in words.short.items()),
        (re.compile(rf"(?<=\d)(\s?(?:{units}|%))?\s?[-–~～](?=\s?\d)\s?(?!\d{1, 12}[-–])"), rf"\1{words.to}"),
        (re.compile(rf"({_NUMBER})\s?({units})(?![A-Za-zÀ-ÿ\d/])"), lambda m: m[1] + words.space + words.units[m[2]]),
    )


def _own(language: str) -> tuple[Rule, ...]:
    if language != "de":
        return ()
    return (
        (
            re.compile(r"\b(\d{1,2})\.\s?(0?[1-9]|1[0-2])\.\s?(\d{4})\b"),
            lambda m: f"{m[1]}. {_GERMAN_MONTHS[int(m[2]) - 1]} {m[3]}",
        ),
        (
            re.compile(r"\b(\d{4})-(0[1-9]|1[0-2])-0?(\d{1,2})\b"),
            lambda m: f"{m[3]}. {_GERMAN_MONTHS[int(m[2]) - 1]} {m[1]}",
        ),
        (re.compile(r"\b([01]?\d|2[0-3]):00\s?Uhr"), r"\1 Uhr"),
        (re.compile(r"\b([01]?\d|2[0-3]):([0-5]\d)(?:\s?Uhr)?\b"), lambda m: f"{m[1]} Uhr {int(m[2])}"),
        (
            re.compile(r"(?<![\d.,])(1[1-9])(\d\d)(?![\d.,]?\d)(?!\s?(?:€|Euro|km|m|kg|g|Meter|Kilometer)\b)"),
            lambda m: f"{_GERMAN_HUNDREDS[int(m[1])]}hundert" + (m[2].lstrip("0") and f" {int(m[2])}"),
        ),
        (
            re.compile(r"(?<![\d.,])(\d{1,12}),(\d\d)\s?€"),
            lambda m: f"{m[1]} Euro {int(m[2])}" if int(m[2]) else f"{m[1]} Euro",
        ),
        (re.compile(r"€\s?(\d+)"), r"\1 Euro"),
    )
