"""The pure parts of the voice: states with deadlines, what means "stop", the speaker of a query, live speech."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.audio.front_messages import GoOn, Play, Played, PlayEnd, Silence, Sound, Spoke, ToFront
from assistant.errors import DeviceError
from assistant.voice_live import Utterance
from assistant.voice_sink import SpeakerSink
from assistant.voice_states import States
from assistant.voice_stop import means_stop


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


# --- states ---------------------------------------------------------------------------------------------------------
def test_each_change_is_told_once_and_idle_alone_has_no_deadline() -> None:
    clock, told = Clock(), []
    states = States(lambda name, data: told.append((name, data["state"])), clock, {"listening": 5, "processing": 9})
    assert states.left_s() is None
    states.enter("listening")
    states.enter("listening")
    clock.now += 4
    assert states.left_s() == pytest.approx(1)
    states.alive()
    assert states.left_s() == pytest.approx(5)
    clock.now += 6
    assert states.left_s() == 0
    states.enter("idle")
    assert states.left_s() is None
    assert told == [("state", "listening"), ("state", "idle")]


# --- stop -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text", ["Stop.", "stop", "Stop, stop!", "STOP STOP STOP", "Be quiet.", "That's enough", "never mind"]
)
def test_what_means_stop(text: str) -> None:
    assert means_stop(text)


@pytest.mark.parametrize(
    "text", ["", ".", "stop the timer", "non-stop music", "don't stop", "stopwatch", "cancel all timers"]
)
def test_what_does_not_mean_stop(text: str) -> None:
    assert not means_stop(text)


@given(st.text())
def test_any_text_has_an_answer(text: str) -> None:
    assert means_stop(text) in (True, False)


# --- the speaker ----------------------------------------------------------------------------------------------------
def test_sound_is_sent_in_packets_that_fit_and_silence_ends_it() -> None:
    sent: list[ToFront] = []
    sink = SpeakerSink("r", sent.append)
    sink.write(bytes(70_000), 22_050)
    assert [len(one.pcm) for one in sent if isinstance(one, Play)] == [32_000, 32_000, 6_000]
    assert sink.seconds == pytest.approx(35_000 / 22_050)
    sink.silence()
    sink.silence()
    sink.write(bytes(10), 22_050)
    assert sent[3:] == [Silence(run="r")], "once, and nothing after it"


def test_it_is_finished_when_all_of_it_was_heard() -> None:
    async def test() -> None:
        sent: list[ToFront] = []
        sink = SpeakerSink("r", sent.append)
        await sink.finished()  # nothing was said
        assert sent == []
        sink.write(bytes(44_100), 22_050)
        waiting = asyncio.create_task(sink.finished())
        for seconds in (0.4, 0.8, 0.7):
            await asyncio.sleep(0)
            sink.played(Played(run="r", seconds=seconds))
            assert not waiting.done()
        assert sink.heard_s == 0.8, "what was heard was heard"
        sink.played(Played(run="r", seconds=1, ended=True))
        await asyncio.wait_for(waiting, 1)
        assert sent[-1] == PlayEnd(run="r")

    asyncio.run(test())


def test_a_speaker_that_goes_away_is_an_error_and_not_a_wait_without_end() -> None:
    async def test() -> None:
        sink = SpeakerSink("r", lambda packet: None)
        sink.write(bytes(100), 22_050)
        waiting = asyncio.create_task(sink.finished())
        await asyncio.sleep(0)
        sink.lost(DeviceError("gone", code="audio-device-lost"))
        with pytest.raises(DeviceError, match="gone"):
            await asyncio.wait_for(waiting, 1)
        with pytest.raises(DeviceError):
            sink.write(bytes(100), 22_050)

    asyncio.run(test())


# --- live speech ----------------------------------------------------------------------------------------------------
def test_an_utterance_gives_all_of_its_sound_and_the_time_of_its_end() -> None:
    async def test() -> None:
        clock = Clock()
        one = Utterance(4, lambda packet: None, wake_phrase="hey jarvis", patience_s=8, clock=clock)
        told = []
        one.on_event = lambda event: told.append(event.what)
        one.take(Sound(session=4, pcm=b"ab"))
        one.take(Spoke(session=4, what="speech"))
        one.take(Sound(session=4, pcm=b"cd"))
        one.take(Spoke(session=4, what="end", speech_s=1.5, silence_s=0.7))
        seen = []
        async for event in one.events():
            seen.append(event)
            if event.what == "end":
                break
        assert [event.what for event in seen] == ["sound", "speech", "sound", "end"]
        assert one.pcm == b"abcd"
        assert seen[-1].ended == pytest.approx(clock.now - 0.7)
        assert told == ["speech", "end"]

    asyncio.run(test())


def test_it_goes_on_only_as_long_as_anybody_would_wait() -> None:
    clock = Clock()
    sent: list[ToFront] = []
    one = Utterance(4, sent.append, patience_s=8, clock=clock)
    assert one.go_on()
    clock.now += 8
    assert not one.go_on()
    assert sent == [GoOn(session=4)]


def test_a_microphone_that_falls_silent_is_lost() -> None:
    async def test() -> None:
        one = Utterance(4, lambda packet: None, patience_s=8, silent_s=0.05)
        with pytest.raises(DeviceError, match="microphone"):
            async for _ in one.events():
                pass

    asyncio.run(test())


def test_a_long_answer_waits_here_until_it_was_heard_and_loses_nothing() -> None:
    async def test() -> None:
        sent: list[ToFront] = []
        sink = SpeakerSink("r", sent.append)
        second = bytes(2 * 8000)
        for _ in range(90):
            sink.write(second, 8000)

        def sent_s() -> float:
            return sum(len(one.pcm) for one in sent if isinstance(one, Play)) / 16_000

        assert 20 <= sent_s() < 22
        waiting = asyncio.create_task(sink.finished())
        await asyncio.sleep(0)
        for heard in range(1, 91):
            assert not any(isinstance(one, PlayEnd) for one in sent) or sent_s() == 90
            sink.played(Played(run="r", seconds=heard, ended=heard == 90))
            await asyncio.sleep(0)
        assert sent_s() == 90
        assert sent[-1] == PlayEnd(run="r")
        await asyncio.wait_for(waiting, 1)

    asyncio.run(test())
