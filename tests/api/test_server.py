"""Real sockets, real clients, hostile ones among them: every message is answered, and the server lives on."""

from __future__ import annotations

import asyncio
import json
import random
import stat
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import zmq

from assistant.api import wire
from assistant.api.client import Client, found
from assistant.errors import BusyNow, ConfigError, MemoryRefused, NeverFits, NotRunning, UsageError
from assistant.messages import Stage
from tests.api.backend import Backend, served

T = TypeVar("T")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own: a socket's path has to be short."""
    with tempfile.TemporaryDirectory(prefix="va-") as made:
        yield Path(made) / "assistant"


def serve(folder: Path, scenario: Callable[[Backend], Awaitable[T]], stop: Callable[[], None] = lambda: None) -> T:
    async def run() -> T:
        async with served(folder, stop) as backend:
            return await asyncio.wait_for(scenario(backend), 15)

    return asyncio.run(run())


def with_client(folder: Path, work: Callable[[Client], T]) -> Awaitable[T]:
    def run() -> T:
        with Client(folder) as client:
            return work(client)

    return asyncio.to_thread(run)


class Raw:
    """A client that sends what it likes."""

    def __init__(self, folder: Path, socket: str, kind: int = zmq.DEALER) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket: zmq.Socket[bytes] = self._context.socket(kind)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(f"ipc://{folder}/{socket}.sock")

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    def reply(self, timeout_s: float = 3) -> dict[str, Any] | None:
        if not self.socket.poll(int(timeout_s * 1000)):
            return None
        reply: dict[str, Any] = json.loads(self.socket.recv_multipart()[0])
        return reply

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exc: object) -> None:
        self._context.destroy(linger=0)


def header(kind: str, data: Any = None, **more: Any) -> bytes:
    return json.dumps({"v": 1, "id": "i", "type": kind, "data": data or {}} | more).encode()


# --- what it is for -------------------------------------------------------------------------------------------------
def test_a_query_goes_there_and_its_answer_comes_back(folder: Path) -> None:
    def ask(client: Client) -> list[Any]:
        return list(client.replies(client.ask(wire.Ask(speech=True), b"\1\2" * 1000)))

    async def scenario(backend: Backend) -> None:
        replies = await with_client(folder, ask)
        assert backend.heard == [b"\1\2" * 1000]
        assert b"".join(pcm for _, pcm in replies) == b"one " * 100 + b"two" * 100
        names = [reply.name for reply, _ in replies if isinstance(reply, wire.Event)]
        assert names == ["run-start", "reply-delta", "reply-delta", "run-end"]
        assert isinstance(replies[-1][0], wire.Report)

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
        with Raw(folder, "command") as raw:
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
                assert {path.name for path in folder.iterdir()} == {"command.sock", "control.sock"}
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


# --- what must not hurt it ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("socket", ["command", "control"])
@pytest.mark.parametrize(
    ("frames", "code", "parent"),
    [
        ([b"\xff\xfe\x00" * 9], "bad-message", None),
        ([b'{"v":1,"id":"i","type":'], "bad-message", None),
        ([b"[" * 50_000], "bad-message", None),
        ([header("ping", v=2)], "unknown-version", "i"),
        ([header("reboot")], "unknown-command", "i"),
        ([header("ping", colour="red")], "unknown-field", "i"),
        ([header("load", {"stage": "llm"}), b"sound"], None, "i"),
        ([header("ask", {})], None, "i"),
        ([header("ask", {"text": "a"}), b"ab"], None, "i"),
        ([header("ask"), b"abc"], None, "i"),
        ([b""], "bad-message", None),
        ([header("ask")] + [b"ab"] * 100, "bad-message", "i"),
    ],
)
def test_a_wrong_message_gets_a_typed_error(
    folder: Path, socket: str, frames: list[bytes], code: str | None, parent: str | None
) -> None:
    async def scenario(backend: Backend) -> None:
        with Raw(folder, socket) as raw:
            raw.send(*frames)
            reply = await asyncio.to_thread(raw.reply)
        assert reply is not None
        assert (reply["type"], reply["parent"]) == ("error", parent)
        # what the other socket takes is an unknown command at this one
        expected = code or ("bad-message" if socket == "command" else "unknown-command")
        if socket == "command" and code == "unknown-field":
            expected = "unknown-field"
        assert reply["data"]["code"] == expected
        assert reply["data"]["exit_code"] == 2
        assert (await with_client(folder, lambda client: client.ping())).pid

    serve(folder, scenario)


