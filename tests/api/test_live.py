"""Sound that is sent while it is spoken: where it ends, and what becomes of a client that stops in the middle."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.api import wire
from assistant.api.client import Client
from assistant.api.live import MAX_BYTES, SentSpeech
from assistant.audio.front_messages import EndpointSettings
from assistant.errors import BadAudio
from assistant.query import LiveEvent
from tests.api.backend import Backend
from tests.api.daemon_process import Place
from tests.api.talking import Raw, header, serve, with_client

SECOND = 32_000
SILENCE = bytes(SECOND)


def question() -> bytes:
    with wave.open(str(Path(__file__).parents[2] / "assistant/data/question.wav")) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
        return bytes(file.readframes(file.getnframes()))


def pieces(pcm: bytes, size: int) -> list[bytes]:
    return [pcm[at : at + size] for at in range(0, len(pcm), size)]


def heard(speech: SentSpeech) -> list[LiveEvent]:
    async def run() -> list[LiveEvent]:
        return [event async for event in speech.events()]

    return asyncio.run(run())


def turns(events: list[LiveEvent]) -> list[str]:
    return [event.what for event in events if event.what != "sound"]


@pytest.mark.parametrize("size", [640, 3200, 5000, 10 * SECOND])
def test_silence_ends_it_and_what_follows_is_not_heard(size: int) -> None:
    speech = SentSpeech(EndpointSettings())
    sent = question() + SILENCE * 3
    for piece in pieces(sent, size):
        speech.put(piece, last=False)
    events = heard(speech)
    assert turns(events)[0] == "speech"
    assert turns(events)[-1] == "end"
    assert events[-1].speech_s > 0.5
    assert len(question()) - SECOND < len(speech.pcm) < len(question()) + 1.5 * SECOND
    assert sent.startswith(speech.pcm)
    assert b"".join(event.pcm for event in events) == speech.pcm
    assert events[-1].ended < time.monotonic()
    speech.put(b"\1\1", last=True)
    assert not speech.go_on()


def test_without_endpointing_the_client_ends_it() -> None:
    speech = SentSpeech(EndpointSettings(), endpointing=False)
    sent = SILENCE * 6 + question() + SILENCE * 3
    for piece in pieces(sent, SECOND):
        speech.put(piece, last=False)
    speech.put(b"", last=True)
    events = heard(speech)
    assert turns(events)[:2] == ["speech", "pause"]
    assert turns(events).count("end") == 1
    assert events[-1].speech_s > 0.5
    assert speech.pcm.startswith(sent)
    assert abs(events[-1].ended - (time.monotonic() - 3)) < 1.5  # three seconds of silence were part of what arrived


@pytest.mark.parametrize("endpointing", [True, False])
def test_nobody_said_anything(endpointing: bool) -> None:
    speech = SentSpeech(EndpointSettings(), endpointing=endpointing)
    speech.put(SILENCE, last=True)
    events = heard(speech)
    assert turns(events) == ["end"]
    assert events[-1].speech_s == 0


def test_a_short_word_that_is_cut_off_at_once_counts() -> None:
    speech = SentSpeech(EndpointSettings(), endpointing=False)
    speech.put(question()[: len(question()) // 2], last=True)
    events = heard(speech)
    assert turns(events)[-1] == "end"
    assert events[-1].speech_s > 0


def test_whoever_stops_sending_is_ended() -> None:
    speech = SentSpeech(EndpointSettings(), silent_s=0.2)
    speech.put(question()[:SECOND], last=False)
    started = time.monotonic()
    with pytest.raises(BadAudio) as caught:
        heard(speech)
    assert caught.value.code == "sound-stopped"
    assert 0.1 < time.monotonic() - started < 3


@pytest.mark.parametrize(("piece", "every_s"), [(b"", 0.02), (b"\0\0", 0.02), (SILENCE[:640], 0.1), (b"", 0)])
def test_whoever_sends_next_to_nothing_is_ended_as_well(piece: bytes, every_s: float) -> None:
    """The third at a fifth of the pace of speech."""

    async def drip(speech: SentSpeech) -> None:
        while True:
            speech.put(piece, last=False)
            await asyncio.sleep(every_s)

    async def run() -> None:
        speech = SentSpeech(EndpointSettings(), endpointing=False, silent_s=0.3)
        dripping = asyncio.create_task(drip(speech))
        try:
            with pytest.raises(BadAudio) as caught:
                async with asyncio.timeout(5):
                    [event async for event in speech.events()]
            assert caught.value.code == "sound-stopped"
        finally:
            dripping.cancel()

    asyncio.run(run())


class Time:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def paced(every_s: float, seconds: float, settings: EndpointSettings, endpointing: bool) -> list[str]:
    """What comes of 100 ms of silence each `every_s`, for so long."""
    clock, told = Time(), list[str]()

    async def run() -> None:
        speech = SentSpeech(settings, endpointing=endpointing, clock=clock)
        following = aiter(speech.events())
        waiting = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0)
        while clock.now < seconds:
            clock.now += every_s
            speech.put(SILENCE[: SECOND // 10], last=False)
            told.append((await waiting).what)
            waiting = asyncio.ensure_future(anext(following))
            await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(run())
    return told


def test_half_the_pace_of_speech_is_enough() -> None:
    assert set(paced(0.19, 40, EndpointSettings(), endpointing=False)) == {"sound"}


def test_an_utterance_has_its_time_and_a_little_patience() -> None:
    settings = EndpointSettings(no_speech_s=20, max_s=1)
    assert set(paced(0.19, 30, settings, endpointing=True)) == {"sound"}
    with pytest.raises(BadAudio) as caught:
        paced(0.19, 32, settings, endpointing=True)
    assert caught.value.code == "sound-stopped"


def test_what_is_sent_in_the_line_waits_as_long_as_it_has_to() -> None:
    clock = Time()
    speech = SentSpeech(EndpointSettings(), endpointing=False, clock=clock)
    speech.put(question()[:SECOND], last=False)
    clock.now += 60
    speech.put(question()[SECOND:], last=True)
    assert turns(heard(speech))[-1] == "end"
    assert speech.pcm.startswith(question())


def test_many_small_pieces_take_little_more_room_than_their_sound() -> None:
    tracemalloc.start()
    speech = SentSpeech(EndpointSettings(), endpointing=False)
    for _ in range(50_000):
        speech.put(b"\0\0", last=False)
        speech.put(b"", last=False)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 500_000


def test_no_more_is_kept_than_an_utterance_may_have() -> None:
    speech = SentSpeech(EndpointSettings(), endpointing=False)
    for _ in range(100):
        speech.put(SILENCE, last=False)
    events = heard(speech)
    assert events[-1].what == "end"
    assert len(speech.pcm) == MAX_BYTES


# --- over the sockets -----------------------------------------------------------------------------------------------
def test_sound_arrives_in_pieces_and_is_answered_when_it_ends(folder: Path) -> None:
    def ask(client: Client) -> list[str]:
        asked = client.ask(wire.Ask(more=True, endpointing=False), b"\1\2" * 100)
        for _ in range(3):
            client.sound(asked, b"\3\4" * 100)
        client.sound(asked, b"", last=True)
        return [type(reply).__name__ for reply, _ in client.replies(asked)]

    async def scenario(backend: Backend) -> None:
        names = await with_client(folder, ask)
        assert names[0] == "Accepted"
        assert names[-1] == "Report"
        assert backend.heard[0].startswith(b"\1\2" * 100 + b"\3\4" * 300)

    serve(folder, scenario)


def test_what_is_wrong_with_sound_is_told(folder: Path) -> None:
    def talk() -> list[str]:
        codes = []
        with Raw(folder, "command") as raw, Raw(folder, "command") as other:

            def told(one: Raw) -> str:
                reply = one.reply()
                assert reply is not None
                return str(reply["data"].get("code", reply["type"]))

            raw.send(header("ask", {"text": "a", "more": True}))
            codes.append(told(raw))
            raw.send(header("ask-sound", {"ask": "i"}), b"ab")
            codes.append(told(raw))
            raw.send(header("ask", {"more": True}))
            for _ in range(2):  # accepted, started
                codes.append(told(raw))
            raw.reply()
            raw.reply()
            raw.send(header("ask", {"more": True}))
            codes.append(told(raw))
            raw.send(header("ask-sound", {"ask": "i"}), b"abc")
            codes.append(told(raw))
            other.send(header("ask-sound", {"ask": "i"}), b"ab")
            codes.append(told(other))
            raw.send(header("ask-sound", {"ask": "i", "last": True}))
            while (last := told(raw)) not in ("report", "query-unknown"):
                pass
            codes.append(last)
        return codes

    async def scenario(backend: Backend) -> None:
        assert await asyncio.to_thread(talk) == [
            "bad-message", "query-unknown", "accepted", "started", "bad-message", "bad-message", "query-unknown",
            "report",
        ]  # fmt: skip

    serve(folder, scenario)


@pytest.fixture
def place() -> Iterator[Place]:
    with Place() as one:
        yield one


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_a_question_that_is_spoken_into_a_client_is_understood_by_a_real_daemon(place: Place) -> None:
    place.daemon()
    with Client(place.runtime) as client:
        asked = client.ask(wire.Ask(more=True))
        for piece in pieces(question() + SILENCE * 2, 6400):
            client.sound(asked, piece)
            time.sleep(0.05)  # four times as fast as it is spoken
        replies = [reply for reply, _ in client.replies(asked)]
    events = [reply.name for reply in replies if isinstance(reply, wire.Event)]
    report = replies[-1]
    assert isinstance(report, wire.Report)
    assert report.error is None, report
    assert len(report.transcript.split()) > 2
    assert report.reply
    assert events.index("stt-vad-start") < events.index("stt-vad-end") < events.index("stt-end")
