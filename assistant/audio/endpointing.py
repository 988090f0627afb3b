"""Where an utterance begins and ends: a pure state machine, fed with durations and probabilities of speech.

Imports the vocabulary and the thresholds of `vad`. Knows no clock, no sound and no detector: what it is told in is what
it decides on, at whatever step.

    (nothing)  --speech-->  speaking  --pause-->  paused  --resumed-->  speaking ...
    (nothing)  --end(no-speech)      speaking, paused  --end(silence), end(cap)

A run is what lies between two steps of at most `KEEP`; it is speech once one step of it was at least `START` and
`least_speech_s` of it at least `VOICED`. Silence is counted from the last voiced step of a run that is speech.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from assistant.audio.front_messages import EndpointSettings, EndReason
from assistant.audio.vad import KEEP, START, VOICED

TAIL_S = 0.4
"""Speech that goes on from the wake word counts when it is longer than this: wake words are recognised from 0.15 s
before to 0.1 s after their end, and the voice activity detector takes another 0.1 s to see that it is over."""
_SAME = 1e-9
"""Seconds that sums of steps may differ by."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Something that `Spoke` tells."""

    what: Literal["speech", "pause", "resumed", "end"]
    reason: EndReason = "silence"
    """Of `end`."""
    speech_s: float = 0.0
    silence_s: float = 0.0


class _Run:
    """Steps above `KEEP` without a gap."""

    def __init__(self, is_tail: bool) -> None:
        self.is_tail = is_tail
        self.seconds = self.voiced_s = self.unvoiced_s = self.peak = 0.0
        """`unvoiced_s`: since its last voiced step."""

    def feed(self, seconds: float, probability: float) -> None:
        self.seconds += seconds
        self.peak = max(self.peak, probability)
        if probability >= VOICED:
            self.voiced_s += seconds
            self.unvoiced_s = 0.0
        else:
            self.unvoiced_s += seconds

    def is_speech(self, least_s: float) -> bool:
        spoken = self.peak >= START and self.voiced_s >= least_s - _SAME
        return spoken and (not self.is_tail or self.seconds - self.unvoiced_s > TAIL_S + _SAME)

    @property
    def may_become_speech(self) -> bool:
        """Its last step was voiced: a word may just be beginning, and nothing is ended in the middle of it."""
        return self.peak >= START and not self.unvoiced_s


class Endpointer:
    """`feed` with every step; after an `end` nothing more is told until `go_on`."""

    def __init__(self, settings: EndpointSettings, *, after_wake: bool = False) -> None:
        """`after_wake`: the first steps may still hold the end of the wake word."""
        self._settings = settings
        self._ended = False
        self._fresh = after_wake
        self._begin()

    def _begin(self) -> None:
        self._run: _Run | None = None
        self._waited_s = 0.0
        """Since the beginning."""
        self._since_speech_s: float | None = None
        """Since speech was first heard; None: not yet."""
        self._past_s = 0.0
        """Speech in runs that are over."""
        self._silence_s = 0.0
        self._told_speech = self._told_pause = False

    @property
    def ended(self) -> bool:
        return self._ended

    def go_on(self) -> None:
        """What was said up to the end was no command: begins anew, with what was said since. Before an end: nothing."""
        if self._ended:
            self._ended = False
            self._waited_s = 0.0

    def feed(self, seconds: float, probability: float) -> list[Turn]:
        """The next `seconds` of sound, and the probability that somebody speaks in them (True and False will do)."""
        self._count(seconds, float(probability))
        if self._ended:
            return []
        turns = self._turns()
        if turns and turns[-1].what == "end":
            self._ended = True
            self._begin()
        return turns

    def _count(self, seconds: float, probability: float) -> None:
        if probability < KEEP:
            if self._is_speech(self._run):
                self._past_s += self._length(self._run)
            self._run = None
        else:
            self._run = self._run or _Run(is_tail=self._fresh)
            self._run.feed(seconds, probability)
        self._fresh = False
        self._waited_s += seconds
        self._silence_s += seconds
        if self._since_speech_s is not None:
            self._since_speech_s += seconds
        if self._run is not None and self._is_speech(self._run):
            self._silence_s = self._run.unvoiced_s
            if self._since_speech_s is None:
                self._since_speech_s = self._run.seconds

    def _is_speech(self, run: _Run | None) -> bool:
        return run is not None and run.is_speech(self._settings.least_speech_s)

    @staticmethod
    def _length(run: _Run | None) -> float:
        return run.seconds - run.unvoiced_s if run else 0.0

    def _turns(self) -> list[Turn]:
        """What is to be told of what was counted."""
        wanted = self._settings
        if self._since_speech_s is None:
            if 0 < wanted.no_speech_s <= self._waited_s + _SAME and not self._beginning:
                return [self._turn("end", "no-speech")]
            return []
        turns: list[Turn] = []
        paused = self._silence_s >= wanted.pause_s - _SAME and (self._told_pause or not self._beginning)
        over = self._silence_s >= wanted.end_silence_s - _SAME and not self._beginning
        capped = self._since_speech_s >= wanted.max_s - _SAME
        if not self._told_speech and (self._speech_s >= wanted.speech_start_s - _SAME or paused or over or capped):
            self._told_speech = True
            turns.append(self._turn("speech"))
        if over or capped:
            turns.append(self._turn("end", "silence" if over else "cap"))
        elif paused != self._told_pause and self._told_speech:
            self._told_pause = paused
            turns.append(self._turn("pause" if paused else "resumed"))
        return turns

    @property
    def _beginning(self) -> bool:
        return self._run is not None and self._run.may_become_speech and not self._is_speech(self._run)

    @property
    def _speech_s(self) -> float:
        return self._past_s + (self._length(self._run) if self._is_speech(self._run) else 0.0)

    def _turn(self, what: Literal["speech", "pause", "resumed", "end"], reason: EndReason = "silence") -> Turn:
        heard = self._since_speech_s is not None
        return Turn(
            what=what, reason=reason, speech_s=self._speech_s, silence_s=self._silence_s if heard else self._waited_s
        )
