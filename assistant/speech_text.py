"""Text for eyes -> text for a voice. Pure; imports the other `speech_` modules; the text on display stays as it is.

What a voice would read out as "asterisk asterisk", or as the name of a smiley, goes: markdown, links' addresses, code,
emoji, box drawings, control characters, words in scripts that this voice cannot read. What it would misread is spelled
out, by the rules of its language.
"""

from __future__ import annotations

import html
import re
import unicodedata

from assistant.speech_language import Language, language
from assistant.speech_letters import readable

_FENCE = re.compile(r"```|~~~")
_RULER = re.compile(r"[\s*_=~+|:.—–-]*\Z")
_TABLE_ROW = re.compile(r"\s*\|(.+?)\|?\s*\Z")
_LINE_START = re.compile(r"\s*(?:#{1,6}\s+|>+\s?|[-*+•‣▪◦·]\s+(?:\[[ xX]\]\s+)?)+")
_TEX_SIGNS = {
    "times": "×", "cdot": "×", "div": "÷", "pi": "π", "leq": "≤", "le": "≤", "geq": "≥", "ge": "≥", "neq": "≠",
    "pm": "±",
    "approx": "≈", "infty": "∞", "sqrt": "√", "circ": "°", "degree": "°", "to": "→", "rightarrow": "→", "alpha": "α",
    "beta": "β", "theta": "θ", "lambda": "λ", "mu": "μ", "sigma": "σ", "omega": "ω", "Delta": "Δ",
}  # fmt: skip
_TEX: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\\[()\[\]]|\$\$"), " "),
    (re.compile(r"(?<![\w$])\$(?=[^$]{0,80}[\\^_={])([^$\s](?:[^$]{0,80}[^$\s])?)\$(?![\w$])"), r"\1"),
    (re.compile(r"\\d?frac\{(\d{1,4})\}\{(\d{1,4})\}"), r"\1/\2"),
    (re.compile(r"\\d?frac\{([^{}]{1,60})\}\{([^{}]{1,60})\}"), r"\1 ÷ \2"),
    (re.compile(r"\\(?:text|boxed|mathrm|mathbf)\{([^{}]{0,200})\}"), r"\1"),
    (re.compile(r"\^\{([^{}]{1,20})\}"), r"^\1"),
    (re.compile(r"\^\\circ"), "°"),
)
_TEX_SIGN = re.compile(r"\\([A-Za-z]{2,10})(?![A-Za-z])\s?")
_CJK_STOPS = "。，！？、；：）"
_INLINE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"!?\[([^\[\]]{0,300})\]\((?:[^()]|\([^()]{0,200}\)){0,1000}\)"), r"\1"),  # links and pictures
    (re.compile(r"(?<=[\w.,!?\"”)])\[\^?\d{1,3}\]"), ""),  # footnotes
    (re.compile(r"<((?:https?://|mailto:)?[^<>\s]{1,300}[@.:][^<>\s]{1,300})>"), r" \1 "),
    (re.compile(r"<!--.{0,500}?-->"), " "),
    (re.compile(r"</?[A-Za-z][^<>]{0,200}>"), " "),
    (re.compile(r"\b(?:mailto|tel):(?=\S)"), ""),
    (re.compile(r"(?<![A-Za-z\d])(?:(?:https?|ftp)://|(?=www\.))(?:www\.)?"
                r"([A-Za-z\d._-]*[A-Za-z\d]|[\w.-]+\w)(?::\d+)?"
                r"(?:[/?#](?:[^\s()\[\]<>" + _CJK_STOPS + r"]|\([^\s()]{0,200}\)){0,2000}"
                r"(?<![.,;:!?*_`\"'’”])|/(?!\w))?"), r"\1"),
    (re.compile(r"`+([^`]*)`+"), r"\1"),
    (re.compile(r"(?<!\S)(?:[:;=8]['-]?[()DPpOo|]|<3)(?!\S)"), " "),
    (re.compile(r"(?<=\d)\*\*(?=\d)"), "^"),
    (re.compile(r"\*\*+|~~+|`+|__+"), ""),
    (re.compile(r"(?<![\w*])\*(?=\S)|(?<=[^\s*])\*(?![\w*])"), ""),
    (re.compile(r"(?<!\w)_(?=\S)|(?<=\S)_(?!\w)"), ""),
    (re.compile(r"(?<=\w)_(?=\w)(?![\w.+-]{0,64}@)"), " "),
    (re.compile(r"\\(?=[^\w\s])"), ""),
    (re.compile(r"[\[\]{}|\\]"), " "),  # among them Piper's [[raw phonemes]]
    (re.compile(r"\A(\s*\d{1,3})\)(?=\s)"), r"\1."),
)  # fmt: skip
_SYMBOLS_KEPT = frozenset("⁻°℃℉№$€£¥₹₩₽₺₿₴¢%‰&@#+=<>~^×÷≈≠≤≥±−√∞²³½⅓⅔¼¾⅛→⇒⇔")
_ENDED = re.compile(r"[.!?…:;,。！？、，：；][\"'”’)」』）]*\Z")
_FULL = 250
"""As long as pieces get (`sentences.MAX_CHARS`)."""
_ADDRESS = re.compile(r"[<(\[]{0,3}(?:https?://|www\.)")
_WORD = re.compile(r"\A\S+\s*")
_PRODUCT = re.compile(r"(?<=\d)\s?\*\s?(?=\d)")
_LEFT_OVER = re.compile(r"[*`]")
"""What was no markdown and no product."""
_SPACES = re.compile(r"\s+")
_THIN = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
"""Between thousands, as French and scientists write."""


