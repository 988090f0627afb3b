"""Clients that send noise, flood, vanish or never read: each message is answered, and the server lives on."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from pathlib import Path

import pytest

from assistant.api import wire
from assistant.errors import UsageError
from tests.api.backend import Backend
from tests.api.talking import GREETING, Bytes, Raw, header, serve, with_client


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


def test_a_message_that_is_too_large_is_refused_and_its_sender_goes_on(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        with Raw(folder, "command") as raw, Raw(folder, "control") as small:
            raw.send(header("ask"), *[bytes(8 * 2**20)] * 4)
            raw.send(header("ask"), *[bytes(2**18)] * 40)
            raw.send(header("ask") + bytes(65 * 1024))
            raw.send(header("ask", {"text": "hello"}))
            small.send(header("ping"), bytes(40 * 1024), bytes(40 * 1024))
            small.send(header("ping"))
            for parent, words in (("i", "31457280"), ("i", "32 frames"), (None, "65536")):
                reply = await asyncio.to_thread(raw.reply) or {}
                assert (reply["parent"], reply["data"]["code"]) == (parent, "bad-message")
                assert words in reply["data"]["message"]
            assert (await asyncio.to_thread(raw.reply) or {})["type"] == "accepted"
            kinds = [(await asyncio.to_thread(small.reply) or {})["type"] for _ in range(2)]
            assert kinds == ["error", "pong"]
            assert backend.heard == []

    serve(folder, scenario)


@pytest.mark.parametrize(("socket", "size"), [("command", 8 * 2**20 + 1), ("control", 64 * 1024 + 1)])
def test_a_frame_that_is_too_large_ends_its_connection_alone(folder: Path, socket: str, size: int) -> None:
    async def scenario(backend: Backend) -> None:
        with Bytes(folder / f"{socket}.sock") as raw:
            raw.begin(size)
            assert await asyncio.to_thread(raw.gone)
        assert (await with_client(folder, lambda client: client.ping())).pid

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
        await asyncio.sleep(0.2)
        assert backend.cancelled == backend.order  # the others never began
        assert len(backend.order) > 5, "a place in the line was not given back"
        sent = await with_client(folder, lambda client: list(client.replies(client.ask(wire.Ask(text="hello")))))
        assert sent[-1][0].outcome == "answered"

    serve(folder, scenario)


def test_a_caller_that_vanishes_cancels_its_queries_while_they_are_silent(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        with Raw(folder, "command") as raw:
            raw.send(header("ask", {"text": "wait 1"}))
            raw.send(header("ask", {"text": "wait 2"}))
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        assert (backend.order, backend.cancelled) == (["wait 1"], ["wait 1"])
        with Raw(folder, "command") as other:
            other.send(header("ask", {"text": "hello"}))
            await asyncio.sleep(0.2)
        assert backend.order == ["wait 1", "hello"]

    serve(folder, scenario)


def test_a_caller_that_leaves_before_it_is_heard_leaves_nothing_running(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        with Bytes(folder / "command.sock") as raw:
            raw.say(header("ask", {"text": "wait"}))
        time.sleep(0.1)  # noqa: ASYNC251 - the loop stands still meanwhile: all of it arrives at once
        await asyncio.sleep(0.1)
        assert backend.cancelled == backend.order
        with Raw(folder, "command") as other:
            other.send(header("ask", {"text": "hello"}))
            await asyncio.sleep(0.1)
        assert backend.order[-1] == "hello"

    serve(folder, scenario)


def test_a_caller_that_does_not_read_holds_up_nobody(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        with Bytes(folder / "control.sock") as lazy, Raw(folder, "control") as fast:

            def flood() -> None:
                for _ in range(10_000):
                    lazy.say(header("status"))

            flooding = asyncio.create_task(asyncio.to_thread(flood))
            for _ in range(20):
                fast.send(header("ping"))
                assert (await asyncio.to_thread(fast.reply) or {})["type"] == "pong"
            await flooding  # it is heard to the end, and its replies are lost
            fast.send(header("ping"))
            assert (await asyncio.to_thread(fast.reply) or {})["type"] == "pong"

    serve(folder, scenario)


@pytest.mark.parametrize("socket", ["command", "control"])
def test_an_error_of_ours_is_an_answer_too(folder: Path, socket: str) -> None:
    async def scenario(backend: Backend) -> None:
        backend.broken = True
        bad = header("status") if socket == "control" else header("load", {"stage": "llm"})
        with Raw(folder, socket) as raw:
            for _ in range(3):
                raw.send(bad)
            for _ in range(5):
                raw.send(header("nothing"))
            replies = [await asyncio.to_thread(raw.reply) for _ in range(8)]
        codes = [reply["data"]["code"] for reply in replies if reply]
        assert sorted(codes) == ["internal"] * 3 + ["unknown-command"] * 5
        assert all(reply and reply["parent"] == "i" for reply in replies)

    serve(folder, scenario)


def test_what_is_no_zeromq_is_hung_up_on(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        with Bytes(
            folder / "control.sock", b"GET / HTTP/1.1\r\n\r\n"
        ):  # which libzmq keeps for an old dialect of its own
            for words in (b"\xff" + bytes(63), GREETING + b"\x00\x01a"):
                with await asyncio.to_thread(Bytes, folder / "control.sock", words) as raw:
                    assert await asyncio.to_thread(raw.gone)
        assert (await with_client(folder, lambda client: client.ping())).pid

    serve(folder, scenario)


def test_an_error_that_was_told_holds_its_message_no_longer(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        gc.collect()
        gc.disable()  # which looks when many objects were made, not when they are large
        try:
            with Raw(folder, "command") as raw:
                raw.send(header("nothing"), bytes(2**20))
                assert (await asyncio.to_thread(raw.reply) or {})["type"] == "error"
            errors = [one for one in gc.get_objects() if isinstance(one, UsageError)]
            assert "unknown-command" not in [one.code for one in errors]
        finally:
            gc.enable()

    serve(folder, scenario)
