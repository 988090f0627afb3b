"""`say`, `listen`, `mute` and `volume` as a user runs them, at a server with a scripted voice."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest

from assistant.messages_status import DeviceStatus
from tests.api.backend import Backend, SpeakingVoice, served
from tests.api.daemon_process import Place

LOST = DeviceStatus(state="lost", message="no microphone was found; plug one in")


def beside(scenario: Callable[[Place, Backend], None]) -> None:
    async def run(place: Place) -> None:
        async with served(place.runtime) as backend:
            await asyncio.to_thread(scenario, place, backend)

    with Place() as place:
        asyncio.run(run(place))


def test_a_daemon_without_a_voice_has_no_microphone_and_no_speaker() -> None:
    def scenario(place: Place, backend: Backend) -> None:
        assert backend.voice is None
        for verb in (["say", "hello"], ["listen"], ["mute"], ["volume", "50"]):
            told = place.run(*verb, code=7).stderr
            assert "audio.enabled = true" in told
            assert "--out" not in told

    beside(scenario)


def test_a_question_without_a_speaker_is_told_what_else_there_is() -> None:
    with Place() as place:
        place.environ |= {"ASSISTANT_AUDIO_ENABLED": "true", "ASSISTANT_AUDIO_OUTPUT": "nothing of the kind"}
        assert "or say --out FILE.wav for a file" in place.run("ask", "what time is it", code=7).stderr
        # what is wrong with the question comes first, with its report: without it there is nothing to be spoken
        told = place.json("ask", "--wav", "none.wav", code=2)
        assert (told["outcome"], told["error"]["code"]) == ("failed", "audio-missing")


def test_a_question_that_is_none_needs_no_speaker_at_a_daemon_either() -> None:
    def scenario(place: Place, backend: Backend) -> None:
        place.environ |= {"ASSISTANT_AUDIO_ENABLED": "true", "ASSISTANT_AUDIO_OUTPUT": "nothing of the kind"}
        assert place.json("ask", "--wav", "none.wav", code=2)["error"]["code"] == "audio-missing"
        assert place.json("ask", " ", code=2)["error"]["code"] == "text-empty"

    beside(scenario)


def test_an_answer_that_cannot_be_written_is_ended_at_the_daemon_and_reported() -> None:
    def scenario(place: Place, backend: Backend) -> None:
        told = place.json("ask", "--out", "/dev/full", "loud and long", code=2)
        assert (told["outcome"], told["error"]["code"], told["audio"]) == ("failed", "bad-output", None)
        assert "No space left" in told["error"]["message"]
        assert told["transcript"] == "loud and long"
        assert backend.cancelled == ["loud and long"], "nobody speaks on for a file that is full"

    beside(scenario)


def test_an_open_and_a_closed_microphone_are_told() -> None:
    def scenario(place: Place, backend: Backend) -> None:
        backend.speaking = SpeakingVoice()
        assert place.run("mute").stdout == "the microphone is closed\n"
        assert place.run("mute", "off").stdout == "the microphone is open\n"

    beside(scenario)


@pytest.mark.timeout(30)
def test_a_microphone_that_is_missing_is_told_when_it_is_to_open() -> None:
    class Late(SpeakingVoice):
        """It takes a while until the audio process knows."""

        def mute(self, on: bool) -> None:
            super().mute(on)
            self.microphone = DeviceStatus(state="off")
            asyncio.get_running_loop().call_later(0.3, setattr, self, "microphone", LOST)

    def scenario(place: Place, backend: Backend) -> None:
        backend.speaking = Late()
        told = place.run("mute", "off").stdout
        assert "there is none now: no microphone was found" in told
        assert place.json("mute", "off")["input"]["state"] == "lost"

    beside(scenario)


@pytest.mark.timeout(30)
def test_each_verb_reaches_the_voice_and_tells_what_came_of_it() -> None:
    def scenario(place: Place, backend: Backend) -> None:
        backend.speaking = voice = SpeakingVoice()
        assert place.json("say", "good", "morning")["transcript"] == "good morning"
        assert place.run("listen").stdout == "it listens\n"
        assert voice.orders == ["good morning", "listen"]
        assert place.run("volume", "40").stdout == "volume 40 %\n"
        assert voice.percent == 40
        assert place.json("mute")["muted"]
        assert "mute takes on or off, not 'perhaps'" in place.run("mute", "perhaps", code=2).stderr
        assert voice.muted
        voice.microphone = LOST
        told = place.run("status").stdout
        assert re.match(r"\w+; \d+ quer(y|ies) since its start \d+ s ago\n", told)
        assert "muted; wakes at hey_jarvis" in told
        assert "microphone lost: no microphone was found; plug one in" in told
        assert "speaker d (48000 Hz, 1 ch); volume 40 %" in told

    beside(scenario)
