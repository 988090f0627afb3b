"""Whisper on human recordings: accuracy, long audio, and silence about what nobody said."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.bench import wer
from assistant.messages import AsrRequest, Progress, Transcript
from assistant.model_store.store import ModelInfo
from assistant.stages.asr_whisper import MAX_PIECE_S, MIN_PIECE_S, WhisperAsr, pieces_of, window_seconds
from assistant.stages.base import EngineConfig
from tests.speech_corpus import SYNTHETIC, clip_pcm, to_pcm
from tests.stages.asr_engines import whisper

RATE = 16_000


# --- cutting, without a model ---------------------------------------------------------------------------------------
def test_windows_are_never_short_and_never_longer_than_whisper() -> None:
    assert [window_seconds(s) for s in (0.1, 14.5, 20.0, 28.0)] == [15.0, 15.5, 21.0, 29.0]
    assert window_seconds(40) == 30


def test_long_audio_is_cut_where_it_is_quiet() -> None:
    audio = np.full(30 * RATE, 0.5, np.float32)
    for second in (9, 17):
        audio[second * RATE : second * RATE + RATE // 2] = 0.0
    pieces = list(pieces_of(audio))
    assert np.array_equal(np.concatenate(pieces), audio)
    assert [len(piece) / RATE for piece in pieces[:2]] == [pytest.approx(9.25, abs=0.25), pytest.approx(8, abs=0.4)]


@given(st.integers(0, 100 * RATE))
@settings(max_examples=20, deadline=None)
def test_pieces_are_neither_too_long_nor_too_short_and_lose_nothing(count: int) -> None:
    audio = np.random.default_rng(count).normal(0, 0.1, count).astype(np.float32)
    pieces = list(pieces_of(audio))
    assert sum(map(len, pieces)) == (count if count >= RATE // 10 else 0)
    assert all(len(piece) <= MAX_PIECE_S * RATE for piece in pieces)
    assert all(len(piece) >= MIN_PIECE_S * RATE for piece in pieces[:-1])
    assert len(pieces) < 2 or len(pieces[-1]) >= RATE


def test_almost_nothing_is_no_piece() -> None:
    assert list(pieces_of(np.zeros(100, np.float32))) == []


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    config = EngineConfig(model="m", model_dir=tmp_path, cache_dir=tmp_path, threads=1, options={"langauge": "fr"})
    with pytest.raises(msgspec.ValidationError, match="langauge"):
        WhisperAsr(config)


# --- with real weights ----------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def engine(model: Callable[[str], ModelInfo], tmp_path_factory: pytest.TempPathFactory) -> Iterator[WhisperAsr]:
    with whisper(model, tmp_path_factory.mktemp("cache")) as engine:
        yield engine


@pytest.fixture(scope="module")
def heard(engine: WhisperAsr, speech: Path) -> list[wer.Heard]:
    """Every English recording, and those without speech, through voice activity detection and whisper."""
    clips = [clip for clip in wer.corpus(speech) if clip.language in ("en", "none")]
    return wer.hear(engine, speech, clips)


@pytest.mark.engine
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("pattern", "words", "limit"), [("cmd_r3_", 12, 0.05), ("sent_", 90, 0.10), ("cmd_", 80, 0.26), ("tel_", 4, 0.0)]
)
def test_word_error_rates(heard: list[wer.Heard], pattern: str, words: int, limit: float) -> None:
    rate, errors, counted = wer.group_rate(heard, pattern)
    assert counted >= words
    assert rate <= limit, f"{errors} errors in {counted} words"


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_nothing_is_transcribed_where_nobody_speaks(heard: list[wer.Heard]) -> None:
    wordless = [row for row in heard if not row.clip.reference and "noise" in row.clip.categories]
    assert len(wordless) >= 4
    assert {row.clip.file: row.text for row in wordless if row.text} == {}


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_the_first_guard_is_not_the_only_one(engine: WhisperAsr) -> None:
    """Most noise is not believed even if it gets past voice activity detection; none of it becomes a loop."""
    texts = {}
    for name, samples in SYNTHETIC.items():
        *_, last = engine.run(AsrRequest(pcm=to_pcm(samples)))
        assert isinstance(last, Transcript)
        texts[name] = last.text
    assert sum(text == "" for text in texts.values()) >= len(texts) - 2, texts
    assert all(len(text.split()) < 8 for text in texts.values()), texts


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_a_minute_comes_in_pieces_and_nothing_is_lost(engine: WhisperAsr, speech: Path) -> None:
    question = clip_pcm(speech, "cmd_r3_what_time_is_it.wav")
    talk = clip_pcm(speech, "two_enroll_katie.wav")
    pcm = question + bytes(RATE) + talk + bytes(RATE) + talk + bytes(RATE) + talk + bytes(RATE) + question
    assert len(pcm) > 60 * RATE * 2
    outputs = list(engine.run(AsrRequest(pcm=pcm)))
    texts = [out for out in outputs if isinstance(out, Transcript)]
    assert len(texts) >= 3
    assert [out.final for out in texts] == [False] * (len(texts) - 1) + [True]
    for earlier, later in itertools.pairwise(texts):
        assert later.text.startswith(earlier.text)
    said = " ".join(wer.folded_words(texts[-1].text))
    assert said.count("what time is it") == 2
    assert said.count("unique voice in the future") == 3
    assert sum(isinstance(out, Progress) for out in outputs) >= len(texts)


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_whisper_does_not_stop_after_the_first_of_several_sentences(engine: WhisperAsr, speech: Path) -> None:
    """Heard in one piece, it leaves out a whole sentence here."""
    names = ("cmd_brooklyn_bridge", "sent_new_home_in_the_stars", "sent_librivox_0870", "cmd_r3_this_is_a_test")
    pcm = b"".join(clip_pcm(speech, f"{name}.wav") + bytes(RATE) for name in names)
    *_, last = engine.run(AsrRequest(pcm=pcm))
    assert isinstance(last, Transcript)
    assert "Brooklyn Bridge" in last.text
    assert "home in the stars" in last.text
    assert "Dashwood had then leisure" in last.text
    assert "This is a test" in last.text
