"""Text for eyes -> text for a voice. Pure; imports `speech_letters` and `speech_numbers`; the text on display stays.

What a voice would read out as "asterisk asterisk", or as the name of a smiley, goes: markdown, links' addresses, code,
emoji, box drawings, control characters, words in scripts that an English voice cannot read. What it would misread is
spelled out.
"""

from __future__ import annotations

import html
import re
import unicodedata

from assistant.speech_letters import readable
from assistant.speech_numbers import expand

CODE_MENTION = "Code omitted."

_FENCE = re.compile(r"```|~~~")
_RULER = re.compile(r"[\s*_=~+|:.—–-]*\Z")
_TABLE_ROW = re.compile(r"\s*\|(.+?)\|?\s*\Z")
_LINE_START = re.compile(r"\s*(?:#{1,6}\s+|>+\s?|[-*+•‣▪◦·]\s+(?:\[[ xX]\]\s+)?)+")
_INLINE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"!?\[([^\[\]]{0,300})\]\([^()]{0,1000}\)"), r"\1"),  # links and pictures
    (re.compile(r"<(https?://[^>\s]+)>"), r"\1"),
    (re.compile(r"</?[A-Za-z][^<>]{0,200}>"), " "),
    (re.compile(r"\b(?:https?://|(?=www\.))(?:www\.)?([\w.-]+\w)(?::\d+)?(?:/[^\s)\]]*[^\s)\].,;:!?])?/?"), r"\1"),
    (re.compile(r"`+([^`]*)`+"), r"\1"),
    (re.compile(r"\*\*+|~~+|`+|__+"), ""),
    (re.compile(r"(?<![\w*])\*(?=\S)|(?<=[^\s*])\*(?![\w*])"), ""),
    (re.compile(r"(?<!\w)_(?=\S)|(?<=\S)_(?!\w)"), ""),
    (re.compile(r"(?<=\w)_(?=\w)"), " "),
    (re.compile(r"\\(?=[^\w\s])"), ""),
    (re.compile(r"[\[\]{}|\\]"), " "),  # among them Piper's [[raw phonemes]]
)  # fmt: skip
_WORDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b(Dr|Mr|Mrs|Ms|Prof|St|Mt|Gen|Sgt|Capt|Lt|Col|Gov|Sen|Rev)\.(?=\s+[A-Z])"), r"\1"),
    (re.compile(r"\be\.\s?g\.,?", re.I), "for example,"),
    (re.compile(r"\bi\.\s?e\.,?", re.I), "that is,"),
    (re.compile(r"\betc\.(?=\s*\Z|\s+[A-Z])"), "et cetera."),
    (re.compile(r"\betc\b\.?"), "et cetera"),
    (re.compile(r"\bvs\b\.?"), "versus"),
    (re.compile(r"\bapprox\b\.?"), "approximately"),
    (re.compile(r"\band/or\b"), "and or"),
    (re.compile(r"(?<=[A-Za-z])\s?/\s?(?=[A-Za-z])"), " or "),
    (re.compile(r"\s?[→⇒➔➜]\s?"), " to "),
    (re.compile(r"≤"), " at most "),
    (re.compile(r"≥"), " at least "),
    (re.compile(r"±"), " plus or minus "),
    (re.compile(r"\s+[—–-]+\s+|\s*—\s*"), ", "),
    (re.compile(r"…"), "..."),
    (re.compile(r"[*`]"), " "),  # what was no markdown and no product
    (re.compile(r"([!?])[!?]+"), r"\1"),
)
_INITIALS = re.compile(r"\b((?:[A-Z]\.\s?){2,})(?=(\s*\Z)|(\s*[A-Z])|)")
_SYMBOLS_KEPT = frozenset("°$€£¥₹%&@#+=<>~^×÷≈≤≥±−²³½⅓⅔¼¾⅛→⇒")
_ENDED = re.compile(r"[.!?…:;,。！？][\"'”’)]*\Z")
_SPACES = re.compile(r"\s+")


class SpeechText:
    """For text that comes in pieces (`sentences`): remembers whether a block of code is open."""

    def __init__(self) -> None:
        self._in_code = False

    def say(self, piece: str) -> str:
        """What a voice shall read of this piece; "" for nothing."""
        lines = [said for line in self._outside_code(piece).splitlines() if (said := _line(line))]
        if not lines:
            return ""
        # a line that another one follows ends there; the last one may go on in the next piece
        return " ".join([*map(_ended, lines[:-1]), lines[-1]])

    def _outside_code(self, text: str) -> str:
        """The text without its blocks of code; each is mentioned once, where it begins."""
        out: list[str] = []
        for number, part in enumerate(_FENCE.split(text)):
            if number:
                self._in_code = not self._in_code
                if self._in_code:
                    out.append(f"\n{CODE_MENTION}\n")
            if not self._in_code:
                out.append(part)
        return "".join(out)


def speakable(text: str) -> str:
    """One whole text for the voice: a single line of English; "" when there is nothing to say."""
    return SpeechText().say(text)


def _line(line: str) -> str:
    line = _without_symbols(html.unescape(line))
    if _RULER.match(line):
        return ""
    row = _TABLE_ROW.match(line)
    if row:
        line = ", ".join(cell.strip() for cell in row[1].split("|") if not _RULER.match(cell))
    start = _LINE_START.match(line)
    line = line[start.end() :] if start else line
    for pattern, by in _INLINE:
        line = pattern.sub(by, line)
    line = _spell_out(readable(line))
    if not any(map(str.isalnum, line)):
        return ""
    return _ended(line) if row or start else line


def _ended(line: str) -> str:
    return line if _ENDED.search(line) else line + "."


def _without_symbols(text: str) -> str:
    """No emoji, drawings, controls, lone surrogates or invisible characters; odd spaces become plain ones."""
    out: list[str] = []
    for char in unicodedata.normalize("NFC", text):
        kind = unicodedata.category(char)
        if kind == "Zs" or char == "\t":
            out.append(" ")
        elif char in _SYMBOLS_KEPT:
            out.append(char)
        elif kind in ("Cc", "Cf", "Cs", "Co", "Cn", "Sk", "Me") or char in "\ufe0e\ufe0f\u20e3":
            out.append(char if char in "^`" else "")
        elif kind == "So" or (kind == "Sm" and char not in "|~") or 0x2500 <= ord(char) <= 0x25FF:
            out.append(" ")
        else:
            out.append(char)
    return "".join(out)


def _spell_out(line: str) -> str:
    line = _SPACES.sub(" ", line)
    line = expand(_INITIALS.sub(_initials, line))
    for pattern, by in _WORDS:
        line = pattern.sub(by, line)
    line = _SPACES.sub(" ", line).strip()
    return re.sub(r"\s+([,.;:!?])", r"\1", line)


def _initials(match: re.Match[str]) -> str:
    """ "U.S." -> "U S": espeak would make a pause, or say "us"."""
    letters = " ".join(re.findall("[A-Z]", match[1]))
    if letters in ("A M", "P M"):
        return match[1]
    return letters + ("." if match[2] is not None else " " if match[1].endswith((" ", "\t")) else "")
