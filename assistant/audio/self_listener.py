"""Hears our own wake words in what the speaker is given: the detector of `echo.OwnVoice`. Imports `wake`.

Models of its own, since a detector remembers what it has heard. They are opened when we first speak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from assistant.audio.front_messages import WakeSettings
from assistant.audio.wake import Detector, Features, engine


class SelfListener:
    def __init__(self, settings: WakeSettings, words: Callable[[], Iterable[str]]) -> None:
        """`words`: those that somebody listens for at the microphone."""
        self._settings, self._words = settings, words
        self._features: Features | None = None
        self._detectors: list[Detector] = []

    def __call__(self, block: bytes) -> float:
        """The probability of any of our words after this block, s16le mono at 16 kHz."""
        if self._features is None:
            self._open()
        assert self._features is not None
        best = 0.0
        for frame in self._features.feed(block):
            for detector in self._detectors:
                best = max(best, detector.feed(frame) or 0.0)
        return best

    def _open(self) -> None:
        source = engine(self._settings.engine, self._settings.models_dirs)
        self._features = source.features()
        self._detectors = [source.open(word) for word in self._words()]
