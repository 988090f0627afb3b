"""The blocking client: what it raises when there is no daemon, a mute one, or one that goes away."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assistant.api import framing, wire
from assistant.api.client import NOT_ANSWERING, Client, found
from assistant.errors import ConfigError, NotRunning, UsageError
from tests.api.backend import Backend, served
from tests.api.talking import serve, with_client


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


def test_a_daemon_that_does_not_answer_is_told_from_none(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mute:
        mute.bind(str(folder / "control.sock"))
        mute.listen(5)
        started = time.monotonic()
        with pytest.raises(NotRunning, match="did not answer") as caught:
            found(folder, timeout_s=0.2)
        assert (caught.value.code, caught.value.exit_code) == (NOT_ANSWERING, 3)
        with Client(folder) as client, pytest.raises(NotRunning, match="did not answer"):
            client.ping(0.1)
        assert time.monotonic() - started < 2
    assert found(folder) is None


def test_a_daemon_that_goes_while_it_is_asked_is_none(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    mute = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mute.bind(str(folder / "control.sock"))
    mute.listen(5)
    leaving = threading.Timer(0.3, mute.close)
    leaving.start()
    started = time.monotonic()
    assert found(folder) is None
    assert time.monotonic() - started < 4
    leaving.join()


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


def test_a_client_that_is_closed_says_so(folder: Path) -> None:
    def use(client: Client) -> None:
        following = client.events()
        asked = client.ask(wire.Ask(text="wait"))
        replies = client.replies(asked)
        next(replies)
        client.close()
        client.close()
        later: list[Callable[[], object]] = [
            client.status,
            client.ping,
            client.events,
            lambda: client.ask(wire.Ask(text="hello")),
            lambda: list(replies),
            lambda: list(following),
            lambda: list(client.handle(["HassTurnOn"])),
        ]
        for what in later:
            with pytest.raises(UsageError) as caught:
                what()
            assert caught.value.code == "client-closed"

    async def scenario(backend: Backend) -> None:
        await with_client(folder, use)

    serve(folder, scenario)


def test_what_cannot_be_sent_is_refused_before_it_is(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        with pytest.raises(UsageError, match="31457280"):
            await with_client(folder, lambda client: client.ask(wire.Ask(), bytes(framing.MAX_PCM_BYTES + 2)))

    serve(folder, scenario)
