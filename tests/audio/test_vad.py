"""The gate in front of the recognisers: people pass, everything else does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.audio.vad import (
    MIN_SPEECH_S,
    WINDOW_BYTES,
    WINDOW_S,
    Span,
    VoiceActivity,
    spans_of,
    speech_probabilities,
    speech_spans,
    trim_to_speech,
)
from assistant.bench.wer import corpus, pcm_of
from tests.speech_corpus import SYNTHETIC, clip_pcm, to_pcm, wordless

RATE_BYTES = 32_000


# --- on real sound --------------------------------------------------------------------------------------------------
def test_nothing_passes_where_nobody_speaks(speech: Path) -> None:
    clips = wordless(speech)
    assert {"noise_room_12s.wav", "noise_sb_1.wav", "mc_noise_diffuse_4ch.flac", "sil_room_1s.wav"} <= {
        c.file for c in clips
    }
    assert {clip.file: speech_spans(pcm_of(speech, clip)) for clip in clips} == {clip.file: [] for clip in clips}


@pytest.mark.parametrize("name", SYNTHETIC)
def test_nothing_passes_of_what_no_throat_made(name: str) -> None:
    assert speech_spans(to_pcm(SYNTHETIC[name])) == []


def test_every_recording_in_which_somebody_speaks_passes(speech: Path) -> None:
    spoken = [clip for clip in corpus(speech) if clip.reference]
    assert len(spoken) > 50
    assert [clip.file for clip in spoken if not speech_spans(pcm_of(speech, clip))] == []


@pytest.mark.parametrize("word", ["stop", "pause", "record", "resume", "nevermind"])
def test_one_word_commands_pass(speech: Path, word: str) -> None:
    pcm = clip_pcm(speech, f"cmd_{word}.wav")
    spans = speech_spans(pcm)
    assert len(spans) == 1
    assert MIN_SPEECH_S < spans[0].seconds < 1.5
    assert 0 < len(trim_to_speech(pcm, spans)) <= len(pcm)


def test_silence_around_a_question_is_cut(speech: Path) -> None:
    pcm = clip_pcm(speech, "cmd_brooklyn_silence_padding.wav")
    (span,) = speech_spans(pcm)
    assert 1.9 < span.start_s < 2.3
    assert 3.6 < span.end_s < 4.2
    assert len(trim_to_speech(pcm, [span])) / RATE_BYTES == pytest.approx(span.seconds + 0.4, abs=0.01)


def test_short_and_empty_audio() -> None:
    assert speech_spans(b"") == []
    assert len(speech_probabilities(bytes(1026))) == 2


def test_it_needs_no_team_of_threads() -> None:
    """Measured in a process of its own: four waiting threads made it up to 15 times slower."""
    program = (
        "import os; from assistant.audio.vad import speech_probabilities; speech_probabilities(bytes(64000));"
        "print(len(os.listdir('/proc/self/task')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


# --- the rules, without a detector ----------------------------------------------------------------------------------
def spans(*probabilities: float) -> list[tuple[int, int]]:
    """Spans in windows."""
    found = spans_of(probabilities, len(probabilities) * WINDOW_S)
    return [(round(span.start_s / WINDOW_S), round(span.end_s / WINDOW_S)) for span in found]


def test_one_clear_window_carries_its_weaker_neighbours() -> None:
    assert spans(0, 0.2, 0.4, 0.7, 0.5, 0.2, 0) == [(1, 6)]


def test_no_clear_window_no_span() -> None:
    assert spans(*[0.5] * 20) == []


def test_a_click_is_too_short() -> None:
    assert spans(0, 0.9, 0.9, 0) == []
    assert spans(0, 0.9, 0.9, 0.9, 0) == [(1, 4)]


def test_gaps_between_words_are_bridged_and_longer_ones_are_not() -> None:
    word = [0.9] * 5
    assert spans(*word, *[0.0] * 9, *word) == [(0, 19)]
    assert spans(*word, *[0.0] * 10, *word) == [(0, 5), (15, 20)]


@given(st.lists(st.floats(0, 1), max_size=200))
def test_spans_are_ordered_apart_and_inside(probabilities: list[float]) -> None:
    seconds = len(probabilities) * WINDOW_S
    found = spans_of(probabilities, seconds)
    edges = [edge for span in found for edge in (span.start_s, span.end_s)]
    assert edges == sorted(edges)
    assert all(0 <= edge <= seconds for edge in edges)


def test_trimming_keeps_the_padding_and_cuts_long_pauses() -> None:
    pcm = bytes(range(256)) * (RATE_BYTES * 10 // 256)
    assert trim_to_speech(pcm, []) == b""
    assert trim_to_speech(pcm, [Span(0.0, 10.0)]) == pcm
    one = trim_to_speech(pcm, [Span(1.0, 2.0)], pad_s=0.5)
    assert one == pcm[int(0.5 * RATE_BYTES) : int(2.5 * RATE_BYTES)]
    near = trim_to_speech(pcm, [Span(1.0, 2.0), Span(2.9, 4.0)], pad_s=0.5)
    assert near == pcm[int(0.5 * RATE_BYTES) : int(4.5 * RATE_BYTES)]
    far = trim_to_speech(pcm, [Span(1.0, 2.0), Span(6.0, 7.0)], pad_s=0.5)
    assert far == one + pcm[int(5.5 * RATE_BYTES) : int(7.5 * RATE_BYTES)]


# --- sound that is still coming -------------------------------------------------------------------------------------
def test_window_after_window_gives_what_the_whole_gives(speech: Path) -> None:
    pcm = clip_pcm(speech, "cmd_r3_turn_on_the_lamp.wav")
    pcm += bytes(-len(pcm) % WINDOW_BYTES)
    listener = VoiceActivity()
    one_by_one = [listener.feed(pcm[at : at + WINDOW_BYTES]) for at in range(0, len(pcm), WINDOW_BYTES)]
    assert [probability for (probability,) in one_by_one] == speech_probabilities(pcm)


def test_it_remembers_until_it_is_reset(speech: Path) -> None:
    pcm = clip_pcm(speech, "cmd_pause.wav")[: WINDOW_BYTES * 40]
    listener = VoiceActivity()
    first = listener.feed(pcm)
    assert listener.feed(pcm) != first
    listener.reset()
    assert listener.feed(pcm) == first


def test_only_whole_windows_are_taken() -> None:
    with pytest.raises(ValueError, match="no whole windows"):
        VoiceActivity().feed(bytes(WINDOW_BYTES + 2))
