"""events.sock: who subscribes hears what happens, sees what it missed, and cannot make anybody wait."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import logging
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from assistant.api import wire, wire_events
from assistant.api.client import Client
from assistant.api.events import UNREAD, Publisher
from assistant.api.gaps import Gaps
from tests.api.backend import Backend
from tests.api.talking import SUBSCRIBER, Bytes, Raw, header, serve, with_client
from tests.api.test_memory_of_peers import resident_mib

PACKAGE = Path(__file__).parents[2] / "assistant"


class Subscriber:
    def __init__(self, path: Path, *topics: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket: zmq.Socket[bytes] = self._context.socket(zmq.SUB)
        self.socket.connect(f"ipc://{path}")
        self.subscribe(*topics, "welcome")

    def subscribe(self, *topics: str) -> None:
        for topic in topics:
            self.socket.subscribe(topic)

    def next(self, timeout_s: float = 3) -> tuple[str, dict[str, Any]] | None:
        """Topic and header."""
        if not self.socket.poll(int(timeout_s * 1000)):
            return None
        topic, frame = self.socket.recv_multipart()
        return topic.decode(), json.loads(frame)

    def welcome(self) -> dict[str, Any]:
        while (found := self.next()) is not None:
            if found[0] == "welcome":
                data: dict[str, Any] = found[1]["data"]
                return data
        raise AssertionError("no welcome")

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *exc: object) -> None:
        self._context.destroy(linger=0)


@contextlib.asynccontextmanager
async def publishing(path: Path, **more: Any) -> AsyncIterator[Publisher]:
    path.parent.mkdir(exist_ok=True, mode=0o700)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    publisher = Publisher(context, path, **more)
    await publisher.open()
    try:
        yield publisher
    finally:
        await publisher.close()
        context.term()


def test_a_subscriber_hears_of_every_query_by_the_beginning_of_a_name(folder: Path) -> None:
    def follow() -> list[Any]:
        with Subscriber(folder / "events.sock", "run-", "reply") as all_of_it, Client(folder) as client:
            assert stat.S_IMODE((folder / "events.sock").stat().st_mode) == 0o600
            assert all_of_it.welcome()["seq"] == 0
            for text in ("first", "second"):
                list(client.replies(client.ask(wire.Ask(text=text, stream=False))))
            return [all_of_it.next() for _ in range(8)]

    async def scenario(backend: Backend) -> None:
        found = await asyncio.to_thread(follow)
        assert [topic for topic, _ in found] == ["run-start", "reply-delta", "reply-delta", "run-end"] * 2
        assert all(topic == told["data"]["name"] for topic, told in found)
        assert {(told["v"], told["type"]) for _, told in found} == {(1, "event")}
        # memory-admit was the second of each query
        assert [told["data"]["seq"] for _, told in found] == [1, 3, 4, 5, 6, 8, 9, 10]
        assert [told["data"]["nth"] for _, told in found] == [1, 1, 2, 1, 2, 3, 4, 2]
        assert found[3][1]["data"]["data"]["report"]["transcript"] == "first"
        assert abs(found[0][1]["data"]["time"] - time.time()) < 5

    serve(folder, scenario)


def test_a_snapshot_says_what_the_events_have_led_to(folder: Path) -> None:
    def talk(client: Client) -> tuple[wire.Snapshot, wire.Ps]:
        list(client.replies(client.ask(wire.Ask(text="hello"))))
        with Raw(folder, "control") as raw:
            raw.send(header("snapshot"))
            assert (raw.reply() or {})["type"] == "snapshot"
        return client.snapshot(), client.ps()

    async def scenario(backend: Backend) -> None:
        told, ps = await with_client(folder, talk)
        assert told.seq == 5
        assert told.counts == {"run-start": 1, "memory-admit": 1, "reply-delta": 2, "run-end": 1}
        assert told.status.queries == 1
        assert (ps.stages, ps.pressure) == (told.status.stages, "normal")

    serve(folder, scenario)


def test_words_are_published_and_never_logged(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    def follow() -> str:
        with Subscriber(folder / "events.sock", "run-end") as one, Client(folder) as client:
            one.welcome()
            list(client.replies(client.ask(wire.Ask(text="my secret"))))
            return json.dumps(one.next())

    async def scenario(backend: Backend) -> None:
        assert "my secret" in await asyncio.to_thread(follow)

    with caplog.at_level(logging.DEBUG):
        serve(folder, scenario)
    assert "memory-admit" in caplog.text
    assert "secret" not in caplog.text


def test_a_subscriber_that_never_reads_costs_little_and_sees_its_gap(folder: Path) -> None:
    async def run() -> None:
        async with publishing(folder / "events.sock") as publisher:
            with Bytes(folder / "events.sock", SUBSCRIBER) as lazy, Subscriber(folder / "events.sock", "x") as good:
                lazy.say(b"\1x")
                await asyncio.to_thread(good.welcome)
                before, heard, slowest = resident_mib_of_ours(), 0, 0.0
                for _ in range(300):
                    started = time.monotonic()
                    for _ in range(100):
                        publisher("x", {"text": "y" * 2000})
                    slowest = max(slowest, time.monotonic() - started)
                    heard += await asyncio.to_thread(heard_by, good, 100)
                # 60 MB were published
                assert resident_mib_of_ours() - before < 8
                assert slowest < 1
                assert heard == 30_000
                got = await asyncio.to_thread(numbers_of, lazy)
                assert got == list(range(1, len(got) + 1))
                assert UNREAD <= len(got) < 3000
                publisher("x", {})
                assert await asyncio.to_thread(numbers_of, lazy) == [30_001]

    asyncio.run(run())


def resident_mib_of_ours() -> float:
    import os

    return resident_mib(os.getpid())


def heard_by(one: Subscriber, most: int) -> int:
    count = 0
    while count < most and one.next() is not None:
        count += 1
    return count


def numbers_of(lazy: Bytes) -> list[int]:
    """Of all that it can read now."""
    text = lazy.rest(0.5)
    return [int(one.split(b",")[0]) for one in text.split(b'"seq":')[1:]]


def test_the_next_number_shows_what_was_missed() -> None:
    gaps = Gaps({"state": 4})

    def event(name: str, nth: int) -> wire_events.Published:
        return wire_events.Published(name=name, seq=99, nth=nth, time=0, data={})

    assert [gaps.before(event("state", nth)) for nth in (4, 5, 6, 9, 10)] == [0, 0, 0, 2, 0]
    assert [gaps.before(event("muted", nth)) for nth in (1, 3)] == [0, 1]


def test_too_many_subscriptions_end_all_connections_and_the_good_ones_come_back(folder: Path) -> None:
    async def run() -> None:
        async with publishing(folder / "events.sock", most_topics=50) as publisher:
            with Bytes(folder / "events.sock", SUBSCRIBER) as greedy, Subscriber(folder / "events.sock", "x") as good:
                await asyncio.to_thread(good.welcome)
                publisher("x", {})
                assert (await asyncio.to_thread(good.next) or ("",))[0] == "x"
                for number in range(60):
                    greedy.say(b"\1topic-%d" % number)
                assert await asyncio.to_thread(greedy.gone)
                assert (await asyncio.to_thread(good.welcome))["counts"] == {"x": 1}
                publisher("x", {})
                found = await asyncio.to_thread(good.next)
                assert found is not None
                assert found[1]["data"]["nth"] == 2

    asyncio.run(run())


def test_a_long_subscription_and_one_subscriber_too_many_are_turned_away(folder: Path) -> None:
    async def run() -> None:
        path = folder / "events.sock"
        async with publishing(path, most_subscribers=2):
            with Bytes(path, SUBSCRIBER) as one, Bytes(path, SUBSCRIBER), Bytes(path, b"") as third:
                assert await asyncio.to_thread(third.gone)
                one.say(b"\1" + b"x" * 70)
                assert await asyncio.to_thread(one.gone)

    asyncio.run(run())


@pytest.mark.parametrize("data", [{"text": "x" * 300_000}, {"text": "\udc80"}], ids=["too large", "no text"])
def test_an_event_that_cannot_be_published_is_a_gap_and_no_error(folder: Path, data: dict[str, Any]) -> None:
    async def run() -> None:
        async with publishing(folder / "events.sock") as publisher:
            with Subscriber(folder / "events.sock", "x") as one:
                await asyncio.to_thread(one.welcome)
                publisher("x", data)
                publisher("x", {})
                found = await asyncio.to_thread(one.next)
                assert found is not None
                assert found[1]["data"]["seq"] == 2

    asyncio.run(run())


# --- the vocabulary -------------------------------------------------------------------------------------------------
def emitted() -> list[tuple[str, str, set[str] | None]]:
    """Where something is emitted in our sources: the place, the name, and its fields (None: not written there)."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            of_query = path.name.startswith("pipeline") and called in ("tell", "tell_now")
            if of_query and isinstance(node.args[0], ast.Constant):
                keys = {keyword.arg for keyword in node.keywords}
                whole = None if None in keys else {"query_id", *(key for key in keys if key)}
                found.append((f"{path.name}:{node.lineno}", str(node.args[0].value), whole))
            if len(node.args) != 2:
                continue
            name, data = node.args
            if called not in ("emit", "_emit", "_tell") or not isinstance(name, ast.Constant):
                continue
            fields = None
            if isinstance(data, ast.Dict) and all(isinstance(key, ast.Constant) for key in data.keys):
                fields = {str(key.value) for key in data.keys if isinstance(key, ast.Constant)}
            found.append((f"{path.name}:{node.lineno}", str(name.value), fields))
    return found


def test_all_that_is_emitted_is_in_the_vocabulary() -> None:
    found = emitted()
    assert len(found) > 35
    for place, name, fields in found:
        assert name in wire_events.EVENTS, f"{place}: {name} is missing in wire_events"
        kinds = {one.encode_name: one.required for one in msgspec.structs.fields(wire_events.EVENTS[name])}
        if fields is not None:
            assert fields <= kinds.keys(), f"{place}: {name} has fields that wire_events does not know"
            assert {field for field, required in kinds.items() if required} <= fields, f"{place}: {name} lacks fields"