def test_a_frame_that_is_too_large_ends_its_connection_alone(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        with Raw(folder, "command") as raw, Raw(folder, "control") as small:
            raw.send(header("ask"), bytes(33 * 2**20))
            small.send(bytes(65 * 1024))
            await asyncio.sleep(0.3)
            assert await asyncio.to_thread(raw.reply, 0.2) is None
            assert (await with_client(folder, lambda client: client.ping())).pid
            assert backend.heard == []

    serve(folder, scenario)


def test_a_flood_of_noise_is_survived(folder: Path) -> None:
    dice = random.Random(7)

    async def scenario(backend: Backend) -> None:
        with Raw(folder, "command") as one, Raw(folder, "control") as two:

            def flood() -> None:
                for _ in range(3000):
                    frames = [dice.randbytes(dice.randrange(200)) for _ in range(dice.randrange(1, 4))]
                    one.send(*frames)
                    two.send(*frames)

            await asyncio.to_thread(flood)
            pong = await with_client(folder, lambda client: client.ping())
            assert pong.pid
        assert backend.order == []

    serve(folder, scenario)


def test_a_hundred_clients_that_vanish_leave_nothing_running(folder: Path) -> None:
    def vanish() -> None:
        for number in range(100):
            with Raw(folder, "command") as raw:
                raw.send(header("ask", {"text": f"wait {number}"}))
                time.sleep(0.002)

    async def scenario(backend: Backend) -> None:
        await asyncio.to_thread(vanish)
        backend.go.set()
        await asyncio.sleep(0.2)
        assert len(backend.order) <= 5  # the others were refused
        sent = await with_client(folder, lambda client: list(client.replies(client.ask(wire.Ask(text="hello")))))
        assert sent[-1][0].outcome == "answered"

    serve(folder, scenario)


def test_a_caller_that_vanishes_cancels_its_query(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        with Raw(folder, "command") as raw:
            raw.send(header("ask", {"text": "wait 1"}))
            raw.send(header("ask", {"text": "wait 2"}))
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        backend.go.set()  # the next thing that the first query tells finds nobody
        await asyncio.sleep(0.2)
        backend.go.clear()
        with Raw(folder, "command") as other:
            other.send(header("ask", {"text": "hello"}))
            await asyncio.sleep(0.2)
        assert "hello" in backend.order

    serve(folder, scenario)


def test_a_caller_that_does_not_read_holds_up_nobody(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        with Raw(folder, "control") as lazy:

            def flood() -> None:
                for _ in range(5000):
                    lazy.send(header("status"))

            await asyncio.to_thread(flood)
            for _ in range(20):
                await with_client(folder, lambda client: client.ping())
                await asyncio.sleep(0)

    serve(folder, scenario)


# --- the client -----------------------------------------------------------------------------------------------------
def test_without_a_daemon_nobody_is_found(folder: Path) -> None:
    assert found(folder) is None
    with pytest.raises(NotRunning, match="assistant run") as caught:
        Client(folder)
    assert caught.value.exit_code == 3


def test_sockets_in_a_folder_of_anybody_are_not_trusted(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        assert backend.order == []
        folder.chmod(0o777)
        with pytest.raises(ConfigError, match="others may enter"):
            Client(folder)
        folder.chmod(0o700)

    serve(folder, scenario)


def test_a_daemon_that_does_not_answer_is_not_running(folder: Path) -> None:
    import socket

    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mute:
        mute.bind(str(folder / "control.sock"))
        mute.listen(5)
        started = time.monotonic()
        assert found(folder, timeout_s=0.2) is None
        with Client(folder) as client, pytest.raises(NotRunning, match="did not answer"):
            client.ping(0.1)
        assert time.monotonic() - started < 2


def test_a_daemon_that_goes_away_ends_a_query_with_a_typed_error(folder: Path) -> None:
    async def run() -> None:
        async with served(folder):
            client = Client(folder)
            sent = await asyncio.to_thread(client.ask, wire.Ask(text="wait"))
            await asyncio.to_thread(next, client.replies(sent))
        with client:
            # what it still said before it went
            *_, (last, _) = list(client.replies(sent))
            assert last.outcome == "cancelled"
            with pytest.raises(NotRunning):
                list(client.replies("what it never answered"))

    asyncio.run(run())


def test_what_cannot_be_sent_is_refused_before_it_is(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        with pytest.raises(UsageError, match="33554432"):
            await with_client(folder, lambda client: client.ask(wire.Ask(), bytes(wire.MAX_PCM_BYTES + 2)))

    serve(folder, scenario)
