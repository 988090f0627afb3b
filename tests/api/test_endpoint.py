"""One socket in the loop: nothing that arrived is left behind, and who has left is known."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import zmq

from assistant.api import sockets
from assistant.api.endpoint import Endpoint, Limits, Peer, PeerGone
from assistant.errors import AssistantError
from tests.api.talking import Bytes, Raw

LIMITS = Limits(frame_bytes=1000, header_bytes=100, body_bytes=500, frames=3)


class Heard:
    def __init__(self) -> None:
        self.messages: list[tuple[Peer, list[bytes], AssistantError | None]] = []

    def __call__(self, peer: Peer, frames: list[bytes], refused: AssistantError | None) -> None:
        self.messages.append((peer, frames, refused))
        if frames == [b"crash"]:
            raise RuntimeError("a bug")

    async def until(self, count: int) -> None:
        async with asyncio.timeout(2):
            while len(self.messages) < count:
                await asyncio.sleep(0.005)


def with_endpoint(folder: Path, scenario: Callable[[Endpoint, Heard], Awaitable[None]], most: int = 100) -> None:
    async def run() -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        heard = Heard()
        endpoint = Endpoint(context, sockets.prepared(folder) / sockets.COMMAND, LIMITS, heard, most)
        await endpoint.open()
        try:
            await scenario(endpoint, heard)
        finally:
            await endpoint.close()
            context.term()

    asyncio.run(run())


def test_what_arrives_while_something_is_sent_is_heard(folder: Path) -> None:
    async def scenario(endpoint: Endpoint, heard: Heard) -> None:
        with Raw(folder, "command") as raw:
            raw.send(b"one")
            await heard.until(1)
            await asyncio.sleep(0.05)
            raw.send(b"two")
            time.sleep(0.05)  # noqa: ASYNC251 - it arrives while the loop does something else
            endpoint.send_now(heard.messages[0][0], [b"answer"])  # swallows the descriptor's sign
            await heard.until(2)
            assert heard.messages[1][1] == [b"two"]

    with_endpoint(folder, scenario)


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([b"a", bytes(501)], "500 bytes"),
        ([b"a", bytes(300), bytes(300)], "500 bytes"),
        ([b"a", b"", b"", b""], "3 frames"),
        ([bytes(101)], "101 bytes"),
    ],
)
def test_of_what_is_too_large_the_header_alone_is_kept(folder: Path, frames: list[bytes], words: str) -> None:
    async def scenario(endpoint: Endpoint, heard: Heard) -> None:
        with Raw(folder, "command") as raw:
            raw.send(*frames)
            raw.send(b"b", bytes(500))
            await heard.until(2)
        _, kept, refused = heard.messages[0]
        assert kept == ([b"a"] if frames[0] == b"a" else [])
        assert refused is not None
        assert (refused.code, words in refused.message) == ("bad-message", True)
        assert heard.messages[1][1:] == ([b"b", bytes(500)], None)

    with_endpoint(folder, scenario)


def test_an_error_does_not_end_the_hearing(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(endpoint: Endpoint, heard: Heard) -> None:
        with Raw(folder, "command") as raw:
            raw.send(b"crash")
            raw.send(b"next")
            await heard.until(2)

    with_endpoint(folder, scenario)
    assert "a bug" in caplog.text


def test_who_leaves_is_known_at_once_and_the_next_at_its_descriptor_is_another(folder: Path) -> None:
    async def scenario(endpoint: Endpoint, heard: Heard) -> None:
        for number in range(20):
            with Bytes(folder / "command.sock") as raw:
                raw.say(b"hello")
                await heard.until(number + 1)
                peer = heard.messages[-1][0]
                assert not peer.left.done()
                endpoint.send_now(peer, [b"answer"])
            await asyncio.wait_for(asyncio.shield(peer.left), 1)
            with pytest.raises(PeerGone):
                endpoint.send_now(peer, [b"answer"])

    with_endpoint(folder, scenario)


def test_connections_beyond_the_bound_are_closed(folder: Path) -> None:
    async def scenario(endpoint: Endpoint, heard: Heard) -> None:
        with Bytes(folder / "command.sock") as first, Bytes(folder / "command.sock") as second:
            with Bytes(folder / "command.sock", b"\xff") as third:
                assert await asyncio.to_thread(third.gone)
            first.say(b"1")
            second.say(b"2")
            await heard.until(2)

    with_endpoint(folder, scenario, most=2)
