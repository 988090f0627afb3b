"""Hears our own wake words in what the speaker is given: the detector of `echo.OwnVoice`. Imports `wake`.

Models of its own, since a detector remembers what it has heard. They are opened when we first speak.
"""

from __future__ import annotations

from assistant.audio.front_messages import WakeSettings
from assistant.audio.wake import Detector, Features, engine
from assistant.errors import AssistantError


class SelfListener:
    def __init__(self, settings: WakeSettings) -> None:
        self._settings = settings
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
        for word in (*self._settings.words, *self._settings.stop_words):
            try:
                self._detectors.append(source.open(word))
            except AssistantError:  # a stop word without a model: nobody listens for it at the microphone either
                continue
