"""The command line at a daemon that says nothing: while it works, and because it stands still."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest
import zmq

from assistant.api import framing, sockets, wire
from assistant.api.endpoint import Endpoint, Limits, Peer
from assistant.errors import AssistantError
from assistant.memory_orchestrator.ledger import SHM, LedgerWriter, segment_name
from assistant.paths import daemon_owner
from tests.api.backend import Backend, served
from tests.api.daemon_process import Place


@pytest.fixture
def place() -> Iterator[Place]:
    with Place() as one:
        yield one


async def soon(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.02)


async def ended(process: subprocess.Popen[str]) -> tuple[float, str, str]:
    """Seconds until it ended, its stdout and stderr."""
    started = time.monotonic()
    out, err = await asyncio.to_thread(process.communicate, timeout=15)
    return time.monotonic() - started, out, err


def with_backend(place: Place, scenario: Callable[[Backend], Awaitable[None]]) -> None:
    async def run() -> None:
        async with served(place.runtime) as backend:
            await scenario(backend)

    asyncio.run(run())


def test_an_interruption_stops_a_query_of_which_nothing_is_heard(place: Place) -> None:
    async def scenario(backend: Backend) -> None:
        process = place.start("ask", "wait", "--no-speech", "--json")
        await soon(lambda: backend.order == ["wait"])
        await asyncio.sleep(0.3)
        process.send_signal(signal.SIGINT)
        took, out, err = await ended(process)
        assert (process.returncode, took < 1.5) == (130, True), (took, err)
        assert json.loads(out)["outcome"] == "cancelled"
        assert backend.cancelled == ["wait"]

    with_backend(place, scenario)


def test_a_command_line_that_is_killed_leaves_no_silent_query_running(place: Place) -> None:
    async def scenario(backend: Backend) -> None:
        process = place.start("ask", "wait", "--no-speech")
        await soon(lambda: backend.order == ["wait"])
        process.kill()
        await soon(lambda: backend.cancelled == ["wait"])

    with_backend(place, scenario)


def test_an_interruption_before_anything_was_accepted_hangs_up(place: Place) -> None:
    """What has hung up is cancelled; see the tests of the server."""
    limits = Limits(framing.MAX_FRAME_BYTES, framing.MAX_HEADER_BYTES, framing.MAX_PCM_BYTES, framing.MAX_FRAMES)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    async def run() -> None:
        folder = sockets.prepared(place.runtime)
        asked: list[Peer] = []

        def pong(peer: Peer, frames: list[bytes], refused: AssistantError | None) -> None:
            reply = wire.Pong(version="0", pid=os.getpid())
            controls.send_now(peer, framing.encode(reply, parent=framing.id_of(frames)))

        def mute(peer: Peer, frames: list[bytes], refused: AssistantError | None) -> None:
            asked.append(peer)

        controls = Endpoint(context, folder / sockets.CONTROL, limits, pong)
        commands = Endpoint(context, folder / sockets.COMMAND, limits, mute)
        await controls.open()
        await commands.open()
        process = place.start("ask", "hello", "--no-speech")
        await soon(lambda: len(asked) == 1)
        process.send_signal(signal.SIGINT)
        took, _, err = await ended(process)
        assert (process.returncode, took < 2.5) == (130, True), (took, err)
        assert "before the query began" in err
        await asyncio.wait_for(asked[0].left, 1)
        await controls.close()
        await commands.close()
        context.term()

    asyncio.run(run())


def test_a_daemon_that_stands_still_is_told_and_no_second_pipeline_starts(place: Place) -> None:
    daemon = place.daemon()
    daemon.send_signal(signal.SIGSTOP)
    try:
        status = place.start("status")
        told = place.json("ask", "what time is it", "--no-speech", code=3)["error"]
        assert told["code"] == "not-answering"
        for word in ("did not answer", "--standalone", str(place.runtime)):
            assert word in told["message"]
        _, words = status.communicate(timeout=10)
        assert (status.returncode, "did not answer" in words) == (3, True), words
    finally:
        daemon.send_signal(signal.SIGCONT)


# --- the ledger of another version ----------------------------------------------------------------------------------
@pytest.mark.parametrize("verb", [["ps"], ["top", "--count", "1"]])
@pytest.mark.parametrize("kind", ["later version", "other format", "shorter"])
def test_a_daemon_of_another_version_is_not_taken_for_none(place: Place, verb: list[str], kind: str) -> None:
    name = segment_name(daemon_owner(place.runtime))
    ledger = LedgerWriter(name)
    try:
        with (SHM / name).open("r+b") as file:
            match kind:
                case "later version":
                    file.seek(8)
                    file.write((99).to_bytes(4, "little"))
                case "other format":
                    file.write(b"VALEDGR7")
                case _:
                    file.seek(8)
                    file.write((1).to_bytes(4, "little"))
                    file.truncate(1000)
        told = place.json(*verb, code=1)["error"]
        assert told["code"] == "other-version"
        assert f"process {os.getpid()}" in told["message"]
        assert "assistant run" in told["message"]
    finally:
        ledger.close()


KILLED = """
import os, signal, sys
from assistant.memory_orchestrator.ledger import SHM, LedgerWriter
writer = LedgerWriter(sys.argv[1])
with (SHM / sys.argv[1]).open("r+b") as file:
    file.seek(8)
    file.write((99).to_bytes(4, "little"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_ledger_of_another_version_whose_writer_has_gone_is_no_daemon(place: Place) -> None:
    name = segment_name(daemon_owner(place.runtime))
    subprocess.run([sys.executable, "-c", KILLED, name], check=False)
    try:
        assert (SHM / name).exists()
        assert place.json("ps", code=3)["error"]["code"] == "not-running"
    finally:
        (SHM / name).unlink()
