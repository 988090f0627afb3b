"""Speech through Wyoming servers: the protocol's own, and servers that break it in every way."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import ConfigError, RemoteFailed
from assistant.messages import AsrRequest, Progress, Stage, StageOutput, Transcript, TtsAudio, TtsRequest
from assistant.stages.asr_wyoming import WyomingAsr
from assistant.stages.base import EngineConfig
from assistant.stages.lifecycle import WorkerState
from assistant.stages.tts_wyoming import Sound, WyomingTts
from assistant.stages.wyoming_wire import Event
from tests.stages.remote_servers import RATE, drips, free_port, repeats, scripted, sends, silent, wyoming_server
from tests.stages.running import running

PCM = bytes(range(256)) * 250  # 2 s
ASKED = b"audio-stop"


def config(uri: str, **options: Any) -> EngineConfig:
    return EngineConfig(
        model="m", model_dir=Path(), cache_dir=Path(), threads=1, options={"uri": uri, "deadline_s": 2, **options}
    )


def results(outs: Any) -> list[StageOutput]:
    return [out for out in outs if not isinstance(out, Progress)]


def frame(kind: str, payload: bytes = b"", **data: Any) -> bytes:
    head = {"type": kind, "data": data, "payload_length": len(payload)}
    return json.dumps(head).encode() + b"\n" + payload


def test_a_recording_goes_there_and_words_come_back() -> None:
    with wyoming_server() as (uri, heard):
        engine = WyomingAsr(config(uri, name="tiny", language="en"))
        engine.load()
        assert results(engine.run(AsrRequest(pcm=PCM))) == [Transcript(text="64000 bytes, é.", final=True)]
        assert heard.audio == PCM
        assert (heard.transcribe[0].name, heard.transcribe[0].language) == ("tiny", "en")


def test_text_goes_there_and_sound_comes_back_in_pieces() -> None:
    with wyoming_server() as (uri, heard):
        engine = WyomingTts(config(uri, voice="joe"))
        for text, words in (("One two three.", 3), ("Again.", 1)):
            found = results(engine.run(TtsRequest(text=text)))
            assert len(found) == words
            assert {out.sample_rate for out in found if isinstance(out, TtsAudio)} == {RATE}
            assert b"".join(out.pcm for out in found if isinstance(out, TtsAudio)) == b"\1\0" * (RATE // 50) * 5 * words
        assert heard.synthesize[0].voice is not None
        assert heard.synthesize[0].voice.name == "joe"


def test_an_error_that_the_server_tells_is_a_refusal() -> None:
    with wyoming_server() as (uri, _), pytest.raises(RemoteFailed, match="no such voice") as caught:
        list(WyomingTts(config(uri)).run(TtsRequest(text="fail")))
    assert caught.value.code == "remote-refused"


def test_a_worker_serves_it_without_a_model_and_hears_a_cancel_while_the_server_is_silent() -> None:
    async def test() -> None:
        with ExitStack() as servers:
            uri, _ = servers.enter_context(wyoming_server())
            async with running(Stage.ASR, "wyoming", config(uri)) as worker:
                found = results([out async for out in worker.run(AsrRequest(pcm=PCM), 5)])
                assert found == [Transcript(text="64000 bytes, é.", final=True)]
            port = servers.enter_context(scripted(silent))
            uri = f"tcp://127.0.0.1:{port}"
            async with running(Stage.ASR, "wyoming", config(uri, deadline_s=60)) as worker:
                stream = worker.run(AsrRequest(pcm=PCM), 5)
                assert isinstance(await anext(stream), Progress)
                started = time.monotonic()
                await stream.aclose()
                assert time.monotonic() - started < 0.5
                assert worker.state is WorkerState.READY  # it listened; nobody had to kill it

    asyncio.run(test())


DEEP = b'{"type": ' + b"[" * 50_000 + b"\n"
BAD: list[tuple[str, Callable[..., None], str]] = [
    ("closes at once", sends(b"", ASKED), "remote-broke-off"),
    ("half a line", sends(b'{"type": "tran', ASKED), "remote-broke-off"),
    ("half its data", sends(b'{"type": "transcript", "data_length": 50}\n{"text"', ASKED), "remote-broke-off"),
    ("half its payload", sends(b'{"type": "x", "payload_length": 50}\nabc', ASKED), "remote-broke-off"),
    ("another protocol", sends(b"HTTP/1.1 400 Bad Request\r\n\r\n", ASKED), "remote-garbage"),
    ("no object", sends(b"[1, 2]\n", ASKED), "remote-garbage"),
    ("no type", sends(b'{"data": {}}\n', ASKED), "remote-garbage"),
    ("data that is none", sends(b'{"type": "transcript", "data": "x"}\n', ASKED), "remote-garbage"),
    ("no text", sends(b'{"type": "transcript"}\n', ASKED), "remote-garbage"),
    ("text that is none", sends(b'{"type": "transcript", "data": {"text": 5}}\n', ASKED), "remote-garbage"),
    ("no UTF-8", sends(b'{"type": "transcript", "data": {"text": "\xff\xfe"}}\n', ASKED), "remote-garbage"),
    ("a length of a text", sends(b'{"type": "x", "data_length": "9"}\n', ASKED), "remote-garbage"),
    ("a negative length", sends(b'{"type": "x", "payload_length": -9}\n', ASKED), "remote-garbage"),
    ("a length of a petabyte", sends(b'{"type": "x", "payload_length": 1000000000000000}\n', ASKED), "remote-garbage"),
    ("deep JSON", sends(DEEP, ASKED), "remote-garbage"),
    ("a line without an end", repeats(b"x" * 65536), "remote-garbage"),
    ("too long a text", sends(frame("transcript", text="x" * 30_000), ASKED), "remote-garbage"),
    ("an error", sends(frame("error", text="out of memory"), ASKED), "remote-refused"),
    ("silence", silent, "remote-late"),
    ("a byte at a time", drips(frame("pong") * 2, 0.02), "remote-late"),
    ("events of no use", repeats(frame("pong")), "remote-late"),
    ("partial texts of nothing", repeats(frame("transcript-chunk", text="")), "remote-late"),
]


@pytest.mark.parametrize(("play", "code"), [pytest.param(play, code, id=name) for name, play, code in BAD])
def test_a_server_that_breaks_the_protocol_is_a_remote_failure_in_time(play: Any, code: str) -> None:
    with scripted(play) as port, pytest.raises(RemoteFailed) as caught:
        started = time.monotonic()
        list(WyomingAsr(config(f"tcp://127.0.0.1:{port}", deadline_s=0.5)).run(AsrRequest(pcm=PCM)))
    assert caught.value.code == code
    assert time.monotonic() - started < 1.5


def test_partial_texts_are_told_as_such() -> None:
    script = frame("transcript-chunk", text="what ") + frame("transcript-chunk", text="time") + frame("transcript-stop")
    with scripted(sends(script + frame("transcript", text="What time?"), ASKED)) as port:
        found = results(WyomingAsr(config(f"tcp://127.0.0.1:{port}")).run(AsrRequest(pcm=PCM)))
    assert found == [
        Transcript(text="what", final=False),
        Transcript(text="what time", final=False),
        Transcript(text="What time?", final=True),
    ]


CHUNK = frame("audio-chunk", b"\1\0" * 2205, rate=22050, width=2, channels=1)
STOP = frame("audio-stop")
BAD_SOUND = [
    ("no sound", STOP, "gave no sound"),
    ("no format", frame("audio-chunk", b"ab"), "0 Hz"),
    ("a rate of nothing", frame("audio-chunk", b"ab", rate=0, width=2, channels=1), "0 Hz"),
    ("a rate of a text", frame("audio-chunk", b"ab", rate="x", width=2, channels=1), "-1 Hz"),
    ("eight channels", frame("audio-chunk", b"ab", rate=22050, width=2, channels=8), "8 channels"),
    ("floats", frame("audio-chunk", b"abcd", rate=22050, width=4, channels=1), "4 bytes"),
    ("another rate", CHUNK + frame("audio-chunk", b"ab", rate=16000, width=2, channels=1), "changes its format"),
    ("the end too early", CHUNK, "closed the connection"),
    ("hours of it", CHUNK * 2000, "for a short text"),
]


@pytest.mark.parametrize(("script", "words"), [pytest.param(a, b, id=name) for name, a, b in BAD_SOUND])
def test_sound_that_cannot_be_played_is_a_remote_failure(script: bytes, words: str) -> None:
    with scripted(sends(script, b"synthesize")) as port, pytest.raises(RemoteFailed, match=words):
        list(WyomingTts(config(f"tcp://127.0.0.1:{port}")).run(TtsRequest(text="Hello.")))


def test_samples_that_are_cut_in_two_and_second_channels_make_plain_mono() -> None:
    sound = Sound(60)
    stereo = b"".join(bytes([number % 250, 1, 99, 99]) for number in range(4000))
    found = []
    for at in range(0, len(stereo), 1001):
        event = Event("audio-chunk", {"rate": 16000, "width": 2, "channels": 2}, stereo[at : at + 1001])
        found.append(sound.take(event))
    found.append(sound.rest())
    pcm = b"".join(out.pcm for out in found if out is not None)
    assert pcm == b"".join(bytes([number % 250, 1]) for number in range(4000))


def test_a_server_that_is_away_and_one_that_nobody_can_be() -> None:
    with pytest.raises(RemoteFailed, match="cannot be reached"):
        list(WyomingTts(config(f"tcp://127.0.0.1:{free_port()}")).run(TtsRequest(text="x")))
    with pytest.raises(RemoteFailed, match="cannot be reached: No such file"):
        list(WyomingTts(config("unix:///nowhere/tts.sock")).run(TtsRequest(text="x")))
    with pytest.raises(ConfigError, match=r"stages\.tts\.uri"):
        WyomingTts(config("ftp://a:1"))
    with pytest.raises(ConfigError, match="speed"):
        WyomingTts(config("tcp://a:1", speed=2))
