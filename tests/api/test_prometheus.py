"""The figures: scraped over real HTTP and read by Prometheus' own parser, after real queries."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from assistant.api import wire
from assistant.api.client import Client
from assistant.api.prometheus import Figures
from assistant.api.prometheus_http import MAX_CLIENTS, MetricsServer
from assistant.api.queries import Queries, QueryEvents
from assistant.errors import ConfigError
from assistant.messages_status import Status
from assistant.model_store.store import ModelInfo
from tests.api.backend import Backend, SpeakingVoice
from tests.api.daemon_process import Place

Samples = dict[tuple[str, ...], float]


def samples_of(page: bytes) -> Samples:
    """By name and label values in the order of their names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def get(port: int, path: str = "/metrics", **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def backend_and_figures() -> tuple[Backend, QueryEvents, Figures]:
    events = QueryEvents()
    backend, voice = Backend(events), SpeakingVoice()

    def status() -> Status:
        return msgspec.structs.replace(backend.status(), voice=voice.status())

    figures = Figures(status, Queries(backend.answer, events))
    events.listeners.append(figures.follow)
    return backend, events, figures


def test_events_become_figures() -> None:
    _, events, figures = backend_and_figures()
    events("stage-load-end", {"stage": "llm", "load_ms": 1500.0})
    events("service-end", {"service": "transcribe", "stage": "asr", "ms": 300.0, "code": ""})
    events("memory-deny", {"stage": "llm", "code": "busy", "message": "m"})
    events("memory-evict", {"stage": "tts", "for": "llm"})
    events("wake_word-end", {"word": "hey_jarvis", "score": 0.9})
    events("audio-device-lost", {"kind": "input", "name": "d", "message": "m"})
    events("stage-restart", {"stage": "asr", "code": "stage-died"})
    events("stt-speculation", {"hit": True, "answer": True, "ms": 400.0})
    events("stt-speculation", {"hit": False, "answer": False, "ms": 250.0})
    found = samples_of(figures.page())
    assert found["assistant_stage_load_seconds_sum", "llm"] == 1.5
    assert found["assistant_service_seconds_bucket", "0.25", "transcribe"] == 0
    assert found["assistant_service_seconds_bucket", "0.5", "transcribe"] == 1
    assert found["assistant_memory_refusals_total", "busy"] == 1
    assert found["assistant_memory_evictions_total", "tts"] == 1
    assert found["assistant_wakes_total", "hey_jarvis"] == 1
    assert (found["assistant_speculations_total", "true"], found["assistant_speculations_total", "false"]) == (1, 1)
    assert found["assistant_speculation_seconds_total", "false"] == 0.25
    assert found["assistant_audio_device_losses_total", "input"] == 1
    assert found["assistant_stage_restarts_total", "asr"] == 1
    assert found["assistant_memory_bytes", "budget"] == 9 * 2**20
    assert found[("assistant_pressure_level",)] == 0
    assert found[("assistant_audio_restarts_total",)] == 0


def test_whatever_comes_the_series_stay_few() -> None:
    _, events, figures = backend_and_figures()
    for number in range(1000):
        events("memory-deny", {"code": f"code-{number}"})
        events("wake_word-end", {"word": f"word-{number}"})
    found = samples_of(figures.page())
    assert found["assistant_wakes_total", "other"] == 1000 - 32
    assert len(found) < 400


def test_the_page_is_for_this_machine_and_nothing_else_is_served() -> None:
    _, _, figures = backend_and_figures()

    async def run() -> None:
        async with MetricsServer(figures.page, "127.0.0.1", 0, patience_s=0.3) as server:

            async def ask(path: str = "/metrics", **headers: str) -> tuple[int, bytes]:
                return await asyncio.to_thread(get, server.port, path, **headers)

            assert (await ask())[0] == 200
            assert (await ask("/metrics?a=b", Host="localhost:9107"))[0] == 200
            assert (await ask("/metrics", Host="rebound.example:9107"))[0] == 403
            assert (await ask("/"))[0] == 404
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"POST /metrics HTTP/1.1\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 405")
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"x" * 20_000)  # no end: too long
            assert not await _rest(reader)
            writer.close()
            silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(MAX_CLIENTS)]
            assert (await ask())[0] == 503
            assert [await _rest(reader) for reader, _ in silent] == [b""] * MAX_CLIENTS  # they had their time
            assert (await ask())[0] == 200
            for _, writer in silent:
                writer.close()

    asyncio.run(run())


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionError:
        return b""


def test_a_status_that_fails_is_an_error_of_the_page_alone() -> None:
    backend, _, figures = backend_and_figures()
    backend.broken = True

    async def run() -> None:
        async with MetricsServer(figures.page, "127.0.0.1", 0) as server:
            assert (await asyncio.to_thread(get, server.port))[0] == 500
            backend.broken = False
            assert (await asyncio.to_thread(get, server.port))[0] == 200

    asyncio.run(run())


@pytest.mark.parametrize("address", ["0.0.0.0", "10.1.2.3", "::", "example.org"])
def test_other_machines_never_reach_it(address: str) -> None:
    async def run() -> None:
        async with MetricsServer(lambda: b"", address, 0):
            pass

    with pytest.raises(ConfigError, match=r"metrics\.address"):
        asyncio.run(run())


def test_nothing_is_imported_unless_it_is_enabled() -> None:
    code = "import sys, assistant.service, assistant.daemon, assistant.api.server; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"wyoming", "prometheus_client", "assistant.api.wyoming"} & set(loaded)


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_a_daemon_that_answers_is_scraped(model: Callable[[str], ModelInfo]) -> None:
    model("en_US-joe-medium")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Place() as place:
        place.daemon("--set", "metrics.enabled=true", "--set", f"metrics.port={port}")
        with Client(place.runtime) as client:
            sent = client.ask(wire.Ask(text="what time is it", speech=True))
            *_, (last, _) = client.replies(sent)
            assert isinstance(last, wire.Report)
        found = samples_of(get(port)[1])
        rows = {row["name"]: row for row in json.loads(place.run("status", "--json").stdout)["stages"]}
    assert found["assistant_query_seconds_count", "handled"] == 1
    assert (
        found["assistant_stage_run_seconds_count", "tts"] == found["assistant_stage_run_seconds_count", "intent"] == 1
    )
    assert found[("assistant_first_audio_seconds_sum",)] * 1000 == pytest.approx(
        last.timings_ms.speech_end_to_first_audio
    )
    reserved_mib = found["assistant_stage_memory_bytes", "tts", "reserved"] / 2**20
    assert reserved_mib == pytest.approx(rows["tts"]["reserved_mib"], rel=0.2)


def test_a_daemon_with_a_bridge_for_everybody_does_not_start() -> None:
    with Place() as place:
        told = place.run("run", "--set", "wyoming.enabled=true", "--set", "wyoming.uri=tcp://0.0.0.0:10700", code=2)
        assert told.stderr.startswith("error: wyoming.uri: ")
        assert len(told.stderr.splitlines()) == 1
        assert not list(place.runtime.glob("*.sock"))
