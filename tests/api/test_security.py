"""Who comes in by TCP and who does not, with real sockets; rights, and what becomes of them when a key is revoked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import zmq

from assistant.api import framing, keys, security, sockets, wire
from assistant.api.callers import MOST_EACH
from assistant.api.endpoint import Endpoint, Gate, Limits, Peer
from assistant.api.rights import Right
from assistant.api.security import Guard, Place, Refusals
from assistant.errors import AssistantError, ConfigError
from tests.api.backend import Backend, SpeakingVoice
from tests.api.network import Distant, House
from tests.api.talking import Raw, header


@pytest.fixture
def house(folder: Path) -> House:
    return House(folder)


def stranger() -> keys.Keys:
    return keys.Keys(*(half.decode() for half in zmq.curve_keypair()))


# --- who comes in -----------------------------------------------------------------------------------------------------
def test_a_listed_key_comes_in_and_the_sockets_of_this_machine_need_none(house: House) -> None:
    pair = house.client("phone", Right.OBSERVE)

    async def scenario(backend: Backend) -> None:
        with Distant(house, Place.CONTROL, pair) as phone:
            assert (await phone.asked("status") or {})["type"] == "status"
        with Raw(house.runtime, "control") as local:
            local.send(header("shutdown"))
            assert (await asyncio.to_thread(local.reply) or {})["type"] == "stopping"

    house.run(scenario)


@pytest.mark.parametrize("place", Place)
@pytest.mark.parametrize("who", ["an unknown key", "a key for another server", "no key", "a password"])
def test_nobody_else_gets_a_word(house: House, place: Place, who: str, caplog: pytest.LogCaptureFixture) -> None:
    pair = house.client("phone", *Right)
    kind = zmq.SUB if place is Place.EVENTS else zmq.DEALER
    known: dict[str, tuple[keys.Keys | None, str | None]] = {
        "an unknown key": (stranger(), None),
        "a key for another server": (pair, stranger().public),
    }

    async def scenario(backend: Backend) -> None:
        with Distant(house, place, *known.get(who, (None, None)), kind=kind) as one:
            if who == "a password":
                one.socket.disconnect(f"tcp://127.0.0.1:{house.port + place}")
                one.socket.setsockopt(zmq.PLAIN_USERNAME, b"phone")
                one.socket.setsockopt(zmq.PLAIN_PASSWORD, b"phone")
                one.socket.connect(f"tcp://127.0.0.1:{house.port + place}")
            if place is Place.EVENTS:
                one.socket.setsockopt(zmq.SUBSCRIBE, b"")
            else:
                one.send("ping" if place is Place.CONTROL else "ask", {})
            assert await one.reply(0.4) is None
        with Raw(house.runtime, "control") as local:
            local.send(header("ping"))
            assert (await asyncio.to_thread(local.reply) or {})["type"] == "pong"

    house.run(scenario)
    lines = [record.message for record in caplog.records if "refused" in record.message]
    assert len(lines) == 1  # it tried again and again
    # whoever leaves at once may have no address any more
    assert any(where in lines[0] for where in ("127.0.0.1", "somebody who has left"))
    assert ("127.0.0.1: unknown key" in lines[0]) == (who == "an unknown key")


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        b"\x01\x00\x08\x00{}{}{}{}",  # ZeroMQ's protocol as it was before it had security
        b"\xff" + bytes(8) + b"\x7f\x01\x05\x00\x00",  # and its second version
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        os.urandom(200),
    ],
    ids=["http", "zmtp1", "zmtp2", "tls", "noise"],
)
def test_plain_text_gets_no_more_than_the_greeting(house: House, said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    house.client("phone", *Right)

    def talk() -> bytes:
        heard = b""
        with socket.create_connection(("127.0.0.1", house.port + 1)) as one:
            one.settimeout(1)
            one.sendall(said)
            with contextlib.suppress(OSError):
                while more := one.recv(1000):
                    heard += more
        return heard

    async def scenario(backend: Backend) -> None:
        heard = await asyncio.to_thread(talk)
        assert len(heard) <= 64
        assert b"{" not in heard
        await asyncio.sleep(0.05)

    house.run(scenario)
    assert "from the network refused" in caplog.text


def test_a_key_that_is_revoked_loses_its_rights_and_its_connection(house: House) -> None:
    pair = house.client("phone", *Right)
    other = house.client("tablet", *Right)

    async def scenario(backend: Backend) -> None:
        with (
            Distant(house, Place.COMMAND, pair) as asking,
            Distant(house, Place.CONTROL, pair) as phone,
            Distant(house, Place.CONTROL, other) as tablet,
        ):
            asking.send("ask", {"text": "wait"})
            assert (await asking.until("started"))["type"] == "started"
            assert (await phone.asked("ping") or {})["type"] == "pong"
            assert (await tablet.asked("ping") or {})["type"] == "pong"
            house.revoke("phone")
            reply = await phone.asked("shutdown", timeout_s=1)  # by the connection that it has
            assert reply is None or reply["data"]["code"] == "forbidden"
            async with asyncio.timeout(3):
                while not backend.cancelled:  # what it asked ends with its connection
                    await asyncio.sleep(0.02)
            assert await phone.asked("ping", timeout_s=0.5) is None  # by a new one
            assert (await tablet.asked("ping") or {})["type"] == "pong"

    house.run(scenario)


def test_rights_change_at_once_and_a_new_client_comes_in(house: House) -> None:
    pair = house.client("phone", Right.SPEAK)
    path = house.keys / keys.CLIENTS / "phone.toml"

    async def scenario(backend: Backend) -> None:
        with Distant(house, Place.CONTROL, pair) as phone:
            assert ((await phone.asked("status") or {})["data"])["code"] == "forbidden"
            path.write_text(path.read_text().replace('"speak"', '"observe"'))
            assert (await phone.asked("status") or {})["type"] == "status"
        with Distant(house, Place.CONTROL, house.client("late", Right.OBSERVE)) as late:
            assert (await late.asked("status") or {})["type"] == "status"

    house.run(scenario)


# --- events -----------------------------------------------------------------------------------------------------------
def test_events_are_for_those_who_may_observe_and_end_with_that_right(house: House) -> None:
    pairs = {name: house.client(name, right) for name, right in (("eyes", Right.OBSERVE), ("mouth", Right.SPEAK))}
    path = house.keys / keys.CLIENTS / "eyes.toml"

    async def scenario(backend: Backend) -> None:
        with (
            Distant(house, Place.EVENTS, pairs["eyes"], kind=zmq.SUB) as eyes,
            Distant(house, Place.EVENTS, pairs["mouth"], kind=zmq.SUB) as mouth,
            Raw(house.runtime, "command") as local,
        ):
            for one in (eyes, mouth):
                one.socket.setsockopt(zmq.SUBSCRIBE, b"run-")
            await asyncio.sleep(0.3)
            local.send(header("ask", {"text": "hello", "stream": False}))
            assert await asyncio.to_thread(eyes.socket.poll, 3000)
            assert eyes.socket.recv_multipart()[0] == b"run-start"
            assert await asyncio.to_thread(eyes.socket.poll, 3000)
            assert eyes.socket.recv_multipart()[0] == b"run-end"
            path.write_text('public_key = "{}"\nrights = ["speak"]\n'.format(pairs["eyes"].public))
            await asyncio.sleep(1.3)
            local.send(header("ask", {"text": "hello", "stream": False}))
            assert not await asyncio.to_thread(eyes.socket.poll, 300)
            assert not mouth.socket.poll(0)

    house.run(scenario)


def test_a_connection_that_was_made_in_time_subscribes_to_nothing_afterwards(house: House) -> None:
    pair = house.client("eyes", Right.OBSERVE)
    path = house.keys / keys.CLIENTS / "eyes.toml"

    async def scenario(backend: Backend) -> None:
        with (
            Distant(house, Place.EVENTS, pair, kind=zmq.SUB) as eyes,
            Raw(house.runtime, "command") as local,
        ):
            await asyncio.sleep(0.3)
            path.write_text(path.read_text().replace('"observe"', '"speak"'))
            eyes.socket.setsockopt(zmq.SUBSCRIBE, b"")
            await asyncio.sleep(0.2)
            local.send(header("ask", {"text": "hello", "stream": False}))
            assert not await asyncio.to_thread(eyes.socket.poll, 500)

    house.run(scenario)


@pytest.mark.parametrize("how", ["another right", "no file"])
def test_a_right_that_came_and_went_between_two_looks_at_the_list_is_lost(house: House, how: str) -> None:
    house.client("other", Right.SPEAK)
    path = house.keys / keys.CLIENTS / "eyes.toml"

    async def scenario(backend: Backend) -> None:
        pair = house.client("eyes", Right.OBSERVE, Right.LISTEN)
        with (
            Distant(house, Place.EVENTS, pair, kind=zmq.SUB) as eyes,
            Distant(house, Place.CONTROL, pair) as control,
            Raw(house.runtime, "command") as local,
        ):
            eyes.socket.setsockopt(zmq.SUBSCRIBE, b"run-")
            assert (await control.asked("status") or {})["type"] == "status"
            await asyncio.sleep(0.25)
            local.send(header("ask", {"text": "hello", "stream": False}))
            assert await asyncio.to_thread(eyes.socket.poll, 3000)  # it does hear
            if how == "another right":
                path.write_text(path.read_text().replace('"observe"', '"speak"'))
            else:
                path.unlink()
            await asyncio.sleep(1.3)
            while eyes.socket.poll(0):
                eyes.socket.recv_multipart()
            local.send(header("ask", {"text": "hello", "stream": False}))
            assert not await asyncio.to_thread(eyes.socket.poll, 500)

    house.run(scenario)


def test_what_was_begun_with_a_right_ends_with_it(house: House) -> None:
    """An intent handler is asked without a message of its own."""
    pair = house.client("home", Right.ADMIN, Right.SPEAK)
    path = house.keys / keys.CLIENTS / "home.toml"

    async def scenario(backend: Backend) -> None:
        with Distant(house, Place.COMMAND, pair) as home:
            assert (await home.asked("register", {"intents": ["HassTurnOn"]}) or {})["type"] == "registered"
            home.send("ask", {"text": "wait"})
            assert (await home.until("started"))["type"] == "started"
            path.write_text(path.read_text().replace('"admin", ', ""))
            async with asyncio.timeout(3):
                while not backend.cancelled:  # the connection ended
                    await asyncio.sleep(0.02)
            home.send("register", {"intents": []})
            assert (await home.until("registered"))["data"]["code"] == "forbidden"

    house.run(scenario)


# --- what one may do --------------------------------------------------------------------------------------------------
def test_own_queries_may_be_cancelled_by_whoever_asked_them(house: House) -> None:
    pairs = {name: house.client(name, Right.SPEAK) for name in ("phone", "tablet")}
    boss = house.client("boss", Right.ADMIN)

    async def scenario(backend: Backend) -> None:
        with (
            Distant(house, Place.COMMAND, pairs["phone"]) as asking,
            Distant(house, Place.CONTROL, pairs["phone"]) as phone,
            Distant(house, Place.CONTROL, pairs["tablet"]) as tablet,
            Distant(house, Place.CONTROL, boss) as admin,
        ):
            for last in (phone, admin):
                asking.send("ask", {"text": "wait", "stream": False})
                query = {"query_id": (await asking.until("started"))["data"]["query_id"]}
                for data in (query, {}):
                    assert (await tablet.asked("cancel", data) or {})["data"]["code"] == "forbidden"
                assert (await phone.asked("cancel") or {})["data"]["code"] == "forbidden"
                assert (await last.asked("cancel", query) or {})["type"] == "cancelling"
                assert (await asking.until("report"))["data"]["outcome"] == "cancelled"
        assert backend.cancelled == ["wait", "wait"]

    house.run(scenario)


def test_what_is_forbidden_is_not_done(house: House) -> None:
    pair = house.client("phone", Right.OBSERVE)

    async def scenario(backend: Backend) -> None:
        backend.speaking = SpeakingVoice()
        with Distant(house, Place.COMMAND, pair) as commands, Distant(house, Place.CONTROL, pair) as controls:
            for kind, said in (("ask", {"text": "hello"}), ("say", {"text": "hello"}), ("load", {"stage": "llm"})):
                reply = await commands.asked(kind, said) or {}
                assert (reply["type"], reply["data"]["code"], reply["data"]["exit_code"]) == ("error", "forbidden", 2)
            orders: dict[str, dict[str, object]] = {"listen": {}, "mute": {"on": True}, "volume": {"percent": 5}}
            for kind, data in orders.items():
                assert (await controls.asked(kind, data) or {})["data"]["code"] == "forbidden"
        assert (backend.order, backend.loaded, backend.speaking.orders) == ([], {}, [])
        assert (backend.speaking.muted, backend.speaking.percent) == (False, 100)

    house.run(scenario)


def test_a_large_recording_comes_through(house: House) -> None:
    pair = house.client("phone", Right.SPEAK)

    async def scenario(backend: Backend) -> None:
        sound = os.urandom(framing.MAX_PCM_BYTES)
        with Distant(house, Place.COMMAND, pair) as phone:
            _, *pieces = framing.encode(wire.Ask(), pcm=sound)
            assert max(map(len, pieces)) == security.FRAME_BYTES
            phone.send("ask", {"stream": False}, *pieces)
            assert (await phone.until("report"))["type"] == "report"
        assert backend.heard == [sound]

    house.run(scenario)


@pytest.mark.parametrize("known", [True, False])
def test_a_frame_that_is_too_large_ends_the_connection(house: House, known: bool) -> None:
    """Of somebody unknown, before more than that was taken of it."""
    pair = house.client("phone", Right.SPEAK)
    greeting = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)

    def pour() -> int:
        sent = 0
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", house.port)) as one:
            one.settimeout(2)
            one.sendall(greeting + struct.pack(">BQ", 6, 8 * 2**20))
            while sent < 7 * 2**20:
                sent += one.send(bytes(65536))
        return sent

    async def scenario(backend: Backend) -> None:
        if known:
            with Distant(house, Place.COMMAND, pair) as phone:
                phone.send("ask", {"stream": False}, bytes(security.FRAME_BYTES + 100))
                assert await phone.reply(0.5) is None
        else:
            assert await asyncio.to_thread(pour) < 7 * 2**20

    house.run(scenario)


# --- bounds -----------------------------------------------------------------------------------------------------------
def test_one_address_has_so_many_connections_and_local_ones_do_not_count(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    pair = house.client("phone", Right.OBSERVE)

    async def scenario(backend: Backend) -> None:
        with contextlib.ExitStack() as open_ones:
            waiting = [
                open_ones.enter_context(socket.create_connection(("127.0.0.1", house.port + 1)))
                for _ in range(MOST_EACH)
            ]
            await asyncio.sleep(0.1)
            one_more = open_ones.enter_context(socket.create_connection(("127.0.0.1", house.port + 1)))
            one_more.settimeout(2)
            with contextlib.suppress(ConnectionResetError):
                while await asyncio.to_thread(one_more.recv, 100):
                    pass
            with Raw(house.runtime, "control") as local:
                local.send(header("ping"))
                assert (await asyncio.to_thread(local.reply) or {})["type"] == "pong"
            waiting[0].close()
            waiting[1].close()
            with Distant(house, Place.CONTROL, pair) as phone:
                assert (await phone.asked("ping") or {})["type"] == "pong"

    house.run(scenario)
    assert "too many connections" in caplog.text


def test_a_client_that_vanishes_without_a_word_is_noticed(house: House) -> None:
    """Stopped, it is like a machine that lost its network: its connection stays, and says nothing."""
    pair = house.client("phone", Right.SPEAK)
    code = (
        "import sys, time, zmq; socket = zmq.Context().socket(zmq.DEALER); _, port, server, public, secret = sys.argv;"
        "keys = map(str.encode, (server, public, secret));"
        "socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = keys;"
        "socket.connect(f'tcp://127.0.0.1:{port}'); socket.send(b'hello'); time.sleep(60)"
    )

    class Quick(Guard):
        def bind(
            self, socket: zmq.Socket[bytes], place: Place, frame_bytes: int, heartbeat_s: float = security.HEARTBEAT_S
        ) -> None:
            super().bind(socket, place, frame_bytes, heartbeat_s=0.3)

    async def scenario() -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        guard = Quick(context, security.network(("127.0.0.1", house.port), house.keys))
        heard: list[Peer] = []

        def hear(peer: Peer, frames: list[bytes], refused: AssistantError | None) -> None:
            heard.append(peer)

        limits = Limits(1000, 1000, 1000, 2)
        folder = sockets.prepared(house.runtime)
        endpoint = Endpoint(context, folder / sockets.COMMAND, limits, hear, 10, Gate(guard, Place.COMMAND))
        guard.open()
        await endpoint.open()
        arguments = (str(house.port), house.server.public, pair.public, pair.secret)
        with subprocess.Popen([sys.executable, "-c", code, *arguments]) as client:
            async with asyncio.timeout(10):
                while not heard:
                    await asyncio.sleep(0.01)
            assert heard[0].user == security.User("phone", pair.public)
            await asyncio.sleep(1)
            assert not heard[0].left.done()  # it answers, by libzmq alone
            client.send_signal(signal.SIGSTOP)
            await asyncio.wait_for(heard[0].left, 3)
            client.kill()
        await endpoint.close()
        guard.close()
        context.term()

    asyncio.run(scenario())
    assert security.HEARTBEAT_S * 2 <= 30


def test_refusals_are_told_once_a_minute() -> None:
    told: list[str] = []
    now = [0.0]
    refusals = Refusals(told.append, lambda: now[0])
    for second in range(59):
        now[0] = second
        refusals.add("192.0.2.7", "unknown key")
    assert told == ["a connection from the network refused; the last one from 192.0.2.7: unknown key"]
    now[0] = 60
    refusals.tell()
    refusals.tell()
    assert told[1:] == ["58 connections from the network refused; the last one from 192.0.2.7: unknown key"]


# --- not without keys -------------------------------------------------------------------------------------------------
def test_nothing_listens_without_keys_or_clients(folder: Path) -> None:
    with pytest.raises(ConfigError, match="no server key"):
        security.network(("127.0.0.1", 1), folder / "keys")
    house = House(folder)
    with pytest.raises(ConfigError, match="no client is listed"):
        security.network(("127.0.0.1", 1), house.keys)
    house.client("phone")
    (house.keys / keys.SERVER).chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        security.network(("127.0.0.1", 1), house.keys)


def test_a_port_that_is_taken_is_told(house: House) -> None:
    house.client("phone")

    async def scenario(backend: Backend) -> None:
        raise AssertionError("it was opened")

    with socket.socket() as other:
        other.bind(("127.0.0.1", house.port + 1))
        other.listen()
        with pytest.raises(ConfigError, match="cannot be listened at"):
            house.run(scenario)
    assert not list(house.runtime.glob("*.sock"))


def test_without_the_guard_nobody_comes_in(house: House) -> None:
    """libzmq's own default would be to let everybody in whose key nobody is asked about."""
    pair = house.client("phone", *Right)

    async def scenario(backend: Backend) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        guard = Guard(context, security.network(("127.0.0.1", house.port + 10), house.keys))
        router: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        guard.bind(router, Place.CONTROL, 1000)  # never opened: nobody answers libzmq's question
        house.port += 10
        with Distant(house, Place.CONTROL, pair) as phone:
            phone.send("ping")
            assert not await asyncio.to_thread(router.poll, 500)
        context.destroy(linger=0)

    house.run(scenario)
