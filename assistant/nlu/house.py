"""What stands in the house, found in a sentence: devices, areas, floors, by any of their names, also when they were
misheard. Pure; imports `synonyms` and `words`; uses rapidfuzz for distances.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rapidfuzz.distance import DamerauLevenshtein

from assistant.nlu.synonyms import HEARD, SAME
from assistant.nlu.words import words_of

Kind = Literal["name", "area", "floor"]
KINDS: tuple[Kind, ...] = ("name", "area", "floor")

_BETWEEN = frozenset({"in", "of", "on", "from", "at", "for", "over", "by"})
_ARTICLES = frozenset({"the", "my", "our", "a", "that"})
_LAMPS = {"lamp": ("light", "lights"), "light": ("lamp", "lights"), "lights": ("light", "lamps")}
"""The desk light is the desk lamp; the kitchen light is any light of the kitchen."""
_MAX_WORDS = 5


@dataclass(frozen=True, slots=True)
class Found:
    kind: Kind
    value: str
    """As the owner calls it first."""
    start: int
    end: int
    score: float
    """1 = word for word, another word for the same thing, or the other way round; less = misheard."""


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: Kind
    value: str
    words: tuple[str, ...]
    own: bool = True
    """A name that the owner gave, which may be misheard, too."""

    @property
    def squeezed(self) -> str:
        return "".join(self.words)


class House:
    """Names and areas, each with its aliases; immutable once made."""

    def __init__(self, entries: Iterable[_Entry] = ()) -> None:
        self._exact: dict[str, _Entry] = {}
        self._by_letter: dict[str, list[_Entry]] = {}
        for entry in entries:
            if entry.squeezed and entry.squeezed not in self._exact:
                self._exact[entry.squeezed] = entry
                if entry.own:
                    self._by_letter.setdefault(entry.squeezed[0], []).append(entry)

    @classmethod
    def of(cls, names: Mapping[str, Iterable[str]]) -> House:
        """By list: name, area, floor; "lamp|light" has two names, and is the first. Other lists are left aside."""
        own = [
            _Entry(kind, parts[0].strip(), tuple(words_of(part)))
            for kind in KINDS
            for value in names.get(kind, ())
            for parts in [value.split("|")]
            for part in parts
        ]
        others = [
            _Entry(entry.kind, entry.value, tuple(words_of(same)), own=False)
            for entry in own
            for same in SAME.get(" ".join(entry.words), ())
        ]
        areas = {entry.words for entry in own if entry.kind == "area"}
        others += [
            _Entry(entry.kind, entry.value, (*entry.words[:-1], other), own=False)
            for entry in own
            if len(entry.words) > 1 and entry.words[:-1] not in areas
            for other in _LAMPS.get(entry.words[-1], ())
        ]
        return cls([*own, *others])

    @property
    def names(self) -> frozenset[str]:
        return frozenset(entry.value for entry in self._exact.values() if entry.kind == "name")

    @property
    def floors(self) -> frozenset[str]:
        return frozenset(entry.value for entry in self._exact.values() if entry.kind == "floor")

    def find(self, words: Sequence[str], *, misheard: bool = True) -> list[Found]:
        """What the sentence names, in its order, without overlaps: longer before shorter, exact before misheard."""
        exact = list(self._exactly(words))
        near = [found for found in self._nearly(words) if not _inside(found, exact)] if misheard else []
        candidates = sorted((*exact, *near), key=lambda found: (found.start - found.end, -found.score, found.start))
        taken: set[int] = set()
        chosen = []
        for found in candidates:
            span = range(found.start, found.end)
            if taken.isdisjoint(span):
                taken.update(span)
                chosen.append(found)
        return sorted(chosen, key=lambda found: found.start)

    def _exactly(self, words: Sequence[str]) -> Iterator[Found]:
        for start, end in _windows(words):
            entry = self._exact.get("".join(words[start:end]).replace("'", ""))
            if entry is not None:
                yield Found(entry.kind, entry.value, start, end, 1.0)
                yield from self._turned(words, entry, start, end)
            elif words[end - 1].endswith("s"):
                singular = self._exact.get("".join(words[start:end])[:-1].replace("'", ""))
                if singular is not None:
                    yield Found(singular.kind, singular.value, start, end, 0.99)

    def _turned(self, words: Sequence[str], area: _Entry, start: int, end: int) -> Iterator[Found]:
        """ "the lamp in the kitchen" is the kitchen lamp."""
        if area.kind != "area":
            return
        before = start
        while before > 0 and words[before - 1] in _ARTICLES:
            before -= 1
        if before < 2 or words[before - 1] not in _BETWEEN:
            return
        last = before - 1
        for first in range(last - 1, max(-1, last - 3), -1):
            entry = self._exact.get("".join((*area.words, *words[first:last])))
            if entry is not None and entry.kind == "name":
                yield Found("name", entry.value, first, end, 1.0)

    def _nearly(self, words: Sequence[str]) -> Iterator[Found]:
        for start, end in _windows(words):
            window = words[start:end]
            said = "".join(window)
            heard = "".join(HEARD.get(word, word) for word in window) if end - start > 1 else said
            if heard != said and (entry := self._exact.get(heard)) is not None:
                yield Found(entry.kind, entry.value, start, end, 0.9)
                continue
            if len(said) < 4 or said in self._exact:
                continue
            for entry in self._by_letter.get(said[0], ()):
                score = _likeness(window, said, entry)
                if score:
                    yield Found(entry.kind, entry.value, start, end, score)


def _inside(near: Found, exact: list[Found]) -> bool:
    """The same thing is named word for word in it: "heater i" is no misheard heater."""
    return any(near.value == other.value and near.start <= other.start and other.end <= near.end for other in exact)


def _windows(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    for start in range(len(words)):
        for end in range(start + 1, min(start + _MAX_WORDS, len(words)) + 1):
            yield start, end


def _likeness(window: Sequence[str], said: str, entry: _Entry) -> float:
    """0 = something else: "bathroom" is no bedroom, "dehumidifier" no humidifier, "back door" no garage door."""
    name = entry.squeezed
    allowed = _allowed(len(name))
    if abs(len(said) - len(name)) > allowed:
        return 0.0
    distance = DamerauLevenshtein.distance(said, name, score_cutoff=allowed)
    if distance > allowed:
        return 0.0
    if len(window) == len(entry.words) > 1:
        pairs = zip(window, entry.words, strict=True)
        if any(DamerauLevenshtein.distance(a, b) > max(1, _allowed(len(b))) for a, b in pairs):
            return 0.0
    return 1 - distance / len(name)


def _allowed(length: int) -> int:
    """Letters that may be wrong in a name of that length."""
    if length < 5:
        return 0
    return 1 if length < 9 else 2
