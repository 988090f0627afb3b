"""What is meant, in the speaker's own words: a small sentence encoder with a softmax head. Imported by workers alone.

BERT's shape (six layers of 384) on MNN with 4-bit weights; the words' vectors come from a 4-bit table that stays on
disk (`word_table`). The files are made by `assistant.training` and ship with the project; `meta.json` holds the size
and sha256 of each, because MNN takes a cut file without a word and answers nonsense.
"""

from __future__ import annotations

import hashlib
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from assistant.errors import EngineFailed, ModelDamaged, ModelMissing
from assistant.model_store.mnn_tools import silent_stdout
from assistant.stages.word_table import WordTable
from assistant.stages.wordpiece import WordPiece

NONE = "-"
"""The class of what is no command; never given away as a name."""
FORMAT = 1
ENCODER, WORDS, VOCABULARY, HEAD, META = "encoder.mnn", "words.bin", "vocabulary.bin", "head.npz", "meta.json"

Floats = NDArray[np.float32]

_APOSTROPHES = re.compile("[’‘`´ʼ']")
_REST = re.compile(r"[^\w%°]+")
_SAID = (("%", " percent"), ("°c", " degrees"), ("°f", " degrees"), ("°", " degrees"))
_NORMAL_PRECISION, _LOW_MEMORY = 0, 2
"""MNN's BackendConfig. Low memory keeps the weights in 4 bits: 6 MiB; otherwise they are unpacked to 40."""
_DYNAMIC_QUANT, _BY_BLOCK = 5, 2
"""MNN's hint of how what is multiplied with them is rounded: by block, which is ten times closer than by row."""
_LONGEST = 1000
"""Characters that are looked at: 64 tokens have fewer."""


class FileMark(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """meta.json."""

    format: int
    language: str
    names: tuple[str, ...]
    """Of the classes, in the order of the head's rows; one is `NONE`."""
    threshold: float
    """Of the score, from which on a sentence is a command."""
    temperature: float
    """What logits are divided by, so that a score of 0.9 is right nine times of ten."""
    max_tokens: int
    nearness: float
    """Cosine from which on a sentence means what an example of the user's means; see `Prototypes`."""
    files: dict[str, FileMark]
    figures: dict[str, Any] = {}
    """What was measured when it was made."""


class Classified(NamedTuple):
    name: str | None
    """None: no command, or not surely enough."""
    score: float
    """Probability of the likeliest command, whether or not it is one."""
    ranking: list[tuple[str, float]]
    """All classes with their probabilities, the likeliest first; `NONE` among them."""


def plain(text: str) -> str:
    """As the encoder knows sentences: lower case, no punctuation, apostrophes dropped ("what's" -> "whats")."""
    text = _APOSTROPHES.sub("", text[:_LONGEST].lower())
    for sign, said in _SAID:
        text = text.replace(sign, said)
    return " ".join(_REST.sub(" ", text.replace("_", " ")).split())


class SentenceClassifier:
    """Used by one thread. About 6 ms a sentence on one core."""

    def __init__(self, folder: Path, meta: Meta, threads: int) -> None:
        self.meta = meta
        self._pieces = WordPiece(folder / VOCABULARY)
        self._words = WordTable(folder / WORDS)
        with np.load(folder / HEAD, allow_pickle=False) as head:
            self._weight: Floats = head["weight"].astype(np.float32)
            self._bias: Floats = head["bias"].astype(np.float32)
            self._positions: Floats = head["positions"].astype(np.float32)
        self._last: tuple[str, Floats] | None = None
        """The sentence before: it is held against examples and classified, and takes 6 ms each time."""
        with silent_stdout():  # MNN greets
            self._net = _Net(folder / ENCODER, threads)
            self.embed("warm up")  # some of its memory is taken at the first sentence

    @classmethod
    def load(cls, folder: Path, threads: int = 1) -> SentenceClassifier:
        """Raises `ModelMissing` or `ModelDamaged`."""
        return cls(folder, checked(folder), threads)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self.meta.names if name != NONE)

    def embed(self, text: str) -> Floats:
        """float32 [384], not normalised, not to be written to. Words beyond the 64th token are not seen."""
        said = plain(text)
        if self._last is None or self._last[0] != said:
            self._last = said, self._embedded(said)
        return self._last[1]

    def _embedded(self, said: str) -> Floats:
        ids = self._pieces.encode(said, self.meta.max_tokens)
        x = self._words.gather(ids) + self._positions[: len(ids)]
        found = self._net.run(x[None])
        if not np.isfinite(found).all():
            raise EngineFailed("the encoder of intents gave numbers that are none; install the project again")
        return found

    def logits(self, text: str) -> Floats:
        """float32 [classes], in the order of `meta.names`, before the temperature."""
        return self._weight @ self.embed(text) + self._bias

    def classify(self, text: str) -> Classified:
        """Of an empty text or one without a letter: nothing meant."""
        if not plain(text):
            return Classified(None, 0.0, [(NONE, 1.0)])
        logits = self.logits(text) / self.meta.temperature
        odds = np.exp(logits - logits.max())
        odds /= odds.sum()
        ranking = sorted(zip(self.meta.names, odds.tolist(), strict=True), key=lambda one: -one[1])
        name, score = next((name, odd) for name, odd in ranking if name != NONE)
        meant = ranking[0][0] == name and score >= self.meta.threshold
        return Classified(name if meant else None, score, ranking)


