"""What hostile clients can make a real daemon hold: its own peak, read from the kernel."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.api.client import Client
from tests.api.daemon_process import Place
from tests.api.talking import Bytes, Raw, header

pytestmark = pytest.mark.timeout(60)

PEERS = 6
ONE_MIB = bytes(2**20)


@pytest.fixture
def place() -> Iterator[Place]:
    with Place() as one:
        yield one


def peak_mib(pid: int) -> float:
    """The most that was ever resident."""
    line = next(one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def endless(path: Path, size: int, until: float) -> None:
    """One message whose frames never end; begun anew whenever the daemon hangs up."""
    while time.monotonic() < until:
        with contextlib.suppress(OSError), Bytes(path) as raw:
            raw.send(b"\1\1h")
            while time.monotonic() < until:
                raw.begin(size)
                for _ in range(size // len(ONE_MIB)):
                    raw.send(ONE_MIB)


def at_once(*work: threading.Thread) -> None:
    for one in work:
        one.start()
    for one in work:
        one.join()


@pytest.mark.parametrize("size", [2**20, 8 * 2**20, 30 * 2**20])
def test_messages_without_an_end_are_held_by_nobody(place: Place, size: int) -> None:
    daemon = place.daemon()
    before, until = peak_mib(daemon.pid), time.monotonic() + 2
    path = place.runtime / "command.sock"
    flood = [threading.Thread(target=endless, args=(path, size, until)) for _ in range(PEERS)]
    with Client(place.runtime) as client:
        for one in flood:
            one.start()
        answered = 0
        while time.monotonic() < until:
            answered += client.ping().pid == daemon.pid
        for one in flood:
            one.join()
    grown = peak_mib(daemon.pid) - before
    assert grown < 80, f"{grown:.0f} MiB"
    assert answered > 10


def test_many_large_frames_are_refused_and_not_held(place: Place) -> None:
    daemon = place.daemon()
    before = peak_mib(daemon.pid)

    def send() -> None:
        with Raw(place.runtime, "command") as raw:
            raw.send(header("ask"), *[bytes(30 * 2**20)] * 20)
            reply = raw.reply(20)
            codes.append(reply["data"]["code"] if reply else "")

    codes: list[str] = []
    at_once(*(threading.Thread(target=send) for _ in range(2)))
    grown = peak_mib(daemon.pid) - before
    assert all(code in ("bad-message", "busy") for code in codes)
    assert len(codes) == 2
    assert grown < 80, f"{grown:.0f} MiB"


def test_recordings_that_stand_still_have_a_bound_together(place: Place) -> None:
    daemon = place.daemon()
    before = peak_mib(daemon.pid)
    with contextlib.ExitStack() as held:
        for _ in range(PEERS):
            raw = held.enter_context(Bytes(place.runtime / "command.sock"))
            raw.send(b"\1\1h")
            raw.begin(30 * 2**20, 0)
            for _ in range(29):
                raw.send(ONE_MIB)
        with Client(place.runtime) as client:
            assert client.ping().pid == daemon.pid
        grown = peak_mib(daemon.pid) - before
    assert grown < 60, f"{grown:.0f} MiB"
