"""All sentences that the encoder learns from, and those that it is judged by. Imports `nlu.vocabulary`, the encoder's
normaliser and this room.

A sentence that is kept for judging is never learnt, also not as a copy from another source.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml  # type: ignore[import-untyped]

from assistant.nlu.vocabulary import INTENTS
from assistant.stages.intent_encoder import plain
from assistant.training.corpora import NONE, Labelled, clinc, halves, slurp
from assistant.training.variety import Slips, Variety
from assistant.training.walks import Walker, Words, frames, shipped

DATA = Path(__file__).parent / "data"
CLASSES = (*INTENTS, NONE)
STRANGERS = ("make_call", "find_phone", "tell_joke", "flip_coin", "directions", "uber", "reminder_update", "translate")
"""Topics that the encoder is not told of, so that they can stand for intents of a user's own: see `nearness`."""
KEPT_TENTH = 10
"""Every tenth written sentence is kept for judging."""
CLINC_TEST, SLURP_HALF = "clinc-test", "slurp-half"


@dataclass(frozen=True, slots=True)
class Share:
    """How many sentences an epoch takes."""

    template: int = 30
    """Of each intent, over the templates that ship."""
    frame: int = 60
    """Of each intent, over `data/frames_en.yaml`."""
    frame_other: int = 1800
    corpus_other: int = 4500
    """Of the corpora's sentences that are none of our intents."""


class Sources:
    """`written`: files of `sentence<TAB>intent`; `corpora`: the folder of the two public ones.

    Raises `ValueError` for a label that is none.
    """

    def __init__(self, written: list[Path], corpora: Path, seed: int) -> None:
        self.corpora, self.seed = corpora, seed
        self.kept: dict[str, list[Labelled]] = {}
        """What is judged by, by its source."""
        lines = []
        for path in written:
            own = list(_read(path))
            self.kept[path.stem] = [one for one in own if _is_kept(one.text)]
            lines += [one for one in own if not _is_kept(one.text)]
        self.written = tuple(self.kept)
        """Names of the sources that were written for us."""
        learnt, judged = halves(_plain(slurp(corpora / "slurp_devel_test.tsv")))
        path = corpora / "clinc150_full.json"
        self.kept |= {CLINC_TEST: _plain(clinc(path, "test")), SLURP_HALF: judged}
        self._barred = {one.text for kept in self.kept.values() for one in kept}
        self._written = [one for one in lines if one.text not in self._barred]
        self._corpus = [one for one in (*_plain(clinc(path, "train")), *learnt) if one.text not in self._barred]
        self.topics = tuple(sorted({one.topic for one in self._corpus} - {"", *STRANGERS}))
        words = Words(_yaml("words_en.yaml"))
        rng = random.Random(seed)
        self._walkers = [
            (shipped(words, INTENTS, rng), True),
            (Walker(frames(words, _yaml("frames_en.yaml")), words, rng), False),
        ]
        self._variety = Variety(msgspec.convert(_yaml("slips_en.yaml"), Slips))

    def epoch(self, number: int, share: Share) -> list[Labelled]:
        """Another draw for each number, in random order."""
        rng = random.Random(f"{self.seed} {number}")
        others = [one for one in self._corpus if one.intent == NONE]
        lines = [*self._written]
        changed = [
            *self._written,
            *self._walked(share),
            *(one for one in self._corpus if one.intent != NONE),
            *rng.sample(others, min(share.corpus_other, len(others))),
        ]
        lines += [one._replace(text=plain(self._variety.of(one.text, rng))) for one in changed]
        lines += [Labelled(plain(text), NONE) for text in (DATA / "odd_en.txt").read_text("utf-8").splitlines()]
        lines = [one for one in lines if one.text and one.text not in self._barred]
        rng.shuffle(lines)
        return lines

    def _walked(self, share: Share) -> Iterator[Labelled]:
        for walker, ships in self._walkers:
            for name in walker.names():
                loose = share.frame if name in CLASSES else share.frame_other
                for text in walker.sentences(name, share.template if ships else loose):
                    yield Labelled(plain(text), name if name in CLASSES else NONE)


def _read(path: Path) -> Iterator[Labelled]:
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        text, _, intent = line.partition("\t")
        if intent not in CLASSES:
            raise ValueError(f"{path.name}, line {number}: {intent!r} is no intent")
        if plain(text):
            yield Labelled(plain(text), intent)


def _yaml(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DATA / name).read_text("utf-8"))
    return found


def _plain(lines: Iterable[Labelled]) -> list[Labelled]:
    return [one._replace(text=plain(one.text)) for one in lines]


def _is_kept(text: str) -> bool:
    """By the text alone, so that an edited file keeps the same ones back."""
    return zlib.crc32(re.sub(r"\W", "", text).encode()) % KEPT_TENTH == 0
