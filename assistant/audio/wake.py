"""Wake words: several at once over one stream of features, and when a score counts. Imports `errors` and messages.

An engine is a row of `ENGINES`; only `engine` imports it. `Trigger` decides, and knows no engine: it is fed with times
and scores. Never touches a device, and never knows what becomes of a detection.
"""

from __future__ import annotations

import difflib
import importlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

import msgspec

from assistant.audio.front_messages import WakeSettings
from assistant.closing import Closing
from assistant.errors import ConfigError, ModelError

log = logging.getLogger(__name__)

ENGINES: dict[str, str] = {"micro": "assistant.audio.wake_micro:MicroWake"}
"""`module:Class` by the name that `wake.engine` has; a class takes the folders of further models."""
RATE_BYTES = 32_000
"""Of a second of s16le mono at 16 kHz."""


class Frame(msgspec.Struct, frozen=True):
    values: list[float]
    """What the engine's detectors want of 10 ms of sound."""
    samples: int
    """Of the stream, up to the end of this frame."""


class Features(Protocol):
    """What all words of an engine are looked for in; made once for all of them."""

    def feed(self, pcm: bytes) -> list[Frame]:
        """Takes s16le mono at 16 kHz in any portions; keeps what is no whole frame yet."""
        ...


class Detector(Protocol):
    threshold: float
    """What a score must exceed: the one it was opened with, or its maker's."""

    def feed(self, frame: Frame) -> float | None:
        """Score in 0..1 when there is a new one; models take several frames at once."""
        ...

    def reset(self) -> None:
        """Forgets what was heard."""
        ...

    def close(self) -> None: ...


class WakeEngine(Protocol):
    names: tuple[str, ...]
    """Words that have a model."""

    def phrase(self, word: str) -> str:
        """How people write it: "hey jarvis". Raises `ModelError`."""
        ...

    def features(self) -> Features: ...

    def open(self, word: str, threshold: float | None = None) -> Detector:
        """`word` is one of `names`. Raises `ModelError` for a file that is no model."""
        ...


class Detection(msgspec.Struct, frozen=True, kw_only=True):
    word: str
    phrase: str
    score: float
    at_s: float
    """Seconds of sound since the start or the last reset, up to the end of the frame that was decisive."""


class Trigger:
    """When a score counts: once for each utterance, although the score stays high for a while.

    Armed again after the score has fallen to the threshold and `refractory_s` have passed since it last counted.
    """

    def __init__(self, threshold: float, refractory_s: float) -> None:
        self._threshold = threshold
        self._refractory_s = refractory_s
        self._fallen = True
        self._last_s = float("-inf")

    def feed(self, at_s: float, score: float) -> bool:
        if score <= self._threshold:
            self._fallen = True
            return False
        if not self._fallen or at_s - self._last_s < self._refractory_s:
            return False
        self._fallen = False
        self._last_s = at_s
        return True


class _Word(msgspec.Struct):
    word: str
    phrase: str
    detector: Detector
    trigger: Trigger


class WakeWords(Closing):
    """Listens for all words at once. Not for several threads."""

    def __init__(
        self,
        engine: WakeEngine,
        words: Sequence[str],
        *,
        thresholds: Mapping[str, float] | None = None,
        refractory_s: float = 2.0,
    ) -> None:
        """Raises `ConfigError` for an unknown word or a threshold out of range, `ModelError` for a damaged model."""
        self._engine = engine
        self._refractory_s = refractory_s
        self._words: list[_Word] = []
        for word in dict.fromkeys(words):
            if word not in engine.names:
                raise unknown_word(word, engine.names)
            threshold = _checked(word, (thresholds or {}).get(word))
            detector = engine.open(word, threshold)
            trigger = Trigger(detector.threshold, refractory_s)
            self._words.append(_Word(word, engine.phrase(word), detector, trigger))
        self._features = engine.features()

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(one.word for one in self._words)

    @property
    def thresholds(self) -> dict[str, float]:
        """In force, by word."""
        return {one.word: one.detector.threshold for one in self._words}

    def phrase(self, word: str) -> str:
        return next(one.phrase for one in self._words if one.word == word)

    def feed(self, block: bytes) -> list[Detection]:
        """What was recognised with the end of this s16le mono sound at 16 kHz, usually nothing."""
        found: list[Detection] = []
        for frame in self._features.feed(block):
            at_s = frame.samples * 2 / RATE_BYTES
            for one in self._words:
                score = one.detector.feed(frame)
                if score is not None and one.trigger.feed(at_s, score):
                    found.append(Detection(word=one.word, phrase=one.phrase, score=score, at_s=at_s))
        return found

    def reset(self) -> None:
        """What comes next has nothing to do with what was heard."""
        self._features = self._engine.features()
        for one in self._words:
            one.detector.reset()
            one.trigger = Trigger(one.detector.threshold, self._refractory_s)

    def close(self) -> None:
        for one in self._words:
            one.detector.close()
        self._words = []


def engine(name: str, models_dirs: Iterable[str | Path] = ()) -> WakeEngine:
    """The engine, with the models of these folders besides its own. Raises `ConfigError` naming the known engines."""
    try:
        module, _, attribute = ENGINES[name].partition(":")
    except KeyError:
        known = ", ".join(sorted(ENGINES))
        raise ConfigError(f"wake.engine: there is no engine {name!r}; choose one of: {known}") from None
    made = getattr(importlib.import_module(module), attribute)([Path(folder) for folder in models_dirs])
    return cast(WakeEngine, made)


def listening(settings: WakeSettings, source: WakeEngine | None = None) -> tuple[WakeWords, tuple[str, ...]]:
    """The wake words and those stop words that can be had, on one stream; and which of them are stop words.

    A stop word without a usable model is left out, which the log says once. `source`: the engine, instead of the one
    that the settings name. Raises as `WakeWords` does.
    """
    chosen = source or engine(settings.engine, settings.models_dirs)
    stops: list[str] = []
    for word in settings.stop_words:
        if word in settings.words or word in stops:
            continue
        if problem := _unusable(chosen, word):
            # the usual one is heard without a model, too, only later
            level = logging.INFO if word == "stop" else logging.WARNING
            log.log(level, "The stop word %r is not listened for: %s. Get it with: %s", word, problem, _command(word))
            continue
        stops.append(word)
    words = WakeWords(
        chosen, (*settings.words, *stops), thresholds=settings.thresholds, refractory_s=settings.refractory_s
    )
    return words, tuple(stops)


def unknown_word(word: str, known: Iterable[str]) -> ConfigError:
    """Names the known words, the nearest first."""
    near = sorted(known, key=lambda name: (-difflib.SequenceMatcher(None, word.lower(), name).ratio(), name))
    have = f"there are: {', '.join(near)}" if near else "there are none"
    return ConfigError(
        f"wake.words: there is no model of a wake word {word!r}; {have}. "
        "Put NAME.json and its .tflite file into the folder of wake.models_dir for another."
    )


def _unusable(source: WakeEngine, word: str) -> str:
    """Why there is no listening for it, "" when there is."""
    if word not in source.names:
        return "it has no model"
    try:
        source.open(word).close()
    except ModelError as error:
        return error.message.rstrip(".")
    return ""


def _command(word: str) -> str:
    return f"assistant models fetch wake-{word}"


def _checked(word: str, threshold: float | None) -> float | None:
    if threshold is not None and not 0 <= threshold < 1:
        raise ConfigError(f"wake.thresholds: {word}={threshold:g} is no threshold; give a number from 0 to below 1")
    return threshold
