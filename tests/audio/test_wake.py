"""When a score counts, and what is listened for; with the real engine and with one that says what it is told to."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.audio import wake
from assistant.audio.front_messages import WakeSettings
from assistant.audio.wake import Detection, Frame, Trigger, WakeWords, engine, listening, unknown_word
from assistant.audio.wake_trial import expectations, expected_in, listen_to, missed, sound_files, summary
from assistant.errors import ConfigError, ModelDamaged
from tests.speech_corpus import clip_pcm

BLOCK = 1024
DEFAULT = ("hey_jarvis", "okay_nabu")


class Told:
    """An engine whose scores are what the sound's bytes say: 0 to 100 for 0 to 1. A frame is one byte."""

    names: tuple[str, ...] = ("one", "two", "stop")

    def __init__(self) -> None:
        self.streams = self.resets = self.closed = 0

    def phrase(self, word: str) -> str:
        return word.title()

    def features(self) -> ToldFeatures:
        self.streams += 1
        return ToldFeatures()

    def open(self, word: str, threshold: float | None = None) -> ToldDetector:
        return ToldDetector(self, 0.5 if threshold is None else threshold)


class ToldFeatures:
    def __init__(self) -> None:
        self._samples = 0

    def feed(self, pcm: bytes) -> list[Frame]:
        frames = []
        for byte in pcm:
            self._samples += 1600
            frames.append(Frame([float(byte)], self._samples))
        return frames


class ToldDetector:
    def __init__(self, owner: Told, threshold: float) -> None:
        self.threshold = threshold
        self._owner = owner

    def feed(self, frame: Frame) -> float | None:
        return frame.values[0] / 100

    def reset(self) -> None:
        self._owner.resets += 1

    def close(self) -> None:
        self._owner.closed += 1


# --- when a score counts --------------------------------------------------------------------------------------------
def counted(scores: list[float], step_s: float = 0.1, refractory_s: float = 2.0) -> list[int]:
    trigger = Trigger(0.5, refractory_s)
    return [at for at, score in enumerate(scores) if trigger.feed(at * step_s, score)]


def test_a_score_that_stays_high_counts_once() -> None:
    assert counted([0.2, 0.9, 0.9, 0.9, 0.9, *[0.9] * 60]) == [1]


def test_the_threshold_itself_is_not_enough() -> None:
    assert counted([0.5] * 5) == []


def test_it_is_armed_again_after_the_score_fell_and_the_time_has_passed() -> None:
    assert counted([0.9, 0.0, 0.9, *[0.0] * 20, 0.9]) == [0, 23]


def test_a_score_that_fell_and_is_high_again_too_early_waits_for_the_time_to_pass() -> None:
    assert counted([0.9, 0.0, *[0.9] * 30]) == [0, 20]


@given(st.lists(st.floats(0, 1), max_size=300), st.floats(0, 5))
def test_between_two_that_count_time_passed_and_the_score_fell(scores: list[float], refractory_s: float) -> None:
    found = counted(scores, 0.1, refractory_s)
    for before, after in itertools.pairwise(found):
        assert after * 0.1 - before * 0.1 >= refractory_s
        assert min(scores[before:after]) <= 0.5
    assert all(scores[at] > 0.5 for at in found)


# --- several words --------------------------------------------------------------------------------------------------
def test_all_words_hear_one_stream_and_each_has_its_own_threshold() -> None:
    told = Told()
    words = WakeWords(told, ["one", "two", "one"], thresholds={"two": 0.8})
    assert words.words == ("one", "two")
    assert words.thresholds == {"one": 0.5, "two": 0.8}
    assert told.streams == 1
    assert words.feed(bytes([10, 60])) == [Detection(word="one", phrase="One", score=0.6, at_s=0.2)]
    assert [found.word for found in words.feed(bytes([90]))] == ["two"]
    words.close()
    assert told.closed == 2


