"""Clients that send noise, flood, vanish or never read: each message is answered, and the server lives on."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from assistant.api import wire
from tests.api.backend import Backend
from tests.api.talking import Raw, header, serve, with_client


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
