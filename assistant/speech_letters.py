"""Which letters a voice can read. Pure; imports nothing of ours.

espeak-ng reads a letter of another script as "Japanese letter", one after the other. Words in such scripts are left
out; in English a Greek letter that stands alone is a symbol, and gets its name.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta", "θ": "theta",
    "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma",
    "τ": "tau", "υ": "upsilon", "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega",
}  # fmt: skip
_ANY_GREEK = "\u0370-\u03ff\u1f00-\u1fff"
_MICRO = {"m": "micrometers", "s": "microseconds", "g": "micrograms", "l": "microliters", "L": "microliters",
          "F": "microfarads", "A": "microamperes", "V": "microvolts", "W": "microwatts"}  # fmt: skip
_OHMS = {"": "ohms", "k": "kiloohms", "M": "megaohms", "m": "milliohms"}
_SYMBOLS = (
    (re.compile("µ"), lambda m: "μ"),
    (re.compile(rf"μ([{''.join(_MICRO)}])(?![^\W\d_])"), lambda m: f" {_MICRO[m[1]]}"),
    (re.compile(r"(?<=\d)\s?([kMm]?)Ω(?!\w)"), lambda m: f" {_OHMS[m[1]]}"),
    # a letter of a Greek word has another one beside it
    (re.compile(rf"(?<![{_ANY_GREEK}])([{''.join(_GREEK)}ΓΔΘΛΞΠΣΦΨΩ])(?![{_ANY_GREEK}\u0300-\u036f])"),
     lambda m: f" {_GREEK[m[1].lower()]} "),
)  # fmt: skip
_MARKS = str.maketrans(
    {
        "。": ". ",
        "、": ", ",
        "・": " ",
        "「": '"',
        "」": '"',
        "『": '"',
        "』": '"',
        "،": ",",
        "؛": ";",
        "؟": "?",
        "।": ".",
    }
)
_GAPS = (
    (re.compile(r"\(\s*\)|\"\s*\"|“\s*”|‘\s*’|«\s*»|„\s*[“”]"), " "),  # what stood in them is gone
    (re.compile(r"[,;:]\s*(?=[,.;:!?)])|(?<=[.!?])\s+[,.;:!?]+"), ""),
    (re.compile(r"(?<=\()[\s,;:]+"), ""),
    (re.compile(r"\A[\s,.;:!?)-]+"), ""),
    (re.compile(r"(?<!\S)[-'’]+(?!\S)"), ""),
)


def symbols(text: str) -> str:
    """English names for Greek letters and units that are written with them."""
    for pattern, how in _SYMBOLS:
        text = pattern.sub(how, text)
    return text


def readable(text: str, scripts: tuple[str, ...] = ()) -> str:
    """The text (NFC) with Latin letters, those of `scripts` (as Unicode names begin: "CJK"), digits and punctuation
    alone; "" when no letter or digit is left."""
    if text.isascii():
        return text
    out: list[str] = []
    left_out = lost = False
    for char in text if scripts else text.translate(_MARKS):
        plain = _plain(char, scripts)
        lost = lost or not plain
        if plain and not (left_out and unicodedata.category(char) == "Mn"):
            out.append(plain)
            left_out = False
        elif not left_out:
            out.append(" ")  # words on both sides do not become one
            left_out = True
    said = "".join(out)
    if lost:
        said = _closed(said)
    return said if any(map(str.isalnum, said)) else ""


def _closed(text: str) -> str:
    """Without the brackets and marks that stood beside words which were left out."""
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r" (?=[,.;:!?)])", "", text)
    for pattern, by in _GAPS:
        text = pattern.sub(by, text)
    return re.sub(r"\s+", " ", text)


@lru_cache(maxsize=4096)
def _plain(char: str, scripts: tuple[str, ...]) -> str:
    """The character as the voice can read it; "" for a letter, digit or mark of a script that it does not know."""
    kind = unicodedata.category(char)
    if kind == "Nd":
        return str(unicodedata.digit(char))
    if kind[0] not in "LM" and kind not in ("Nl", "No"):
        width = "" if scripts else unicodedata.east_asian_width(char)
        return unicodedata.normalize("NFKC", char) if width == "F" else char
    name = unicodedata.name(char, "")
    if scripts and name.startswith(scripts):
        return char
    if kind == "Mn" and scripts and name.startswith("COMBINING"):
        return char
    if kind == "Mn":
        return char if name.startswith("COMBINING") and "CYRILLIC" not in name and "KATAKANA" not in name else ""
    if name.startswith(("LATIN ", "MODIFIER LETTER", "FEMININE ORDINAL", "MASCULINE ORDINAL")):
        return "'" if name == "MODIFIER LETTER APOSTROPHE" else char
    same = unicodedata.normalize("NFKC", char)
    foreign = any(c.isalpha() and not unicodedata.name(c, "").startswith("LATIN ") for c in same)
    if kind == "No":  # ², ½: expanded later
        return "" if foreign else char
    return "" if foreign or same == char else same
