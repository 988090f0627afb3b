"""BERT's uncased WordPiece: text -> token ids, from a vocabulary file that is mapped, not copied. Imports `errors`.

The file: magic `LVWP`, version (uint16), two bytes of nothing, count (uint32); then for the tokens in the order of
their UTF-8 bytes: ids (uint16 each), ends (uint32 each, where the token ends in the text), and the text itself. All
little-endian. A token is found by bisection, so that 30,000 of them take no memory of our own.

The rules are those of the BERT paper's code: control characters out, accents out, lower case, a word for every
punctuation mark and for every CJK character, then the longest known piece from the left.
"""

from __future__ import annotations

import mmap
import struct
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from assistant.errors import ModelDamaged

MAGIC = b"LVWP"
VERSION = 1
UNKNOWN, BEGIN, END = "[UNK]", "[CLS]", "[SEP]"
MAX_LETTERS = 100
"""A longer word is unknown as a whole."""

_HEAD = struct.Struct("<4sHHI")
_CJK = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


def write_vocabulary(ids: Mapping[str, int], path: Path) -> None:
    """`ids` below 65,536; must hold the three special tokens."""
    ordered = sorted((token.encode(), number) for token, number in ids.items())
    count, end, ends = len(ordered), 0, []
    for token, _ in ordered:
        end += len(token)
        ends.append(end)
    path.write_bytes(
        _HEAD.pack(MAGIC, VERSION, 0, count)
        + struct.pack(f"<{count}H", *(number for _, number in ordered))
        + struct.pack(f"<{count}I", *ends)
        + b"".join(token for token, _ in ordered)
    )


class _Tokens(Sequence[bytes]):
    """The tokens in their order, read from the map one at a time."""

    def __init__(self, ends: memoryview, text: memoryview) -> None:
        self._ends, self._text = ends, text

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> bytes:  # type: ignore[override]  # bisect asks for single ones
        return bytes(self._text[self._ends[index - 1] if index else 0 : self._ends[index]])


class WordPiece:
    """Raises `ModelDamaged` for a file that is no vocabulary."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            magic, version, _, count = _HEAD.unpack_from(mapped)
            ends_at = _HEAD.size + 2 * count
            text_at = ends_at + 4 * count
            if magic != MAGIC or version != VERSION or len(mapped) < text_at:
                raise ValueError("its head is wrong")
            self._ids = mapped[_HEAD.size : ends_at].cast("H")
            ends = mapped[ends_at:text_at].cast("I") if ends_at % 4 == 0 else _copied(mapped[ends_at:text_at])
            if not count or ends[-1] != len(mapped) - text_at:
                raise ValueError("its length is wrong")
        except (OSError, ValueError, struct.error) as error:
            raise ModelDamaged(f"{path} is no vocabulary that this version reads ({error}); install again") from None
        self._tokens = _Tokens(ends, mapped[text_at:])
        special = [self.id_of(token) for token in (UNKNOWN, BEGIN, END)]
        if None in special:
            raise ModelDamaged(f"{path} lacks BERT's special tokens; install again")
        self._unknown, self.begin, self.end = (number or 0 for number in special)

    def id_of(self, token: str) -> int | None:
        key = token.encode("utf-8", "surrogatepass")
        at = bisect_left(self._tokens, key)
        return self._ids[at] if at < len(self._tokens) and self._tokens[at] == key else None

    def encode(self, text: str, most: int) -> list[int]:
        """At most `most` ids (3 or more), the two around the sentence included; what is longer loses its end."""
        ids = [self.begin]
        for word in words(text):
            ids += self._pieces(word)
            if len(ids) >= most - 1:
                break
        return [*ids[: most - 1], self.end]

    def _pieces(self, word: str) -> list[int]:
        if len(word) > MAX_LETTERS:
            return [self._unknown]
        found, start = [], 0
        while start < len(word):
            prefix = "##" if start else ""
            for stop in range(len(word), start, -1):
                number = self.id_of(prefix + word[start:stop])
                if number is not None:
                    break
            else:
                return [self._unknown]
            found.append(number)
            start = stop
        return found


def words(text: str) -> Iterator[str]:
    """Lazily, so that only as much of a long text is looked at as is wanted."""
    word: list[str] = []
    for letter in _cleaned(text):
        alone = _is_punctuation(letter) or _is_cjk(letter)
        if alone or letter == " ":
            if word:
                yield "".join(word)
                word = []
            if alone:
                yield letter
        else:
            word.append(letter)
            if len(word) > MAX_LETTERS + 1:  # unknown already, whatever follows
                word.pop()
    if word:
        yield "".join(word)


def _cleaned(text: Iterable[str]) -> Iterator[str]:
    """Lower-case letters without accents, and single spaces where white space was."""
    for letter in text:
        if letter.isascii() and letter.isalnum():
            yield letter.lower()
        elif letter in "\t\n\r" or (letter.isspace() and unicodedata.category(letter)[0] == "Z"):
            yield " "
        elif letter != "\ufffd" and unicodedata.category(letter) not in ("Cc", "Cf", "Co", "Cs"):
            for part in unicodedata.normalize("NFD", letter):
                if unicodedata.category(part) != "Mn":
                    yield from part.lower()


def _is_punctuation(letter: str) -> bool:
    return letter != " " and (
        (letter.isascii() and not letter.isalnum()) or unicodedata.category(letter).startswith("P")
    )


def _is_cjk(letter: str) -> bool:
    code = ord(letter)
    return code >= 0x3400 and any(first <= code <= last for first, last in _CJK)


def _copied(ends: memoryview) -> memoryview:
    return memoryview(bytes(ends)).cast("I")
