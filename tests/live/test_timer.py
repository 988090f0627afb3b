"""A timer that rings at a real speaker: its sound, its words, and the people who end it."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from assistant.api.client import Client
from assistant.messages_timers import TimerStatus
from tests.api.daemon_process import until
from tests.live.living import PATIENCE_S, QUIET, Living, living, loudness, recording, room, words_of

pytestmark = [
    pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(120), pytest.mark.usefixtures("speech"), pytest.mark.sound
]  # fmt: skip


def timers(one: Living) -> tuple[TimerStatus, ...]:
    with Client(one.daemon.folder) as client:
        return client.timers()


def set_one(one: Living, text: str = "set a timer for 2 seconds") -> None:
    from assistant.api import wire

    with Client(one.daemon.folder) as client:
        *_, (report, _) = client.replies(client.ask(wire.Ask(text=text)))
        assert isinstance(report, wire.Report)
        assert report.outcome == "handled", report


def ringing(one: Living) -> bool:
    return any(timer.state == "ringing" for timer in timers(one))


def test_it_is_heard_and_says_what_it_is(tmp_path: Path) -> None:
    with living(tmp_path) as one:
        set_one(one)
        assert until(lambda: ringing(one), 10)
        with one.sound.recording() as heard:
            one.until_state("responding")
            one.until_state("idle")
            time.sleep(2)
        said = words_of(heard.pcm).lower()
        assert "timer" in said, said
        assert "done" in said or "ended" in said, said
        assert np.count_nonzero(loudness(heard.pcm[-2 * 32_000 :]) > QUIET) > 50, "it rings again after its words"
        with Client(one.daemon.folder) as client:
            assert client.cancel() == ("timer-1",)
        assert timers(one) == ()
        time.sleep(0.5)
        with one.sound.recording() as heard:
            time.sleep(2)
        assert np.max(loudness(heard.pcm)) < QUIET, "silence"


def test_the_wake_word_ends_it(tmp_path: Path) -> None:
    with living(tmp_path) as one:
        set_one(one)
        assert until(lambda: ringing(one), 10)
        one.until_state("responding")
        one.sound.play(room(0.5) + recording("wake_hey_jarvis_1.wav") + room(1))
        one.until_woken(1)
        assert until(lambda: timers(one) == (), 2)
        one.until_state("idle", PATIENCE_S)


def test_stop_ends_it(tmp_path: Path) -> None:
    with living(tmp_path) as one:
        set_one(one)
        assert until(lambda: ringing(one), 10)
        time.sleep(3)
        for _ in range(3):  # it listens between its own words
            one.sound.play(room(0.5) + recording("cmd_stop.wav") + room(1.5))
            if not timers(one):
                break
        assert timers(one) == ()
