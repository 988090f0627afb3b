"""The bridge as Home Assistant sees it: with the `wyoming` package's own client, over real worker processes."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import numpy as np
import pytest
from wyoming.asr import Transcribe, Transcript
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.intent import Intent, Recognize
from wyoming.ping import Ping, Pong
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop
from wyoming.wake import Detect, Detection

from assistant.errors import ConfigError
from tests.api.wyoming.homes import OURS, heard, home, said, sound_of, until
from tests.speech_corpus import clip_pcm
from tests.talkers import RATE, STORY

WORDS = "cmd_hello_gemini.wav"


def kinds(events: list[Event]) -> list[str]:
    return [event.type for event in events]


def test_it_says_what_it_can_do(tmp_path: Path) -> None:
    async def run() -> None:
        async with home(tmp_path) as one, one.client() as client:
            await said(client, Describe(), Ping(text="there?"))
            info, pong = await heard(client, "pong")
            assert Pong.from_event(pong).text == "there?"
            told = Info.from_event(info)
            assert told.asr[0].supports_transcript_streaming
            assert told.tts[0].supports_synthesize_streaming
            assert told.handle[0].models[0].languages == told.intent[0].models[0].languages == ["en"]
            assert [(model.name, model.phrase) for model in told.wake[0].models] == [("hey_jarvis", "hey jarvis")]
            one.voice = None
            await said(client, Describe())
            assert Info.from_event((await heard(client, "info"))[-1]).wake == []

    asyncio.run(run())


def test_a_recording_becomes_words(tmp_path: Path, speech: Path) -> None:
    async def run() -> None:
        async with home(tmp_path) as one, one.client() as client:
            await said(client, Transcribe(language="en"), *sound_of(clip_pcm(speech, WORDS), **OURS))
            events = await heard(client, "transcript-stop")
            assert kinds(events) == ["transcript-start", "transcript-chunk", "transcript", "transcript-stop"]
            assert Transcript.from_event(events[2]).text == events[1].data["text"] == "what time is it"
            await said(client, *sound_of(bytes(32_000), **OURS))  # the same connection again; nobody speaks
            assert (await heard(client, "transcript"))[-1].data["text"] == ""
            assert one.services_ended() == [("transcribe", ""), ("transcribe", "stt-no-text-recognized")]

    asyncio.run(run())


def test_any_format_reaches_the_recogniser_as_the_same_sound(tmp_path: Path, speech: Path) -> None:
    pcm = clip_pcm(speech, WORDS)
    samples = np.frombuffer(pcm, "<i2").astype(np.int32)
    at_48k = np.repeat(np.stack([samples, samples], axis=1) * 65_536, 3, axis=0).astype("<i4").tobytes()
    at_32k = (np.repeat(samples, 2) // 256 + 128).astype(np.uint8).tobytes()

    async def run() -> None:
        async with home(tmp_path) as one, one.client() as client:
            await said(client, *sound_of(pcm, **OURS))
            await heard(client, "transcript-stop")
            await said(client, *sound_of(at_48k, rate=48_000, width=4, channels=2))
            await heard(client, "transcript-stop")
            await said(client, *sound_of(at_32k, rate=32_000, width=1, channels=1))
            await heard(client, "transcript-stop")
            plain, *others = one.heard()
            assert all(abs(plain - other) < 16_000 for other in others)  # of what voice activity was found in

    asyncio.run(run())


def test_a_text_becomes_sound_while_it_is_made(tmp_path: Path) -> None:
    async def run() -> None:
        async with home(tmp_path) as one, one.client() as client:
            await said(client, Synthesize(text="One was here. Two was there."))
            events = await heard(client, "audio-stop")
            assert kinds(events) == ["audio-start", *["audio-chunk"] * 4, "audio-stop"]
            assert {event.data["rate"] for event in events[:-1]} == {RATE}
            assert sum(len(event.payload or b"") for event in events) == 4 * (RATE // 10)
            await said(client, Synthesize(text="🙂"))  # no sound, and no error
            assert kinds(await heard(client, "audio-stop")) == ["audio-start", "audio-stop"]
            assert one.services_ended() == [("synthesize", "")]

    asyncio.run(run())


def test_a_text_that_still_comes_is_spoken_already(tmp_path: Path) -> None:
    async def run() -> None:
        async with home(tmp_path) as one, one.client() as client:
            await said(client, SynthesizeStart(), SynthesizeChunk("One was here and went. "), SynthesizeChunk("Two"))
            begun = await heard(client, "audio-chunk")
            assert kinds(begun) == ["audio-start", "audio-chunk"]
            # the whole text once more, for servers that do not stream
            await said(client, SynthesizeChunk(" was there."), Synthesize("One was here. Two was there."))
            await said(client, SynthesizeStop())
            rest = await heard(client, "synthesize-stopped")
            assert kinds(rest) == [*["audio-chunk"] * 3, "audio-stop", "synthesize-stopped"]

    asyncio.run(run())


def test_a_sentence_becomes_an_intent_or_none(tmp_path: Path) -> None:
    async def run() -> None:
        async with home(tmp_path) as one, one.client() as client:
            await said(client, Recognize(text="what time is it", context={"a": 1}))
            found = Intent.from_event((await heard(client, "intent"))[-1])
            assert (found.name, found.context) == ("HassGetCurrentTime", {"a": 1})
            await said(client, Recognize(text="who was Caesar"))
            assert kinds(await heard(client, "not-recognized")) == ["not-recognized"]

    asyncio.run(run())


def test_a_question_is_answered_and_remembered(tmp_path: Path) -> None:
    async def run() -> None:
        async with home(tmp_path) as one, one.client() as client:
            context = {"conversation_id": "01ABC"}
            await said(client, Transcript(text="tell me", context=context))
            events = await heard(client, "handled-stop")
            assert kinds(events) == ["handled-start", *["handled-chunk"] * 4, "handled", "handled-stop"]
            assert "".join(event.data["text"] for event in events if event.type == "handled-chunk") == "".join(STORY)
            assert events[-2].data == {"text": "".join(STORY).strip(), "context": context}
            await said(client, Transcript(text="rush again", context=context), Transcript(text="what time is it"))
            await heard(client, "handled-stop")
            assert [turn.content for turn in one.requests()[-1].turns[1:]] == [
                "tell me", "".join(STORY).strip(), "rush again"
            ]  # fmt: skip
            local = await heard(client, "handled-stop")
            assert kinds(local) == ["handled-start", "handled-chunk", "handled", "handled-stop"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "code"), [("fail", "engine-failed"), (" ", "text-empty"), ("x" * 9000, "text-too-long")]
)
def test_what_fails_is_told_with_its_code_and_ends_the_connection(tmp_path: Path, text: str, code: str) -> None:
    async def run() -> None:
        async with home(tmp_path) as one, one.client() as client:
            context = {"conversation_id": "01ABC"}
            await said(client, Transcript(text=text, context=context))
            *_, refused, error = await heard(client, "")
            assert (refused.type, refused.data["context"]) == ("not-handled", context)
            assert (Error.from_event(error).code, refused.data["text"]) == (code, Error.from_event(error).text)
            async with one.client() as another:  # the others are served
                await said(another, Transcript(text="what time is it"))
                assert kinds(await heard(another, "handled"))[-1] == "handled"

    asyncio.run(run())


def test_whoever_leaves_ends_his_work(tmp_path: Path) -> None:
    async def run() -> None:
        async with home(tmp_path) as one:
            async with one.client() as client:
                await said(client, Transcript(text="tell me"))
                await heard(client, "handled-chunk")
            assert await until(lambda: "run-end" in one.names())
            assert [data["outcome"] for name, data in one.events if name == "run-end"] == ["cancelled"]
            async with one.client() as client:
                await said(client, SynthesizeStart(), SynthesizeChunk("One was here and went. Two"))
                await heard(client, "audio-chunk")
            assert await until(lambda: ("synthesize", "cancelled") in one.services_ended())
            assert await until(lambda: not any(entry.in_use for entry in one.memory.holdings.entries.values()))

    asyncio.run(run())


def test_wake_words_of_the_daemons_microphone_are_told_to_whoever_asked(tmp_path: Path) -> None:
    async def run() -> None:
        async with home(tmp_path) as one, one.client() as client, one.client() as other:
            await said(client, Detect(names=["hey_jarvis"]), Ping())
            await said(other, Ping())
            await heard(client, "pong")
            await heard(other, "pong")
            one.told("wake_word-end", {"word": "hey_jarvis", "score": 0.9})
            assert Detection.from_event((await heard(client, "detection"))[-1]).name == "hey_jarvis"
            await said(client, *sound_of(bytes(3200), **OURS))
            assert kinds(await heard(client, "not-detected")) == ["not-detected"]
            await said(other, Ping())
            assert kinds(await heard(other, "pong")) == ["pong"]

    asyncio.run(run())


def test_clients_and_requests_are_few(tmp_path: Path) -> None:
    async def run() -> None:
        async with home(tmp_path, bridge={"max_clients": 1}) as one, one.client() as client:
            await said(client, Ping())
            await heard(client, "pong")
            async with one.client() as another:
                assert [(event.type, event.data["code"]) for event in await heard(another, "")] == [("error", "busy")]
            await said(client, *[Transcript(text="tell me")] * 6)
            *_, refused, error = await heard(client, "")
            assert (refused.type, error.data["code"]) == ("not-handled", "busy")

    asyncio.run(run())


def test_idle_clients_go_and_working_ones_do_not(tmp_path: Path) -> None:
    async def run() -> None:
        async with home(tmp_path, bridge={"idle_s": 0.2}) as one, one.client() as client:
            await said(client, Transcript(text="tell me"))  # takes a second
            events = await heard(client, "")
            assert kinds(events)[-2:] == ["handled-stop", "error"]
            assert events[-1].data["code"] == "idle-timeout"

    asyncio.run(run())


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"[]\n",
        b'{"type": 1}\n',
        b'{"type": "ping", "data": [1]}\n',
        b'{"type": "audio-chunk", "payload_length": 99999999999}\n',
        b'{"type": "audio-chunk", "data_length": -1}\n',
        b'{"type": "ping", "data_length": 2}\n[]',
        b'{"type": "audio-start", "data": {"rate": 1, "width": 2, "channels": 1}}\n',
        b'{"type": "audio-start", "data": {"rate": "16000"}}\n',
        b'{"type": "synthesize"}\n',
        b'{"type": "synthesize-chunk", "data": {"text": "a"}}\n',
        b"[" * 60_000 + b"\n",
        b"x" * 100_000,
    ],
    ids=lambda sent: repr(sent[:30]),
)
def test_what_is_no_event_is_told_and_the_connection_closed(tmp_path: Path, sent: bytes) -> None:
    async def run() -> None:
        async with home(tmp_path) as one:
            reader, writer = await asyncio.open_connection(*one.bridge.address)
            writer.write(sent)
            told = await asyncio.wait_for(reader.read(), 5)
            assert b'"error"' in told
            assert b"bad-message" in told or b"audio-bad-format" in told
            writer.close()
            async with one.client() as client:
                await said(client, Ping())
                assert kinds(await heard(client, "pong")) == ["pong"]

    asyncio.run(run())


def test_unknown_events_are_dropped(tmp_path: Path) -> None:
    async def run() -> None:
        async with home(tmp_path) as one, one.client() as client:
            await client.write_event(Event(type="select-program", data={"name": "x"}))
            await client.write_event(Event(type="of-the-future", data={"x": [1]}, payload=b"123"))
            await said(client, Ping())
            assert kinds(await heard(client, "pong")) == ["pong"]

    asyncio.run(run())


def test_a_socket_of_the_file_system_is_for_this_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "wyoming.sock"

    async def run() -> None:
        async with home(tmp_path, f"unix://{path}") as one, one.client() as client:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            await said(client, Ping())
            assert kinds(await heard(client, "pong")) == ["pong"]
        assert not path.exists()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("tcp://0.0.0.0:10700", "no authentication"),
        ("tcp://192.168.1.7:10700", "no authentication"),
        ("tcp://[::]:10700", "no authentication"),
        ("tcp://example.org:10700", "no address"),
        ("tcp://127.0.0.1", "tcp://127.0.0.1:10700"),
        ("stdio://", "unix:///"),
        ("unix://relative", "unix:///"),
    ],
)
def test_it_listens_where_this_machine_alone_can_connect(tmp_path: Path, uri: str, words: str) -> None:
    async def run() -> None:
        async with home(tmp_path, uri):
            pass

    with pytest.raises(ConfigError, match=r"wyoming\.uri") as told:
        asyncio.run(run())
    assert words in told.value.message
