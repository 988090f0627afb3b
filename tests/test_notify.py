"""What systemd is told, over a real socket; and that children are not taken for the service."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.notify import Notifier, Watchdog


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A socket that listens, and its address as $NOTIFY_SOCKET has it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        name = str(tmp_path / "notify") if request.param == "path" else f"@assistant-test-{os.getpid()}"
        sock.bind(name.replace("@", "\0", 1) if name.startswith("@") else name)
        sock.settimeout(2)
        yield sock, name


def heard(sock: socket.socket) -> list[str]:
    """Every datagram so far."""
    sock.setblocking(False)
    found = []
    try:
        while True:
            found.append(sock.recv(4096).decode())
    except BlockingIOError:
        return found


def test_states_are_told(systemd: tuple[socket.socket, str]) -> None:
    sock, name = systemd
    notifier = Notifier({"NOTIFY_SOCKET": name})
    notifier.ready("two words,\nstill one line")
    notifier.status("listening")
    notifier.status("")
    notifier.ping()
    notifier.stopping()
    notifier.ready()
    assert heard(sock) == [
        "READY=1\nSTATUS=two words, still one line",
        "STATUS=listening",
        "WATCHDOG=1",
        "STOPPING=1",
        "READY=1",
    ]


def test_the_variables_are_not_inherited() -> None:
    environ = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
    assert Notifier(environ).watchdog_s == 1.0
    assert environ == {"HOME": "/"}


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"WATCHDOG_USEC": "1000000"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "-5"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "²"},
        {"NOTIFY_SOCKET": "vsock:2:1234", "WATCHDOG_USEC": "1000000"},
    ],
)
def test_no_watchdog_where_none_was_asked_for(variables: dict[str, str]) -> None:
    assert Notifier(variables).watchdog_s == 0


@pytest.mark.parametrize(
    "where", ["", "relative", "vsock:2:1234", "/no/such/socket", "@nobody-listens", "/nul\0", "/" * 300]
)
def test_nobody_there_is_no_error_and_one_line(where: str, caplog: pytest.LogCaptureFixture) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": where})
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            notifier.ready()
    assert len(caplog.records) == (1 if where[:1] in ("/", "@") and where else 0)


def test_a_socket_that_is_full_does_not_block(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "full"))
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "full")})
        for _ in range(1000):
            notifier.ping()
        assert len(heard(sock)) < 1000


def test_the_watchdog_pings_twice_as_often_as_it_must(systemd: tuple[socket.socket, str]) -> None:
    sock, name = systemd
    slept: list[float] = []
    alive = [True, True, False, True]

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 4:
            await asyncio.Event().wait()

    async def run() -> None:
        notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000000"})
        async with Watchdog(notifier, healthy=lambda: alive[len(slept)], sleep=sleep):
            while len(slept) < 4:
                await asyncio.sleep(0)

    asyncio.run(run())
    assert slept == [15.0] * 4
    assert heard(sock) == ["WATCHDOG=1"] * 3


def stand_still() -> None:
    time.sleep(0.3)


def test_a_loop_that_stands_still_does_not_ping(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "n"))

        async def run() -> tuple[int, int]:
            async with Watchdog(Notifier({"NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "100000"})):
                await asyncio.sleep(0.3)
                turning = len(heard(sock))
                stand_still()
                return turning, len(heard(sock))

        turning, still = asyncio.run(run())
    assert turning >= 4
    assert still == 0


def test_without_a_watchdog_nothing_runs() -> None:
    async def run() -> int:
        async with Watchdog(Notifier({})):
            return len(asyncio.all_tasks())

    assert asyncio.run(run()) == 1
