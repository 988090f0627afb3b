"""Languages and models that a client names: without effect, and told in the log once."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from wyoming.asr import Transcribe
from wyoming.event import Event
from wyoming.tts import Synthesize, SynthesizeVoice

from assistant.api.wyoming.wishes import Wishes
from assistant.messages import Stage
from assistant.messages_status import ProgramStatus
from tests.api.wyoming.homes import heard, home, said

THERE = (
    ProgramStatus(stage=Stage.ASR, engine="whisper", model="whisper-tiny.en"),
    ProgramStatus(stage=Stage.INTENT, engine="templates", model="en", language="en"),
    ProgramStatus(stage=Stage.TTS, engine="piper", model="en_US-joe-medium"),
)


def told(*events: Event) -> list[str]:
    said: list[str] = []
    wishes = Wishes(lambda: THERE, said.append)
    for event in events:
        wishes.look(event)
    return said


@pytest.mark.parametrize("language", ["en", "en-GB", "en_US", "EN-us"])
def test_every_english_is_the_one_that_is_there(language: str) -> None:
    voice = SynthesizeVoice(name="en_US-joe-medium", language=language)
    events = [Transcribe(language=language).event(), Synthesize(text="a", voice=voice).event()]
    assert told(*events, Event(type="transcript", data={"text": "a", "language": language})) == []


def test_what_is_not_there_is_told_once() -> None:
    asked = Transcribe(name="large-v3", language="de-DE").event()
    warned = told(asked, asked, Synthesize(text="a", voice=SynthesizeVoice(name="de_DE-thorsten")).event())
    assert ["'de-DE'" in warned[0], "'large-v3'" in warned[1], "'de_DE-thorsten'" in warned[2]] == [True] * 3
    assert len(warned) == 3
    assert "whisper-tiny.en (en)" in warned[0]


def test_nonsense_is_no_wish_and_the_log_does_not_grow_without_end() -> None:
    voices: list[object] = [1, [], {"name": 3}, None]
    odd = [Event(type="synthesize", data={"text": "a", "voice": voice}) for voice in voices]
    many = [Transcribe(language=f"x{number}").event() for number in range(1000)]
    assert told(*odd) == []
    assert len(told(*many)) == 64


def test_a_request_in_another_language_is_worked_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with home(tmp_path) as one:
            for _ in range(2):  # Home Assistant connects anew for each
                async with one.client() as client:
                    await said(client, Synthesize(text="One.", voice=SynthesizeVoice(language="fr")))
                    assert (await heard(client, "audio-stop"))[-1].type == "audio-stop"

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert sum("'fr'" in record.message for record in caplog.records) == 1
