"""Cuts text that arrives in pieces into what is worth saying at once. Pure; imports nothing of ours.

A sentence goes out as soon as its end is certain. The first piece may be a clause, because somebody waits for the
first sound. Nothing is ever lost: the pieces are the text, up to white space at the cuts.
"""

from __future__ import annotations

import re
import unicodedata
from enum import Enum

MAX_CHARS = 250
"""Longest piece; longer runs are cut at a clause, else at a space, else anywhere."""

FIRST_ENOUGH_CHARS = 40
"""A first piece of this length may end at a comma."""

FIRST_MAX_CHARS = 60
"""A first piece that grew longer than this is cut further back, at a comma or before a joining word."""

FIRST_MIN_CHARS = 20
"""A first piece is not cut shorter than this: it would sound chopped, and end before the next one is ready."""


_DENSE = 3
"""Of letters that are syllables, so many fewer."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TITLES = _words(
    "dr mr mrs ms mx prof st vs e.g i.e cf eds approx gen col sgt capt lt cmdr rev hon gov sen pres mt ft messrs viz"
    " resp incl excl dept bzw evtl ggf inkl zzgl tel str nr"
)
"""Abbreviations that something follows: their full stop ends nothing."""

_BEFORE_NUMBER = _words("no nos fig figs vol vols pp ch art sect tel ext ca")
"""Abbreviations before a number; otherwise a word like any ("The answer is no.")."""

_MAYBE_LAST = _words(
    "etc usw a.m p.m am pm inc ltd co corp jr sr bros ave blvd rd jan feb mar apr jun jul aug sep sept oct nov dec"
    " mon tue tues wed thu thur thurs fri sat sun hr hrs min mins sec lb lbs oz in cm mm km kg ph.d b.c a.d"
)
"""Abbreviations that end a sentence when a capital letter follows."""

_STARTERS = _words(
    "a an and as at but for he her his how i if in it its my no on our she so that the their then there these they this"
    " those we what when where who why yes you your"
)
"""Words that, with a capital, begin a sentence even after initials ("in the U.S. It is")."""

_MONTHS = _words("januar februar märz april mai juni juli august september oktober november dezember")
"""After a German day: "am 3. Mai"."""

_CLOSERS = "\"'”’»)]}*_"
_END = re.compile(rf"(?:[.!?…]+|[。！？｡]+)[{re.escape(_CLOSERS)}」』）]*|\n")
_CLAUSE = re.compile(r"[,;:](?=\s)|[、，；：]|\s[—–-](?=\s)|—")
_JOINT = re.compile(r"\s(?=(?:and|but|or|because|which|who|that|while|when|where|so|with|from|to|by|for|in|of|as) )")
_WORD_BEFORE = re.compile(r"[\w.&'’]*\Z")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]\Z")
_LIST_NUMBER = re.compile(r"\s*\(?\d{1,2}\Z")
_GERMAN_DAY = re.compile(r"(?<![\w.,])\d{1,2}\Z")
_WHOLE_SPACE = re.compile(r"(?<![\d.])\s(?!\d)")
"""Between two words; not in "5 km", "Dr. No", "+49 30 1234567"."""
_SPACE = re.compile(r"\s")
_NUMBER_NEXT = re.compile(r"\s+\d")
_NEXT_WORD = re.compile(r"[\s\"'“‘«(\[*_]*([^\W\d_]*)")


class _Verdict(Enum):
    END = 1
    GOES_ON = 2
    UNKNOWN = 3


class SentenceSplitter:
    """Feed it deltas; it hands out pieces, each stripped and not empty."""

    def __init__(self, *, clause_first: bool = True, max_chars: int = MAX_CHARS) -> None:
        self._buffer = ""
        self._first = clause_first
        self._max = max_chars

    def feed(self, delta: str) -> list[str]:
        """The pieces that are certain now."""
        self._buffer += delta
        return self._take(final=False)

    def flush(self) -> list[str]:
        """What is left, when no more text will come; the splitter is as new afterwards, but for the first clause."""
        pieces = self._take(final=True)
        self._buffer = ""
        return pieces

    def _take(self, *, final: bool) -> list[str]:
        pieces: list[str] = []
        text = self._buffer.lstrip()
        while text:
            at = next_cut(text, first=self._first, final=final, max_chars=self._max)
            if at is None:
                break
            pieces.append(text[:at].rstrip())
            text = text[at:].lstrip()
            self._first = False
        self._buffer = text
        return pieces


def pieces(text: str, *, max_chars: int = MAX_CHARS) -> list[str]:
    """Of a whole text, of which nobody waits for the first clause."""
    splitter = SentenceSplitter(clause_first=False, max_chars=max_chars)
    return [*splitter.feed(text), *splitter.flush()]


def spoken_parts(said: str) -> list[str]:
    """Of what is said of one piece: itself, unless it grew too long ("km/h"); nothing for nothing."""
    return pieces(said) if len(said) > MAX_CHARS else [said] if said else []


def next_cut(text: str, *, first: bool, final: bool, max_chars: int = MAX_CHARS) -> int | None:
    """Where the first piece of `text` (which begins with no white space) ends; None = wait for more text."""
    window = text[: max_chars + len(_CLOSERS)]
    end = _sentence_end(window, final=final and len(window) == len(text))
    if end is not None and end > max_chars:
        end = None
    longest = FIRST_MAX_CHARS // _DENSE if first and _is_dense(text) else FIRST_MAX_CHARS
    if first and (end is None or end > longest):
        early = _first_clause(window[: end or max_chars])
        if early is not None:
            return early
    if end is not None:
        return end
    if len(text) > max_chars:
        return _long_cut(text[:max_chars])
    return len(text) if final else None


def _sentence_end(text: str, *, final: bool) -> int | None:
    for mark in _END.finditer(text):
        match _verdict(text, mark, final=final):
            case _Verdict.END:
                return mark.end()
            case _Verdict.UNKNOWN:
                return None
            case _Verdict.GOES_ON:
                continue
    return None


def _verdict(text: str, mark: re.Match[str], *, final: bool) -> _Verdict:
    """Whether a sentence ends at this mark. UNKNOWN: the text that would tell has not come yet."""
    sign, after = mark.group(), text[mark.end() :]
    if sign == "\n":
        return _Verdict.END
    if not after:
        return _Verdict.END if final else _Verdict.UNKNOWN
    if sign[0] in "。！？｡":
        return _Verdict.END
    if not after[0].isspace():
        return _Verdict.GOES_ON  # 98.6, 1.5e3, example.com, ?!
    next_word = _next_word(after, final=final)
    if sign == ".":
        return _after_full_stop(text[: mark.start()], after, next_word)
    if sign.startswith(("..", "…")) or sign[-1] in _CLOSERS:
        # "well... maybe", "'Really?' he said": the sentence goes on in lower case
        return _by_case(next_word)
    return _Verdict.END


def _after_full_stop(before: str, after: str, next_word: str | None) -> _Verdict:
    word = _WORD_BEFORE.search(before)
    last = word.group().lower().lstrip(".'’") if word else ""
    if last in _BEFORE_NUMBER and next_word is None:
        return _Verdict.UNKNOWN
    if _GERMAN_DAY.search(before) and (next_word is None or next_word.lower() in _MONTHS):
        return _Verdict.GOES_ON if next_word else _Verdict.UNKNOWN
    if _LIST_NUMBER.fullmatch(before):
        return _Verdict.GOES_ON  # "2. Add the eggs"
    if last in _MAYBE_LAST:
        return _Verdict.GOES_ON if _NUMBER_NEXT.match(after) else _by_case(next_word)
    if last in _TITLES or (last in _BEFORE_NUMBER and _NUMBER_NEXT.match(after)):
        return _Verdict.GOES_ON
    if last != "i" and _INITIALS.fullmatch(last):
        if next_word is None:
            return _Verdict.UNKNOWN
        starts = next_word[:1].isupper() and next_word.lower() in _STARTERS
        return _Verdict.END if starts else _Verdict.GOES_ON
    return _Verdict.END


def _by_case(next_word: str | None) -> _Verdict:
    if next_word is None:
        return _Verdict.UNKNOWN
    return _Verdict.GOES_ON if next_word[:1].islower() else _Verdict.END


def _next_word(after: str, *, final: bool) -> str | None:
    """The next word, "" when something else follows, None when it has not come whole yet."""
    found = _NEXT_WORD.match(after)
    word = found.group(1) if found else ""
    whole = found is not None and found.end() < len(after)
    return word if whole or final else None


def _first_clause(text: str) -> int | None:
    """Where to cut a first sentence that is long, or not ended yet."""
    shortest, enough, longest = FIRST_MIN_CHARS, FIRST_ENOUGH_CHARS, FIRST_MAX_CHARS
    if _is_dense(text):
        shortest, enough, longest = shortest // _DENSE, enough // _DENSE, longest // _DENSE
    marks = [mark.end() for mark in _CLAUSE.finditer(text) if mark.end() >= shortest]
    good = [at for at in marks if enough <= at <= longest]
    if good:
        return good[0]
    if len(text) <= longest:
        return None
    early = [at for at in marks if at < enough]
    if early:
        return early[-1]
    joints = [joint.start() for joint in _JOINT.finditer(text[: longest + 6])]
    joints = [at for at in joints if shortest <= at <= longest]
    return joints[-1] if joints else None


def _is_dense(text: str) -> bool:
    """Whether a character is a syllable: Chinese, Japanese, Korean."""
    begin = text[:FIRST_MIN_CHARS]
    return not begin.isascii() and sum(unicodedata.east_asian_width(char) == "W" for char in begin) > len(begin) // 3


def _long_cut(text: str) -> int:
    """Where to cut a run that is too long; `text` is as long as a piece may be."""
    marks = [mark.end() for mark in _CLAUSE.finditer(text)]
    if marks and marks[-1] >= len(text) // 3:
        return marks[-1]
    for kind in (_WHOLE_SPACE, _SPACE):
        spaces = [space.start() for space in kind.finditer(text)]
        if spaces and spaces[-1] > 0:
            return spaces[-1]
    return len(text)
