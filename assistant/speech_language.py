"""Which rules the text for a voice is read by: a table of languages. Pure but for `of_voice`, which reads one small
file; imports the other `speech_` modules and `language_code`.

English has rules of its own; German, French, Chinese and Korean a few words. For any other language numbers and
symbols are left to espeak-ng, which knows a hundred of them, and only markdown, addresses, emoji and words in other
scripts go.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from assistant import speech_english, speech_letters, speech_others
from assistant.language_code import base_of

_VOICE_NAME = re.compile(r"([a-z]{2,3})(?:[_-][A-Za-z]{2,4})?(?=-|\Z)")


@dataclass(frozen=True, slots=True)
class Language:
    code: str
    """ISO 639: "en"."""
    spell_out: Callable[[str], str]
    """Of one line: what is written short, as it is said."""
    scripts: tuple[str, ...] = ()
    """Besides Latin, as Unicode names begin: letters of others are left out."""
    code_mention: str = ""
    """Said where a block of code stood."""
    any_script: bool = False
    """All letters stay."""
    symbols: Callable[[str], str] = str
    """Before letters of other scripts go: those that are symbols get their names."""


def _others(code: str) -> Callable[[str], str]:
    return functools.partial(speech_others.spell_out, code)


_LANGUAGES = {
    "en": Language("en", speech_english.spell_out, symbols=speech_letters.symbols, code_mention="Code omitted."),
    "de": Language("de", _others("de"), code_mention="Code ausgelassen."),
    "fr": Language("fr", _others("fr"), code_mention="Code omis."),
    "zh": Language("zh", _others("zh"), scripts=("CJK", "BOPOMOFO"), code_mention="代码省略。"),
    "ko": Language("ko", _others("ko"), scripts=("HANGUL",), code_mention="코드 생략."),
}
_SCRIPTS = {
    "ja": ("CJK", "HIRAGANA", "KATAKANA"), "ru": ("CYRILLIC",), "uk": ("CYRILLIC",), "bg": ("CYRILLIC",),
    "sr": ("CYRILLIC",), "kk": ("CYRILLIC",), "el": ("GREEK",), "ar": ("ARABIC",), "fa": ("ARABIC",), "ur": ("ARABIC",),
    "he": ("HEBREW",), "hi": ("DEVANAGARI",), "mr": ("DEVANAGARI",), "ne": ("DEVANAGARI",), "ka": ("GEORGIAN",),
    "hy": ("ARMENIAN",), "te": ("TELUGU",), "ta": ("TAMIL",), "ml": ("MALAYALAM",), "bn": ("BENGALI",), "th": ("THAI",),
}  # fmt: skip
_SAME = {"cmn": "zh", "yue": "zh", "eng": "en", "deu": "de", "ger": "de", "fra": "fr", "fre": "fr", "kor": "ko"}
_LATIN = "af ca cs cy da es et eu fi ga hr hu id is it lb lt lv ms nb nl nn no pl pt ro sk sl sq sv sw tr vi"


def language(code: str) -> Language:
    """The rules of "en", "de_DE", "zh-CN", "cmn"; for a language that nothing is known of, all letters stay."""
    plain = _SAME.get(base_of(code), base_of(code))
    known = _LANGUAGES.get(plain)
    if known is not None:
        return known
    any_script = plain not in _SCRIPTS and plain not in _LATIN.split(" ")
    return Language(plain, _others(plain), scripts=_SCRIPTS.get(plain, ()), any_script=any_script)


def of_voice(model: str, folder: Path | None = None, configured: str = "") -> str:
    """The language that a voice speaks: as configured, else as the file beside the voice says, else by its name
    ("de_DE-thorsten-medium"), else English. With a `folder` it asks the disk. Raises `OSError` when that fails."""
    return configured or (_written(folder / f"{model}.onnx.json") if folder is not None else "") or _named(model)


def _named(model: str) -> str:
    found = _VOICE_NAME.match(model)
    return found[1] if found and (found.end() < len(model) and "_" in found[0]) else "en"


def _written(path: Path) -> str:
    """ "" where nothing is written."""
    try:
        found = json.loads(path.read_bytes())
        code = (found.get("language") or {}).get("code") or (found.get("espeak") or {}).get("voice") or ""
    except (FileNotFoundError, NotADirectoryError, ValueError, AttributeError):
        return ""
    return code if isinstance(code, str) else ""
