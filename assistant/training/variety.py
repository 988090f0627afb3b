"""What a household and a recogniser do to a sentence: fillers, politeness, slips, digits. Pure; seeded from outside."""

from __future__ import annotations

import random
import re

import msgspec

FILLER_SHARE, SLIP_SHARE, DIGIT_SHARE = 0.25, 0.12, 0.12

_TEENS = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBERS = {word: str(number) for number, word in enumerate(_TEENS.split(" "), 2)}
_NUMBERS |= {word: str(10 * number) for number, word in enumerate(_TENS.split(" "), 2)}
_SMALL = frozenset(("the", "a", "my", "to", "for", "in", "on", "is", "it", "of"))


class Slips(msgspec.Struct, frozen=True):
    """`data/slips_en.yaml`."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    heard_as: dict[str, tuple[str, ...]]


class Variety:
    """Changes some sentences and leaves most."""

    def __init__(self, slips: Slips) -> None:
        self._slips = slips

    def of(self, text: str, rng: random.Random) -> str:
        if rng.random() < DIGIT_SHARE:
            text = digits(text)
        if rng.random() < SLIP_SHARE:
            text = self.slipped(text, rng)
        if rng.random() < FILLER_SHARE:
            text = self.filled(text, rng)
        return text

    def filled(self, text: str, rng: random.Random) -> str:
        before = f"{rng.choice(self._slips.before)} " if rng.random() < 0.65 else ""
        after = f" {rng.choice(self._slips.after)}" if not before or rng.random() < 0.2 else ""
        return before + text + after

    def slipped(self, text: str, rng: random.Random) -> str:
        """With one error of a recogniser; short sentences are spared the rougher ones."""
        words = text.split()
        known = [at for at, word in enumerate(words) if word in self._slips.heard_as]
        kind = rng.random()
        if known and kind < 0.6:
            at = rng.choice(known)
            words[at] = rng.choice(self._slips.heard_as[words[at]])
        elif len(words) > 3 and kind < 0.75:
            at = rng.randrange(len(words))
            words.insert(at, words[at])
        elif len(words) > 3 and kind < 0.9:
            small = [at for at, word in enumerate(words) if word in _SMALL]
            if small:
                del words[rng.choice(small)]
        elif words:
            at = rng.randrange(len(words))
            words[at] = _damaged(words[at], rng)
        return " ".join(words)


def _damaged(word: str, rng: random.Random) -> str:
    """Without a letter, or in two."""
    if len(word) < 5:
        return word
    cut = rng.randrange(1, len(word))
    return word[:cut] + word[cut + 1 :] if rng.random() < 0.6 else f"{word[:cut]} {word[cut:]}"


def digits(text: str) -> str:
    """Number words as digits: "twenty five" -> "25"."""
    out: list[str] = []
    for word in text.split():
        number = _NUMBERS.get(word)
        if number and len(number) == 1 and out and re.fullmatch("[2-9]0", out[-1]):
            out[-1] = out[-1][0] + number
        else:
            out.append(number or word)
    return " ".join(out)