class _Net:
    """The graph: float32 [1, T, 384] before the first normalisation -> the mean of the last layer [384]."""

    def __init__(self, path: Path, threads: int) -> None:
        import MNN.expr as expr
        import MNN.nn as nn

        self._expr = expr
        # in numbers, as MNN passes over the words for them without a word
        runtime = nn.create_runtime_manager(
            ({"backend": 0, "numThread": threads, "precision": _NORMAL_PRECISION, "memory": _LOW_MEMORY},)
        )
        runtime.set_hint(_DYNAMIC_QUANT, _BY_BLOCK)
        # laid out while it is read, so that the file's own copy goes: 12 MiB in all and not 19
        self._net: Any = nn.load_module_from_file(
            str(path), ["input"], ["output"], runtime_manager=runtime, rearrange=True
        )

    def run(self, x: Floats) -> Floats:
        held = np.ascontiguousarray(x)
        given = self._expr.const(held.ctypes.data, list(held.shape), self._expr.NCHW)
        given.fix_as_const()
        out: Floats = np.array(self._net.forward(given).read(), dtype=np.float32).reshape(-1)
        return out


class Prototypes:
    """Intents by example, without training: a sentence means what the nearest example of an intent means.

    Two measures are held against `meta.nearness`: the cosine with the nearest example, and with the middle of the
    intent's examples; the mean of both decides.
    """

    def __init__(self, encoder: SentenceClassifier, threshold: float | None = None) -> None:
        self._encoder = encoder
        self._threshold = encoder.meta.nearness if threshold is None else threshold
        self._known: dict[str, Floats] = {}

    def add(self, intent: str, sentences: list[str]) -> None:
        """More examples of an intent; five different ones serve well. Texts without a word are passed over."""
        rows = [_unit(self._encoder.embed(text)) for text in sentences if plain(text)]
        if rows:
            known = [self._known[intent]] if intent in self._known else []
            self._known[intent] = np.concatenate([*known, np.stack(rows)])

    def nearest(self, text: str) -> tuple[str | None, float]:
        """The intent and its nearness -1..1; None for the name when nothing is near enough."""
        if not self._known or not plain(text):
            return None, 0.0
        given = _unit(self._encoder.embed(text))
        near = {name: self._nearness(given, rows) for name, rows in self._known.items()}
        name = max(near, key=lambda one: near[one])
        return (name if near[name] >= self._threshold else None), near[name]

    @staticmethod
    def _nearness(given: Floats, rows: Floats) -> float:
        return float((rows @ given).max() + _unit(rows.mean(0)) @ given) / 2


def _unit(vector: Floats) -> Floats:
    length = math.sqrt(float(vector @ vector))
    return vector / max(length, 1e-9)


def checked(folder: Path) -> Meta:
    """Its meta.json, once every file has the size and the sha256 that stand in it."""
    try:
        meta = msgspec.json.decode((folder / META).read_bytes(), type=Meta)
    except FileNotFoundError:
        raise ModelMissing(f"{folder} has no {META}; it ships with the project, so install it again") from None
    except (OSError, msgspec.DecodeError) as error:
        raise ModelDamaged(f"{folder / META} cannot be read ({error}); install the project again") from None
    if meta.format != FORMAT:
        raise ModelDamaged(f"{folder} is of format {meta.format}, and {FORMAT} is what this version reads")
    for name, mark in meta.files.items():
        path = folder / name
        if not path.is_file():
            raise ModelMissing(f"{path} is not there; it ships with the project, so install it again")
        with path.open("rb") as file:
            same = path.stat().st_size == mark.bytes and hashlib.file_digest(file, "sha256").hexdigest() == mark.sha256
        if not same:
            raise ModelDamaged(f"{path} is not the file that shipped; install the project again")
    return meta
