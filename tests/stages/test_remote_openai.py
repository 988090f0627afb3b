"""Answers through OpenAI-compatible servers: streams, refusals, keys that stay secret, and servers that break off."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import AssistantError, ConfigError, RemoteFailed
from assistant.messages import LlmDelta, LlmDone, LlmRequest, Progress, Sampling, Stage, StageOutput, Turn
from assistant.stages.base import EngineConfig
from assistant.stages.lifecycle import WorkerState
from assistant.stages.llm_openai import OpenAiLlm
from tests.stages.remote_servers import drips, openai_server, repeats, scripted, sends, silent
from tests.stages.running import done_of, running, text_of

REQUEST = LlmRequest(turns=(Turn(role="system", content="Be kind."), Turn(role="user", content="Where?")))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ASKED = b'"max_tokens"'
SECRET = "sk-do-not-tell"


def config(url: str, **options: Any) -> EngineConfig:
    return EngineConfig(
        model="m", model_dir=Path(), cache_dir=Path(), threads=1, options={"url": url, "deadline_s": 2, **options}
    )


def ask(url: str, request: LlmRequest = REQUEST, **options: Any) -> list[StageOutput]:
    engine = OpenAiLlm(config(url, **options))
    engine.load()
    return list(engine.run(request))


def event(text: Any, reason: Any = None) -> bytes:
    return (
        b"data: " + json.dumps({"choices": [{"delta": {"content": text}, "finish_reason": reason}]}).encode() + b"\n\n"
    )


def test_a_conversation_goes_there_and_text_comes_back_as_it_is_written() -> None:
    with openai_server("Paris is a city.") as (url, asked):
        found = ask(url, name="smol")
    assert text_of(found).strip() == "Paris is a city."
    assert sum(out.tokens for out in found if isinstance(out, LlmDelta)) == 4
    done = done_of(found)
    assert (done.reason, done.new_tokens) == ("stop", 4)
    assert asked.paths == ["/v1/chat/completions"]
    assert asked.keys == [""]
    assert asked.bodies == [
        {
            "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Where?"}],
            "stream": True,
            "max_tokens": 96,
            "temperature": 0.0,
            "model": "smol",
        }
    ]


def test_sampling_is_told_where_it_counts() -> None:
    with openai_server() as (url, asked):
        sampling = Sampling(temperature=0.5, top_p=0.9, seed=7)
        ask(url, LlmRequest(turns=REQUEST.turns, sampling=sampling, max_new_tokens=9, stop=("\n",)))
    told = {key: value for key, value in asked.bodies[0].items() if key != "messages"}
    assert told == {"stream": True, "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["\n"]}


def test_a_server_that_does_not_stream_is_understood() -> None:
    with openai_server("All at once.", streams=False) as (url, _):
        assert text_of(ask(url)) == "All at once."


@pytest.mark.parametrize(("status", "words"), [(429, "busy"), (500, "500"), (404, "remote_model"), (302, "elsewhere")])
def test_other_answers_are_refusals_that_say_what_to_do(status: int, words: str) -> None:
    with openai_server(status=status) as (url, _), pytest.raises(RemoteFailed, match=words) as caught:
        ask(url)
    assert caught.value.code == "remote-refused"


# --- keys -----------------------------------------------------------------------------------------------------------
def test_the_key_comes_from_a_file_and_is_found_in_no_message(tmp_path: Path) -> None:
    file = tmp_path / "key"
    with openai_server(key=SECRET) as (url, asked):
        with pytest.raises(ConfigError, match="No such file"):
            ask(url, api_key_file=str(file))
        file.write_text(f"{SECRET}\n")
        assert text_of(ask(url, api_key_file=str(file)))
        assert asked.keys == [f"Bearer {SECRET}"]
        file.write_text("wrong-key")
        with pytest.raises(RemoteFailed, match="does not let us in") as caught:
            ask(url, api_key_file=str(file))
        assert SECRET not in str(caught.value)  # which the server had written into its answer
        assert "wrong-key" not in str(caught.value)


@pytest.mark.parametrize("text", ["", " \n", "two\nlines", "\x00key", "kéy", b"\xff\xfe"])
def test_a_file_without_a_key_is_told_without_what_is_in_it(tmp_path: Path, text: Any) -> None:
    file = tmp_path / "key"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match="key") as caught:
        ask("http://127.0.0.1:1/v1", api_key_file=str(file))
    assert "two" not in caught.value.message


def test_the_key_comes_from_the_environment_of_a_worker(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from assistant.stages.base import EngineConfig;"
        "from assistant.stages.llm_openai import OpenAiLlm; from tests.stages.test_remote_openai import REQUEST;"
        "o = {'url': sys.argv[1], 'api_key_env': 'MY_KEY'};"
        "e = OpenAiLlm(EngineConfig(model='m', model_dir=Path(), cache_dir=Path(), threads=1, options=o));"
        "e.load(); assert list(e.run(REQUEST))"
    )
    with openai_server(key=SECRET) as (url, asked):
        subprocess.run([sys.executable, "-c", code, url], check=True, env={**os.environ, "MY_KEY": SECRET})
    assert asked.keys == [f"Bearer {SECRET}"]
    with pytest.raises(ConfigError, match="empty"):
        ask("http://127.0.0.1:1/v1", api_key_env="SURELY_NOT_SET")


# --- https ----------------------------------------------------------------------------------------------------------
def certificate(tmp_path: Path) -> Path:
    both = tmp_path / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", tmp_path / "key.pem",
         "-out", tmp_path / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    both.write_text((tmp_path / "key.pem").read_text() + (tmp_path / "cert.pem").read_text())
    return both


def test_https_trusts_the_certificate_that_was_named_and_no_other(tmp_path: Path) -> None:
    both = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    with openai_server("Paris.", tls=context) as (url, asked):
        assert url.startswith("https://")
        assert text_of(ask(url, ca_file=str(tmp_path / "cert.pem"))).strip() == "Paris."
        with pytest.raises(RemoteFailed, match="certificate") as caught:
            ask(url)
        assert caught.value.code == "remote-unreachable"
        assert len(asked.bodies) == 1
        with pytest.raises(ConfigError, match="ca_file"):
            ask(url, ca_file=str(tmp_path / "nothing.pem"))


# --- servers that break off, lie, flood or wait -----------------------------------------------------------------------
def after_head(play: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
    def both(sock: socket.socket) -> None:
        sock.sendall(HEAD)
        play(sock)

    return both


BAD = [
    ("closes at once", sends(b"", ASKED), "remote-broke-off"),
    ("another protocol", sends(b"\x00\x01\x02 hello\n\n", ASKED), "remote-garbage"),
    ("headers without an end", repeats(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 1000), "remote-garbage"),
    ("no events", sends(HEAD, ASKED), "remote-broke-off"),
    ("no JSON", sends(HEAD + b"data: {nonsense\n\n", ASKED), "remote-garbage"),
    ("no UTF-8", sends(HEAD + b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n', ASKED), "remote-garbage"),
    ("a list", sends(HEAD + b"data: [1]\n\n", ASKED), "remote-garbage"),
    ("a number", sends(HEAD + b"data: 1\n\n", ASKED), "remote-garbage"),
    ("text that is none", sends(HEAD + event({"a": 1}), ASKED), "remote-garbage"),
    ("choices that are none", sends(HEAD + b'data: {"choices": 7}\n\n', ASKED), "remote-garbage"),
    ("deep JSON", sends(HEAD + b"data: " + b"[" * 100_000 + b"\n\n", ASKED), "remote-garbage"),
    ("an error in the stream", sends(HEAD + b'data: {"error": {"message": "full"}}\n\n', ASKED), "remote-refused"),
    ("a line without an end", sends(HEAD + b"data: " + b"x" * (1 << 20), ASKED), "remote-garbage"),
    ("a chunk that is cut", sends(ENDLESS + b"fff\r\ndata: {", ASKED), "remote-broke-off"),
    ("a chunk of nonsense", sends(ENDLESS + b"zzz\r\nx", ASKED), "remote-broke-off"),
    ("silence", silent, "remote-late"),
    ("comments for ever", after_head(repeats(b": wait\n\n")), "remote-late"),
    ("events of nothing", after_head(repeats(event(""))), "remote-late"),
    ("a byte at a time", after_head(drips(event("a"), 0.05)), "remote-late"),
]  # fmt: skip


@pytest.mark.parametrize(("play", "code"), [pytest.param(play, code, id=name) for name, play, code in BAD])
def test_a_server_that_breaks_the_protocol_is_a_remote_failure_in_time(play: Any, code: str) -> None:
    with scripted(play) as port, pytest.raises(RemoteFailed) as caught:
        started = time.monotonic()
        ask(f"http://127.0.0.1:{port}/v1", deadline_s=0.5)
    assert caught.value.code == code
    assert time.monotonic() - started < 1.5


def test_a_stream_that_breaks_off_has_told_what_came() -> None:
    with scripted(sends(HEAD + event("Half an "), ASKED)) as port:
        told: list[StageOutput] = []
        with pytest.raises(AssistantError, match="in the middle of its answer"):
            told.extend(OpenAiLlm(config(f"http://127.0.0.1:{port}/v1")).run(REQUEST))
    assert text_of(told) == "Half an "


@pytest.mark.parametrize("reason", ["length", "stop"])
def test_the_end_of_an_answer_has_its_reason(reason: str) -> None:
    with scripted(sends(HEAD + event("Paris") + event(None, reason), ASKED)) as port:
        assert done_of(ask(f"http://127.0.0.1:{port}/v1")).reason == reason


def test_a_server_that_does_not_stop_is_cut_at_the_longest_answer() -> None:
    with scripted(after_head(repeats(event("bla ")))) as port:
        found = ask(f"http://127.0.0.1:{port}/v1", LlmRequest(turns=REQUEST.turns, max_new_tokens=20))
    assert done_of(found).reason == "length"
    assert len(text_of(found)) <= 21 * 4
    assert isinstance(found[-1], LlmDone)


def test_a_worker_serves_it_and_hears_a_cancel_while_the_server_is_silent() -> None:
    async def test() -> None:
        with openai_server() as (url, _):
            async with running(Stage.LLM, "openai", config(url)) as worker:
                found = [out async for out in worker.run(REQUEST, 5)]
                assert text_of(found).strip() == "Paris is a city."
        with scripted(silent) as port:
            url = f"http://127.0.0.1:{port}/v1"
            async with running(Stage.LLM, "openai", config(url, deadline_s=60)) as worker:
                stream = worker.run(REQUEST, 5)
                assert isinstance(await anext(stream), Progress)
                started = time.monotonic()
                await stream.aclose()
                assert time.monotonic() - started < 0.5
                assert worker.state is WorkerState.READY

    asyncio.run(test())
