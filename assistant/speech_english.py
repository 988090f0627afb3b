"""English as it is spoken: puts together what is said of numbers, and says abbreviations, addresses and symbols.

Pure; imports the other `speech_` modules. Only what espeak-ng gets wrong is touched (checked by its phonemes). The
order matters: what consists of several numbers comes before what consists of one.
"""

from __future__ import annotations

import re
from functools import lru_cache

from assistant import speech_clock, speech_money, speech_numbers, speech_units
from assistant.speech_numbers import Rule

_FILES = "py|txt|md|json|toml|yaml|yml|html|css|js|ts|pdf|docx?|xlsx?|csv|zip|png|jpe?g|gif|mp3|mp4|wav|exe|sh|c|cpp|rs"
_ENDINGS = "com|org|net|edu|gov|io|ai|app|dev|info|co|uk|de|fr|eu|us|ca|au|ch|at|nl|it|es|jp|cn|kr|local"
_VERSIONED = (
    "[Vv]ersions?|[Rr]elease|Python|Java|Node|iOS|iPadOS|macOS|Android|Ubuntu|Debian|Fedora|Linux|kernel|Firefox|Chrome"
    "|Django|Go|Rust|Ruby|PHP|Swift|Kotlin|USB|HDMI|Bluetooth"
)
_TITLES = {
    "Prof": "Professor", "Mt": "Mount", "Ft": "Fort", "Gen": "General", "Sgt": "Sergeant", "Capt": "Captain",
    "Lt": "Lieutenant", "Col": "Colonel", "Gov": "Governor", "Sen": "Senator", "Rep": "Representative",
    "Rev": "Reverend", "Hon": "Honorable", "Pres": "President", "Dr": "Dr",
    "Mr": "Mr", "Mrs": "Mrs", "Ms": "Ms", "St": "St",
}  # fmt: skip
_BEHIND_NAMES = {
    "Jr": "Junior", "Sr": "Senior", "Inc": "Incorporated", "Ltd": "Limited", "Corp": "Corporation", "Bros": "Brothers",
    "Ave": "Avenue", "Blvd": "Boulevard", "Rd": "Road", "St": "Street", "Hwy": "Highway",
}  # fmt: skip
_BEFORE_NUMBERS = {
    "Nos": "numbers", "p": "page", "pp": "pages", "fig": "figure", "figs": "figures", "vol": "volume", "ch": "chapter",
    "sec": "section", "art": "article", "ext": "extension", "tel": "telephone", "max": "maximum", "min": "minimum",
    "ca": "around", "c": "around", "est": "established", "approx": "approximately", "avg": "average",
}  # fmt: skip
_PLAIN = {
    "approx": "approximately", "dept": "department", "incl": "including", "excl": "excluding", "govt": "government",
    "misc": "miscellaneous", "resp": "respectively",
}  # fmt: skip
_SLASHED = {"w/o": "without", "w/": "with", "b/c": "because", "n/a": "not applicable", "N/A": "not applicable",
            "c/o": "care of", "and/or": "and or", "a/c": "A C"}  # fmt: skip


def _dotted(text: str) -> str:
    return text.replace(".", " dot ").replace("_", " underscore ").replace("-", " dash ")


def _path(match: re.Match[str]) -> str:
    said = match[0].replace("~", " tilde ").replace("/", " slash ")
    return said.replace(".", " dot ").rstrip()


def _addresses() -> tuple[Rule, ...]:
    return (
        (
            re.compile(r"(?<![\w.+-])([\w.+-]{1,64})@((?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24})\b"),
            lambda m: f"{_dotted(m[1]).replace('+', ' plus ')} at {m[2].replace('.', ' dot ')}",
        ),
        (
            re.compile(
                rf"(?<![\w.@-])((?:[A-Za-z0-9-]{{1,63}}\.){{1,6}}(?:{_ENDINGS}))(?:/[\w./?=&%#~-]{{0,500}}[\w/])?(?![\w@-]|\.\w)"
            ),
            lambda m: m[1].replace(".", " dot "),
        ),
        (
            re.compile(r"(?<![\w.])(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?!\.?\d)(?::(\d{1,5})\b)?"),
            lambda m: " dot ".join(m.groups()[:4]) + (f" port {m[5]}" if m[5] else ""),
        ),
        (re.compile(rf"(?<=[\w-])\.({_FILES})\b(?!\.\w)"), r" dot \1"),
        (re.compile(r"(?<!\S)~?/(?:[\w.-]{1,60}/){1,12}[\w.-]{0,60}|(?<!\S)~/[\w.-]{1,60}"), _path),
        (re.compile(r"\b[vV](?=\d+(?:\.\d+)+\b)"), "version "),
        (
            re.compile(rf"\b({_VERSIONED})\s(\d{{1,4}}(?:\.\d{{1,4}}){{1,3}})(?![\d,]?\d|\.\d)"),
            lambda m: f"{m[1]} {m[2].replace('.', ' point ')}",
        ),
        (re.compile(r"(?<!\S)@\s?(?=[\w$€£])"), "at "),
        (re.compile(r"(?<!\S)#(?=[A-Za-z])"), ""),
        (re.compile(r"\b([CFA])#(?!\w)"), r"\1 sharp"),
        (re.compile(r"(?<!\S)\.(?=NET\b)"), "dot "),
    )


