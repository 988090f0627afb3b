"""What goes wrong in living rooms: devices that go and come back, a sound system that dies, our own voice at the
microphone."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from assistant.api import wire
from assistant.errors import BusyNow, DeviceError
from tests.live.living import Living, living, recording, room, spoken, words_of
from tests.sound import SoundSystem

pytestmark = [
    pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(120), pytest.mark.usefixtures("speech"), pytest.mark.sound
]  # fmt: skip

QUESTION = ("wake_hey_jarvis_1.wav", "cmd_r3_what_time_is_it.wav")
STORY = "The ship lay in the harbour, and nobody knew where it had come from. " * 4


def said() -> bytes:
    return room(1) + recording(QUESTION[0]) + spoken(QUESTION[1]) + room(1)


def ask_again(one: Living, wakes: int) -> None:
    """As one does at a device that has just come back: until it has woken so many times, thrice at most."""
    for _ in range(3):
        one.sound.play(said())
        status = one.status
        if status.voice is not None and status.voice.wakes >= wakes:
            return
    one.until_woken(wakes)


def typed_questions_are_answered(one: Living) -> None:
    asked = one.daemon.client.ask(wire.Ask(text="what time is it"))
    *_, (last, _) = one.daemon.client.replies(asked, 20)
    assert last.outcome == "handled"


def test_microphone_and_speaker_go_and_come_back(tmp_path: Path) -> None:
    with living(tmp_path) as one:
        one.sound.unplug_mic()
        status = one.until(lambda status: status.voice is not None and status.voice.input.state == "lost", 8)
        assert status.voice is not None
        assert status.voice.input.message
        with pytest.raises(DeviceError):
            one.daemon.client.listen()
        typed_questions_are_answered(one)
        one.sound.plug_mic()
        one.until(lambda status: status.voice is not None and status.voice.input.state == "ok", 12)
        ask_again(one, 1)
        one.until_state("idle")
        assert one.reports(1)[0]["outcome"] == "handled"

        one.sound.unplug_speaker()
        ask_again(one, 2)
        one.until_state("idle", 20)
        assert one.reports(2)[-1]["error"]["code"] == "audio-device-lost"
        one.sound.plug_speaker()
        one.until(lambda status: status.voice is not None and status.voice.output.state != "lost", 15)
        with one.heard() as words:
            one.daemon.client.say("Everything is well again.")
        assert "well again" in words().lower()
        status = one.status
        assert status.voice is not None
        assert status.voice.devices_lost == 2
        assert "Traceback" not in one.daemon.log


def test_a_sound_system_that_dies_is_waited_for(tmp_path: Path) -> None:
    sound = SoundSystem(tmp_path)
    with living(tmp_path, sound=sound) as one:
        sound.kill()
        one.until(lambda status: status.voice is not None and status.voice.input.state == "lost", 15)
        typed_questions_are_answered(one)
        sound.restart()
        one.until(lambda status: status.voice is not None and status.voice.input.state == "ok", 25)
        ask_again(one, 1)
        one.until_state("idle")
        assert one.reports(1)[0]["outcome"] == "handled"


def test_our_own_voice_does_not_wake_us_and_a_user_over_it_does(tmp_path: Path) -> None:
    with living(tmp_path) as one:
        with one.sound.loop_back(0.5), one.sound.recording() as heard:
            one.daemon.client.say("Hey Jarvis. I like to say: hey, Jarvis! Okay Nabu. " * 2)
        assert "jarvis" in words_of(heard.pcm).lower()
        time.sleep(1)
        status = one.status
        assert status.voice is not None
        assert (status.voice.wakes, status.state) == (0, "idle")

        with one.saying(STORY) as ended:
            one.until_state("responding")
            with pytest.raises(BusyNow):
                one.daemon.client.say("me too")
            time.sleep(1)
            # as loud as what an echo canceller leaves of us
            with one.sound.loop_back(0.05), one.speaking(said()):
                one.until_woken(1)
                assert ended(5) == "Cancelled"
                one.until_state("idle")


def test_nobody_is_heard_while_it_is_muted(tmp_path: Path) -> None:
    with living(tmp_path) as one:
        told = one.daemon.client.mute(True)
        assert told.muted
        one.until(lambda status: status.voice is not None and status.voice.input.state == "off", 5)
        one.sound.play(said())
        status = one.status
        assert status.voice is not None
        assert (status.voice.wakes, status.state) == (0, "idle")
        assert not one.daemon.client.mute(False).muted
        one.until(lambda status: status.voice is not None and status.voice.input.state == "ok", 5)
        one.daemon.client.listen()
        one.sound.play(room(0.3) + spoken(QUESTION[1]) + room(1))
        one.until_state("idle")
        assert one.reports(1)[-1]["outcome"] == "handled"


def test_it_ends_in_time_in_the_middle_of_an_answer_and_of_a_hang(tmp_path: Path) -> None:
    for frozen in (False, True):
        folder = tmp_path / str(frozen)
        folder.mkdir()
        with living(folder) as one:
            one.sound.play(room(1) + recording(QUESTION[0]) + room(0.3))
            one.until_state("listening")
            with one.sound.frozen() if frozen else contextlib.nullcontext():
                began = time.monotonic()
                one.daemon.process.send_signal(signal.SIGTERM)
                assert one.daemon.process.wait(5) == 0
                assert time.monotonic() - began < 2
            assert "Traceback" not in one.daemon.log


def test_it_ends_in_time_with_a_worker_that_stands_still(tmp_path: Path) -> None:
    with living(tmp_path) as one:
        one.sound.play(said())
        one.until_state("responding")
        rows = one.status.stages
        worker = next(row.pid for row in rows if row.name == "tts")
        os.kill(worker, signal.SIGSTOP)
        began = time.monotonic()
        one.daemon.process.send_signal(signal.SIGTERM)
        assert one.daemon.process.wait(5) == 0
        assert time.monotonic() - began < 2
        assert "another one" not in one.daemon.log, "nothing is started any more"


def test_stop_ends_an_announcement_and_a_new_audio_process_hears_at_once(tmp_path: Path) -> None:
    with living(tmp_path) as one:
        with one.saying(STORY) as ended:
            one.until_state("responding")
            time.sleep(1.5)
            one.sound.play(recording("cmd_stop.wav") + room(1))
            assert ended(6) == "Cancelled"

        one.sound.play(said())
        one.until_state("responding")
        os.kill(one.process_of("assistant-audio"), signal.SIGKILL)
        one.until(lambda status: status.voice is not None and status.voice.restarts == 1)
        one.until(lambda status: status.voice is not None and status.voice.input.state == "ok")
        one.sound.play(said())
        one.until_woken(2)
        one.until(lambda status: status.state == "idle" and status.queries == 3)
        assert one.reports(2)[-1]["outcome"] == "handled"