def test_a_reset_forgets_that_a_word_was_just_heard() -> None:
    told = Told()
    words = WakeWords(told, ["one"])
    assert len(words.feed(bytes([90, 0]))) == 1
    assert words.feed(bytes([90])) == []
    words.reset()
    assert (told.resets, told.streams) == (1, 2)
    assert [found.at_s for found in words.feed(bytes([90]))] == [0.1]


def test_an_unknown_word_is_answered_with_the_known_ones_the_nearest_first() -> None:
    with pytest.raises(ConfigError, match=r"there are: hey_jarvis, hey_mycroft, .*wake\.models_dir"):
        WakeWords(engine("micro"), ["hey_jarvs"])
    assert "there are none" in unknown_word("x", []).message


@pytest.mark.parametrize("threshold", [-0.1, 1.0, float("nan")])
def test_a_threshold_out_of_range_is_refused(threshold: float) -> None:
    with pytest.raises(ConfigError, match=r"wake\.thresholds: one="):
        WakeWords(Told(), ["one"], thresholds={"one": threshold})


def test_an_unknown_engine_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"wake\.engine: there is no engine 'macro'; choose one of: micro"):
        engine("macro")


def test_every_engine_of_the_table_can_be_made() -> None:
    for name in wake.ENGINES:
        assert engine(name).names


# --- stop words -----------------------------------------------------------------------------------------------------
def test_stop_words_are_told_apart_and_a_wake_word_is_none() -> None:
    words, stops = listening(WakeSettings(words=("one",), stop_words=("stop", "one")), Told())
    assert words.words == ("one", "stop")
    assert stops == ("stop",)


def test_a_stop_word_without_model_is_left_out_and_the_log_says_how_to_get_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        words, stops = listening(WakeSettings(words=("hey_jarvis",), stop_words=("stop",)))
    assert words.words == ("hey_jarvis",)
    assert stops == ()
    (line,) = caplog.messages
    assert line.endswith("it has no model. Get it with: assistant models fetch wake-stop")


def test_a_damaged_stop_word_is_left_out_and_a_damaged_wake_word_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "stop.json").write_text("{")
    folders = (str(tmp_path),)
    with caplog.at_level(logging.INFO):
        _, stops = listening(WakeSettings(words=("hey_jarvis",), stop_words=("stop",), models_dirs=folders))
    assert stops == ()
    assert "does not describe a wake word" in caplog.messages[0]
    with pytest.raises(ModelDamaged, match="does not describe a wake word"):
        listening(WakeSettings(words=("stop",), models_dirs=folders))


# --- on human recordings --------------------------------------------------------------------------------------------
def test_each_positive_is_found_by_its_own_word(speech: Path) -> None:
    manifest = expectations(speech)
    assert manifest is not None
    positives = {file: word for file, word in manifest.items() if word}
    assert len(positives) >= 9
    found = 0
    for file, word in positives.items():
        with WakeWords(engine("micro"), [word]) as words:
            found += not missed(listen_to(speech / file, file, word, words), words.words)
    assert found / len(positives) >= 0.9


def test_the_default_words_accept_nothing_that_is_not_theirs(speech: Path) -> None:
    manifest = expectations(speech)
    with WakeWords(engine("micro"), DEFAULT) as words:
        files = [(path, path.relative_to(speech).as_posix()) for path in sound_files(speech)]
        clips = [listen_to(path, file, expected_in(file, manifest, DEFAULT), words) for path, file in files]
    counts = summary(clips, DEFAULT)
    assert (counts.positives, counts.found, counts.false_accepts) == (4, 4, 0)
    assert counts.files - counts.unreadable > 70
    assert counts.seconds > 300


def test_it_does_not_matter_in_which_portions_the_sound_comes(speech: Path) -> None:
    pcm = bytes(32_000) + clip_pcm(speech, "wake_hey_jarvis_1.wav")
    heard = []
    for size in (len(pcm), BLOCK, 100, 3202):
        with WakeWords(engine("micro"), DEFAULT) as words:
            heard.append([one for at in range(0, len(pcm), size) for one in words.feed(pcm[at : at + size])])
    assert [found.word for found in heard[0]] == ["hey_jarvis"]
    assert all(one == heard[0] for one in heard)
