"""A real daemon at TCP, keys made by `assistant config keys`, and our own client; events for the network."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tomllib
from pathlib import Path

import pytest
import zmq

from assistant.api import security, sockets
from assistant.api.addresses import Remote
from assistant.api.client import Client
from assistant.api.endpoint import Gate
from assistant.api.events import Publisher
from assistant.api.rights import Right
from assistant.api.security import Guard
from assistant.errors import NotRunning, UsageError
from tests.api.daemon_process import Place, until
from tests.api.network import Distant, House, free_port


def remote(place: Place, port: int, name: str) -> Remote:
    theirs = tomllib.loads((place.folder / f"config/assistant/keys/outgoing/{name}.key").read_text())
    names = (sockets.COMMAND, sockets.CONTROL, sockets.EVENTS)
    return Remote(
        urls={one: f"tcp://127.0.0.1:{port + at}" for at, one in enumerate(names)},
        server_key=theirs["server_public_key"], public_key=theirs["public_key"], secret_key=theirs["secret_key"],
    )  # fmt: skip


def test_our_client_from_the_network_and_a_flood_of_strangers() -> None:
    port = free_port()
    with Place() as place:
        place.run("config", "keys", "--client", "phone", "--right", "observe")
        place.run("config", "keys", "--client", "boss", "--right", "admin")
        daemon = place.daemon("--set", f"api.tcp=tcp://127.0.0.1:{port}")
        with Client(address=remote(place, port, "phone")) as phone:
            assert phone.ping().version
            assert phone.status().queries == 0
            with pytest.raises(UsageError, match="needs the right `speak`") as caught:
                phone.say("hello")
            assert caught.value.code == "forbidden"
            with pytest.raises(UsageError, match="needs the right `admin`"):
                phone.shutdown()
        with contextlib.ExitStack() as strangers:
            for number in range(300):
                one = strangers.enter_context(socket.create_connection(("127.0.0.1", port + number % 3), timeout=3))
                with contextlib.suppress(OSError):
                    one.sendall(os.urandom(40))
            with Client(place.runtime) as local:
                pid = local.ping().pid
                assert until(lambda: len(os.listdir(f"/proc/{pid}/fd")) < 150)
        assert place.log().count("from the network refused") == 1
        (place.folder / "config/assistant/keys/clients/phone.toml").unlink()
        where = remote(place, port, "phone")
        with Client(address=where) as phone:
            for silence in (lambda: phone.ping(timeout_s=0.5), phone.events):
                with pytest.raises(NotRunning) as unanswered:
                    silence()
                told = unanswered.value.message
                assert "socket open" not in told
                for word in (
                    f"tcp://127.0.0.1:{port + 1}",
                    where.public_key,
                    "list",
                    "firewall",
                    f"{port},",
                ):
                    assert word in told
        with Client(address=remote(place, port, "boss")) as boss:
            boss.shutdown()
        daemon.wait(5)
        assert daemon.returncode == 0


def test_a_subscriber_with_too_many_topics_does_not_take_the_events_from_the_network_away(folder: Path) -> None:
    house = House(folder)
    pair = house.client("eyes", Right.OBSERVE)

    async def scenario() -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        guard = Guard(context, security.network(("127.0.0.1", house.port), house.keys))
        guard.open()
        path = sockets.prepared(house.runtime) / sockets.EVENTS
        publisher = Publisher(context, path, most_topics=20, gate=Gate(guard, security.Place.EVENTS))
        await publisher.open()
        with Distant(house, security.Place.EVENTS, pair, kind=zmq.SUB) as greedy:
            for number in range(30):
                greedy.socket.setsockopt(zmq.SUBSCRIBE, b"t%d" % number)
            await asyncio.sleep(0.3)
        with Distant(house, security.Place.EVENTS, pair, kind=zmq.SUB) as eyes:
            eyes.socket.setsockopt(zmq.SUBSCRIBE, b"state")
            await asyncio.sleep(0.5)
            publisher("state", {"state": "idle"})
            assert await asyncio.to_thread(eyes.socket.poll, 3000)
            assert eyes.socket.recv_multipart()[0] == b"state"
        await publisher.close()
        guard.close()
        context.term()

    asyncio.run(scenario())
