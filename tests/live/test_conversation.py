"""Somebody speaks, the assistant answers: human recordings in a virtual microphone, real engines, a virtual speaker
whose sound is transcribed again."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path

import numpy as np
import pytest

from tests.live.living import (
    PATIENCE_S,
    QUIET,
    folder,
    living,
    loudness,
    mixed,
    recording,
    room,
    spoken,
)
from tests.sound import Sink, SoundSystem

pytestmark = [
    pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(120), pytest.mark.usefixtures("speech"), pytest.mark.sound
]  # fmt: skip

WAKE = "wake_hey_jarvis_1.wav"
TIME = "cmd_r3_what_time_is_it.wav"
A_TIME = re.compile(r"\b(time|o'?clock|\d{1,2}|[ap]\.?m)\b", re.IGNORECASE)
LONG = ("stages.llm.max_new_tokens=300", "stages.llm.system_prompt=Tell a very long story.")


def test_questions_are_answered_aloud_with_and_without_a_pause_after_the_wake_word(tmp_path: Path) -> None:
    with living(tmp_path) as one:
        # in one breath
        with one.heard() as said:
            one.sound.play(room(1) + recording(WAKE)[: -int(0.45 * 32_000)] + spoken(TIME, 0.05) + room(0.5))
            one.until_woken(1)
        (report,) = one.reports(1)
        assert report["outcome"] == "handled", report
        assert report["intent"]["name"] == "HassGetCurrentTime", report
        assert "jarvis" not in report["transcript"].lower(), "the wake word is no part of the question"
        assert A_TIME.search(said()), said()

        # with a pause, and another wake word; to the LLM
        with one.heard() as said:
            one.sound.play(
                room(1) + recording("wake_okay_nabu_1.wav") + room(1) + spoken("cmd_brooklyn_bridge.wav") + room(1)
            )
            one.until_woken(2)
        report = one.reports(2)[-1]
        assert report["outcome"] == "answered", report
        assert "brooklyn" in report["transcript"].lower()
        assert len(said().split()) >= 3, said()
        assert report["timings_ms"]["speech_end_to_first_audio"] > 500, (
            "it counts from the end of speech, not of silence"
        )

        # silence after the wake word
        with one.sound.recording() as sounds:
            one.sound.play(room(1) + recording("wake_hey_jarvis_2.wav") + room(4))
            one.until_woken(3)
            status = one.until_state("idle")
            time.sleep(0.5)
        loud = loudness(sounds.pcm) > QUIET
        begins = np.flatnonzero(loud[1:] & ~loud[:-1]) / 100
        assert len(begins) > 1, "it said that it listens, and that it does not any more"
        assert begins[-1] - begins[0] > 3, begins
        assert status.voice is not None
        assert status.voice.unheard == 1
        assert one.reports(3)[-1]["error"]["code"].startswith("stt-")
        assert status.voice.overflows == 0
        assert "brooklyn" not in one.daemon.log.lower(), "nobody's words are in a log at level info"


def test_it_wakes_in_noise_and_not_at_other_words(tmp_path: Path) -> None:
    noise = recording("noise_sb_1.wav")
    with living(tmp_path) as one:
        others = b"".join(
            recording(path.name) + room(0.5)
            for path in sorted(folder().glob("*.wav"))
            if path.name.startswith(("neg_", "cmd_stop", "lang_fr_whats"))  # audio/test_wake.py hears all of them
        )
        one.sound.play(room(1) + others)
        status = one.status
        assert status.voice is not None
        assert (status.voice.wakes, status.state) == (0, "idle")
        wake = mixed(room(1) + recording(WAKE) + spoken(TIME) + room(1), noise, snr_db=10)
        one.sound.play(wake)
        one.until_woken(1)
        one.until_state("idle")
        assert one.reports(1)[0]["outcome"] in ("handled", "answered")


def test_an_answer_is_interrupted_by_a_wake_word_and_by_stop(tmp_path: Path) -> None:
    with living(tmp_path, *LONG) as one, contextlib.ExitStack() as stack:
        question = room(1) + recording(WAKE) + spoken("cmd_brooklyn_bridge.wav") + room(0.5)
        one.sound.play(question)
        one.until_state("responding")
        time.sleep(1)
        with one.sound.recording() as heard:
            time.sleep(0.5)
            stack.enter_context(
                one.speaking(room(0.2) + recording("wake_hey_jarvis_2.wav") + room(0.6) + spoken(TIME) + room(1))
            )
            one.until_woken(2)
            silenced = time.monotonic()
            time.sleep(0.4)
        levels = loudness(heard.pcm)
        before = levels[: heard.index(silenced) // 160]
        after = levels[(heard.index(silenced) + int(0.15 * 16_000)) // 160 :][:20]
        assert np.median(before[20:60]) > QUIET, "it spoke"
        assert np.max(after) < QUIET, "150 ms after the wake word it does not"
        one.until_state("idle")
        first, second = one.reports(2, 40)
        assert first["outcome"] == "cancelled"
        assert second["outcome"] == "handled", second

        one.sound.play(question)
        one.until_state("responding")
        time.sleep(1)
        one.sound.play(recording("cmd_stop.wav") + room(1))
        one.until_state("idle", 8)
        assert one.reports(3)[-1]["outcome"] == "cancelled"


def test_two_wake_words_in_a_row_and_a_minute_of_talk(tmp_path: Path) -> None:
    with living(tmp_path) as one:
        one.sound.play(
            room(1) + recording(WAKE) + room(0.8) + recording("wake_okay_nabu_2.wav") + spoken(TIME) + room(1)
        )
        one.until_woken(2)
        one.until_state("idle")
        assert one.reports(1)[-1]["outcome"] == "handled"
        talk = (spoken("two_katiesteve_mono.wav") + spoken("two_enroll_katie.wav")) * 2
        with one.speaking(room(1) + recording(WAKE) + talk[: 60 * 32_000]):
            one.until_woken(3)
            begun = time.monotonic()
            one.until(lambda status: status.state in ("processing", "responding"))
            assert time.monotonic() - begun < 19, "nobody is listened to for ever"
        one.until_state("idle", 60)
        assert one.reports(len(one.reports(2)))[-1]["outcome"] in ("answered", "handled", "failed")


def test_a_device_of_another_rate_that_knows_stereo_alone(tmp_path: Path) -> None:
    sound = SoundSystem(tmp_path, mic=Sink(44_100, 2), speaker=Sink(44_100, 2))
    with living(tmp_path, sound=sound) as one:
        with one.heard() as said:
            one.sound.play(room(1) + recording(WAKE) + spoken(TIME) + room(1))
            one.until_woken(1)
        assert one.reports(1, PATIENCE_S)[-1]["outcome"] == "handled"
        assert A_TIME.search(said()), said()