def _abbreviations() -> tuple[Rule, ...]:
    """Those that numbers follow, or that have a slash or full stops."""
    numbered = "|".join(sorted(_BEFORE_NUMBERS, key=len, reverse=True))
    slashed = "|".join(map(re.escape, sorted(_SLASHED, key=len, reverse=True)))
    return (
        (re.compile(r"\b([AaPp])\.\s?[Mm]\.(?=\s*$|\s+[A-Z])"), lambda m: m[1].upper() + "M."),
        (re.compile(r"\b([AaPp])\.\s?[Mm]\b\.?"), lambda m: m[1].upper() + "M"),
        (re.compile(rf"(?<![\w/.])(?:{slashed})(?![\w/])"), lambda m: _SLASHED[m[0]]),
        (re.compile(r"(?<!\w)w/(?=\w{2})"), "with "),
        (re.compile(r"(?:#|\b(?:No|no|Nr|NO)\.\s?)(?=\d)|№\s?"), "number "),
        (re.compile(rf"(?<![\w.])({numbered})\.\s?(?=\d)", re.I), lambda m: _cased(m[1], _BEFORE_NUMBERS) + " "),
        (re.compile(r"\ba\.k\.a\.|\baka\b"), "also known as"),
        (re.compile(r"\bet al\b(?:\.(?!\s*\Z))?"), "and others"),
        (re.compile(r"\bPh\.?\s?D\b(?:\.(?!\s*\Z))?"), "P H D"),
    )


def _cased(word: str, table: dict[str, str]) -> str:
    said = table.get(word) or table[word.lower()]
    return said[0].upper() + said[1:] if word[0].isupper() else said


def _words() -> tuple[Rule, ...]:
    plain = "|".join(_PLAIN)
    return (
        (re.compile(rf"\b({'|'.join(_TITLES)})\.(?=\s+[A-Z]|\sand\s[A-Z])"), lambda m: _TITLES[m[1]]),
        (re.compile(r"\b(Mt|Ft)(?=\s[A-Z][a-z])"), lambda m: _TITLES[m[1]]),
        (
            re.compile(rf"(?<=[A-Za-z\d])(,?\s)({'|'.join(_BEHIND_NAMES)})\.(?=(\s*\Z|\s+[A-Z])|)"),
            lambda m: f"{m[1].strip(',')}{_BEHIND_NAMES[m[2]]}" + ("." if m[3] is not None else ""),
        ),
        (re.compile(r"\be\.\s?g\.,?|\beg\.,?", re.I), "for example,"),
        (re.compile(r"\bi\.\s?e\.,?", re.I), "that is,"),
        (re.compile(r"\betc\.(?=\s*\Z|\s+[A-Z])"), "et cetera."),
        (re.compile(r"\betc\b\.?"), "et cetera"),
        (re.compile(r"\bvs\b\.?"), "versus"),
        (re.compile(r"\bcf\.\s"), "compare "),
        (re.compile(rf"\b({plain})\b\.?", re.I), lambda m: _cased(m[1], _PLAIN)),
        (re.compile(r"\bAT&T\b"), "A T and T"),
        (re.compile(r"\s?&\s?"), " and "),
        (re.compile(r"\bA/C\b"), "A C"),
        (re.compile(r"(?<![/\w])([A-Z]{1,5})/([A-Z]{1,5})(?![/\w])"), r"\1 \2"),
        (re.compile(r"(?<=[A-Za-z])\s?/\s?(?=[A-Za-z])"), " or "),
        (re.compile(r"\s?(?:[→⇒➔➜]|(?<![-<=])[-=]>)\s?"), " to "),
        (re.compile(r"\s+[—–-]+\s+|\s*—\s*"), ", "),
        (re.compile(r"…"), "..."),
        (re.compile(r"(?<=\d)°"), " degrees"),
        (re.compile(r"\^"), " "),
        (re.compile(r"([!?])[!?]+"), r"\1"),
    )


_INITIALS = re.compile(r"\b((?:[A-Z]\.\s?){2,30})(?=(\s*\Z)|(\s*[A-Z])|)")


def _initials(match: re.Match[str]) -> str:
    """ "U.S." -> "U S": espeak would make a pause, or say "us"."""
    letters = " ".join(re.findall("[A-Z]", match[1]))
    if letters in ("A M", "P M"):
        return match[1]
    return letters + ("." if match[2] is not None else " " if match[1].endswith((" ", "\t")) else "")


@lru_cache(maxsize=1)
def _rules() -> tuple[Rule, ...]:
    """Compiled when the first reply is spoken, not when the daemon starts."""
    return (
        (_INITIALS, _initials),
        *_addresses(),
        *_abbreviations(),
        *speech_numbers.signs(),
        *speech_money.money(),
        *speech_clock.dates(),
        *speech_clock.times(),
        *speech_clock.days(),
        *speech_clock.years(),
        *speech_numbers.before_units(),
        *speech_units.ranges(),
        *speech_units.units(),
        *speech_numbers.fractions(),
        *speech_clock.bare_years(),
        *speech_numbers.numerals(),
        *speech_numbers.sums(),
        *_words(),
    )


_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_EXPONENT = re.compile(r"[⁰¹²³⁴-⁹⁻]+")


def spell_out(text: str) -> str:
    """One line, markdown and emoji already gone, with what is written short spelled out."""
    if not text.isascii():
        text = _EXPONENT.sub(lambda m: "^" + m[0].translate(_RAISED), text.translate(_LOWERED))
    for pattern, how in _rules():
        text = pattern.sub(how, text)
    return text