class SpeechText:
    """For text that comes in pieces (`sentences`): remembers whether a block of code is open, or an address goes on."""

    def __init__(self, code: str = "en") -> None:
        """`code`: the voice's language, as `speech_language.language` takes it."""
        self._language = language(code)
        self._in_code = self._in_address = False

    def say(self, piece: str) -> str:
        """What a voice shall read of this piece; "" for nothing."""
        piece = self._without_rest(piece)
        lines = [said for line in self._outside_code(piece).splitlines() if (said := _line(line, self._language))]
        if not lines:
            return ""
        # a line that another one follows ends there; the last one may go on in the next piece
        return " ".join([*map(_ended, lines[:-1]), lines[-1]])

    def _without_rest(self, piece: str) -> str:
        """Without what still belongs to an address that filled the whole piece before."""
        rest = self._in_address
        full = len(piece) >= _FULL and not _SPACES.search(piece)
        self._in_address = full and (rest or bool(_ADDRESS.match(piece)))
        return _WORD.sub("", piece, count=1) if rest else piece

    def _outside_code(self, text: str) -> str:
        """The text without its blocks of code; each is mentioned once, where it begins."""
        out: list[str] = []
        for number, part in enumerate(_FENCE.split(text)):
            if number:
                self._in_code = not self._in_code
                if self._in_code:
                    out.append(f"\n{self._language.code_mention}\n")
            if not self._in_code:
                out.append(part)
        return "".join(out)


def speakable(text: str, code: str = "en") -> str:
    """One whole text for a voice of that language: a single line; "" when there is nothing to say."""
    return SpeechText(code).say(text)


def _line(line: str, rules: Language) -> str:
    line = _without_symbols(html.unescape(line))
    if _RULER.match(line):
        return ""
    row = _TABLE_ROW.match(line)
    if row:
        line = ", ".join(cell.strip() for cell in row[1].split("|") if not _RULER.match(cell))
    start = _LINE_START.match(line)
    line = line[start.end() :] if start else line
    line = _spell_out(_without_markup(line), rules)
    if not any(map(str.isalnum, line)):
        return ""
    return _ended(line) if row or start else line


def _without_markup(line: str) -> str:
    if "\\" in line or "$" in line or "^{" in line:
        for pattern, by in _TEX:
            line = pattern.sub(by, line)
        line = _TEX_SIGN.sub(lambda m: f" {_TEX_SIGNS[m[1]]} " if m[1] in _TEX_SIGNS else m[0], line)
    for pattern, by in _INLINE:
        line = pattern.sub(by, line)
    return line


def _spell_out(line: str, rules: Language) -> str:
    line = _SPACES.sub(" ", line)
    if not rules.any_script:
        line = readable(rules.symbols(line), rules.scripts)
    line = _LEFT_OVER.sub(" ", rules.spell_out(_PRODUCT.sub("×", line)))
    line = _SPACES.sub(" ", line).strip()
    return re.sub(r"\s+([,.;:!?])", r"\1", line)


def _ended(line: str) -> str:
    if _ENDED.search(line):
        return line
    return line + ("。" if "\u3040" <= line[-1] <= "\u9fff" else ".")


def _without_symbols(text: str) -> str:
    """No emoji, drawings, controls, lone surrogates or invisible characters; odd spaces become plain ones."""
    out: list[str] = []
    for char in unicodedata.normalize("NFC", _THIN.sub(",", text)):
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
