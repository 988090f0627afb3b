"""Real sockets, real clients: every command does what docs/protocol.md says."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import stat
import time
from pathlib import Path
from typing import Any

import pytest
import zmq

from assistant.api import wire
from assistant.api.client import Client
from assistant.api.jobs import Job
from assistant.errors import BusyNow, MemoryRefused, NeverFits, UsageError
from assistant.messages import Stage
from tests.api.backend import Backend, served
from tests.api.talking import Raw, header, serve, with_client


def test_a_query_goes_there_and_its_answer_comes_back(folder: Path) -> None:
    def ask(client: Client) -> list[Any]:
        return list(client.replies(client.ask(wire.Ask(speech=True), b"\1\2" * 1000)))

    async def scenario(backend: Backend) -> None:
        replies = await with_client(folder, ask)
        assert backend.heard == [b"\1\2" * 1000]
        assert b"".join(pcm for _, pcm in replies) == b"one " * 100 + b"two" * 100
        names = [reply.name for reply, _ in replies if isinstance(reply, wire.Event)]
        assert names == ["run-start", "memory-admit", "reply-delta", "reply-delta", "run-end"]
        assert isinstance(replies[-1][0], wire.Report)

    serve(folder, scenario)


def test_a_bad_conversation_or_urgency_is_answered_and_nothing_is_asked(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        with Raw(folder, "command") as raw:
            for data, code in (({"conversation": "a b"}, "bad-conversation"), ({"urgency": "now"}, "bad-urgency")):
                raw.send(header("ask", {"text": "hello", **data}))
                reply = await asyncio.to_thread(raw.reply)
                assert reply is not None
                assert (reply["type"], reply["parent"]) == ("error", "i")
                assert (reply["data"]["code"], reply["data"]["exit_code"]) == (code, 2)
        assert backend.order == []

    serve(folder, scenario)


def test_load_unload_status_and_ping(folder: Path) -> None:
    def talk(client: Client) -> None:
        assert client.ping().version
        loaded = client.load(Stage.LLM, 30)
        assert loaded.status is not None
        assert loaded.status.name == "llm"
        assert [row.name for row in client.status().stages] == ["llm"]
        assert client.load(Stage.INTENT, 0).status is None
        assert client.unload(Stage.LLM).unloaded
        assert not client.unload(Stage.LLM).unloaded
        with pytest.raises(MemoryRefused, match="too large") as caught:
            client.load(Stage.TTS)
        assert caught.value.to_dict() == NeverFits("too large", stage="tts").to_dict()
        assert caught.value.exit_code == 5

    async def scenario(backend: Backend) -> None:
        await with_client(folder, talk)
        assert backend.loaded == {}

    serve(folder, scenario)


def test_control_and_orders_do_not_wait_behind_queries(folder: Path) -> None:
    def talk(client: Client) -> float:
        started = time.monotonic()
        client.ping()
        client.status()
        client.load(Stage.LLM)
        client.unload(Stage.LLM)
        return time.monotonic() - started

    async def scenario(backend: Backend) -> None:
        with Raw(folder, "command") as raw:
            for _ in range(3):
                raw.send(header("ask", {"text": "wait"}))
            raw.send(header("load", {"stage": "asr"}))  # takes until `go`, too
            await asyncio.sleep(0.1)
            assert await with_client(folder, talk) < 1
            backend.go.set()

    serve(folder, scenario)


def test_a_full_line_is_busy_at_once(folder: Path) -> None:
    def ask(client: Client) -> None:
        list(client.replies(client.ask(wire.Ask(text="one more"))))

    async def scenario(backend: Backend) -> None:
        with Raw(folder, "command") as one, Raw(folder, "command") as two, Raw(folder, "command") as three:
            for raw in (one, two, three):  # none of them may fill it alone
                for _ in range(5):
                    raw.send(header("ask", {"text": "wait"}))
                await asyncio.sleep(0.1)
            started = time.monotonic()
            with pytest.raises(BusyNow) as caught:
                await with_client(folder, ask)
            assert time.monotonic() - started < 0.5
            assert caught.value.exit_code == 4
            assert caught.value.retry_after_ms
            assert caught.value.to_dict()["status"] == 429

    serve(folder, scenario)


def test_orders_have_a_bound_too(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        with Raw(folder, "command") as raw:
            for _ in range(9):
                raw.send(header("load", {"stage": "asr"}))
            reply = await asyncio.to_thread(raw.reply)
            assert reply is not None
            assert (reply["type"], reply["data"]["code"]) == ("error", "busy")
            backend.go.set()
            assert (await asyncio.to_thread(raw.reply) or {})["type"] == "loaded"

    serve(folder, scenario)


def test_cancel_by_id_while_running_and_while_waiting(folder: Path) -> None:
    def cancel(client: Client) -> None:
        sent = [client.ask(wire.Ask(text="wait 1")), client.ask(wire.Ask(text="wait 2"))]
        ids = []
        for one in sent:
            reply, _ = next(client.replies(one))
            ids.append(reply.query_id)
        assert client.cancel(ids[1]) == (ids[1],)
        assert client.cancel() == (ids[0],)
        with pytest.raises(UsageError, match="no query") as caught:
            client.cancel("nobody")
        assert caught.value.code == "query-unknown"

    async def scenario(backend: Backend) -> None:
        await with_client(folder, cancel)
        assert await with_client(folder, lambda client: client.cancel()) == ()
        assert backend.order == ["wait 1"]

    serve(folder, scenario)


def test_shutdown_is_answered_and_asked_for_once(folder: Path) -> None:
    stopped: list[bool] = []

    async def scenario(backend: Backend) -> None:
        assert await with_client(folder, lambda client: client.shutdown()) > 0

    serve(folder, scenario, lambda: stopped.append(True))
    assert stopped == [True]


def test_closing_tells_the_callers_and_removes_the_sockets(folder: Path) -> None:
    async def run() -> dict[str, Any]:
        with Raw(folder, "command") as raw:
            async with served(folder):
                assert {path.name for path in folder.iterdir()} == {"command.sock", "control.sock", "events.sock"}
                assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
                raw.send(header("ask", {"text": "wait", "stream": False}))
                for _ in range(2):  # accepted, started
                    await asyncio.to_thread(raw.reply)
                started = time.monotonic()
            assert time.monotonic() - started < 1
            return raw.reply() or {}

    last = asyncio.run(run())
    assert (last["type"], last["data"]["outcome"]) == ("report", "cancelled")
    assert list(folder.iterdir()) == []


def test_a_req_socket_is_answered_in_its_own_way(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        with Raw(folder, "control", zmq.REQ) as raw:
            raw.send(header("ping"))
            reply = await asyncio.to_thread(raw.reply)
            assert reply is not None
            assert (reply["type"], reply["parent"]) == ("pong", "i")

    serve(folder, scenario)


@pytest.mark.parametrize("slow_to_stop_s", [0, 1.0])
def test_loads_that_are_cancelled_at_the_end_are_told(folder: Path, slow_to_stop_s: float) -> None:
    async def run() -> list[dict[str, Any]]:
        async with contextlib.AsyncExitStack() as ended:
            backend = await ended.enter_async_context(served(folder))
            with Raw(folder, "command") as raw:
                backend.slow_to_stop_s = slow_to_stop_s
                raw.send(header("load", {"stage": "asr"}, id="first"))
                raw.send(header("load", {"stage": "asr"}, id="second"))
                await asyncio.sleep(0.1)
                started = time.monotonic()
                await ended.aclose()
                assert time.monotonic() - started < 0.8
                replies = [raw.reply() or {}, raw.reply() or {}]
                assert raw.reply(0.1) is None
                return replies

    replies = asyncio.run(run())
    assert {reply["parent"] for reply in replies} == {"first", "second"}
    for reply in replies:
        assert (reply["type"], reply["data"]["code"], reply["data"]["exit_code"]) == ("error", "cancelled", 130)
        assert "the load of asr" in reply["data"]["message"]


def test_a_client_that_stays_keeps_nothing_of_its_queries(folder: Path) -> None:
    """A recording has a hundred kilobytes, and a client stays for years."""

    def ask(client: Client) -> int:
        for _ in range(20):
            list(client.replies(client.ask(wire.Ask(speech=True), b"\1\2" * 1000)))
        gc.collect()
        return sum(isinstance(one, Job) for one in gc.get_objects())

    async def scenario(backend: Backend) -> None:
        assert await with_client(folder, ask) <= 1  # the last one may be on its way out
        assert len(backend.heard) == 20

    serve(folder, scenario)


@pytest.mark.parametrize(
    ("ask", "pcm", "words"),
    [
        (wire.Ask(), b"", "neither a `text`, nor PCM frames.*nor `more`"),
        (wire.Ask(text="hello"), b"\1\2", "it takes one"),
        (wire.Ask(text="hello", more=True), b"", "it takes one"),
    ],
)
def test_a_question_is_one_text_or_one_recording(folder: Path, ask: wire.Ask, pcm: bytes, words: str) -> None:
    def talk(client: Client) -> None:
        with pytest.raises(UsageError, match=words) as caught:
            list(client.replies(client.ask(ask, pcm)))
        assert caught.value.code == "bad-message"

    async def scenario(backend: Backend) -> None:
        await with_client(folder, talk)
        assert backend.order == []

    serve(folder, scenario)
