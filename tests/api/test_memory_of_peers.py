"""What hostile clients can make a real daemon hold: its own peak, read from the kernel."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.api.client import Client
from tests.api.daemon_process import Place
from tests.api.daemon_process import until as until_true
from tests.api.talking import Bytes, Raw, header

PEERS = 6
ONE_MIB = bytes(2**20)


@pytest.fixture
def place() -> Iterator[Place]:
    with Place() as one:
        yield one


def peak_mib(pid: int, field: str = "VmHWM") -> float:
    """The most that was ever resident."""
    line = next(one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith(field))
    return int(line.split()[1]) / 1024


def resident_mib(pid: int) -> float:
    return peak_mib(pid, "VmRSS")


def send(place: Place, frames: tuple[int, ...], until: float, codes: set[str]) -> None:
    """Whole messages with frames of these sizes behind the header, one after another."""
    bodies = [bytes(size) for size in frames]
    with Raw(place.runtime, "command") as raw:
        while time.monotonic() < until:
            raw.send(header("ask", {}, nothing=1), *bodies)
            reply = raw.reply(20)
            codes.add(reply["data"]["code"] if reply else "none")


@pytest.mark.alone("answers more than ten times within 0.6 s")
@pytest.mark.parametrize(
    ("frames", "most_mib", "left_mib"),
    [
        # what arrives: one message and a frame of each; what is looked at: twice a recording
        ((8 * 2**20,) * 3, PEERS * 32 + 60, 8),
        # what libzmq holds of a message that is too long is gone when it has been read
        ((2**20,) * 40, PEERS * 48 + 60, 8),
        # small blocks leave holes
        ((100,) * 20_000, 100, 60),
    ],
)
def test_whole_messages_are_held_once_for_each_peer(
    place: Place, frames: tuple[int, ...], most_mib: int, left_mib: int
) -> None:
    daemon = place.daemon()
    before, until = peak_mib(daemon.pid), time.monotonic() + 0.6
    codes: set[str] = set()
    flood = [threading.Thread(target=send, args=(place, frames, until, codes)) for _ in range(PEERS)]
    with Client(place.runtime) as client:
        for one in flood:
            one.start()
        answered = 0
        while time.monotonic() < until:
            answered += client.ping().pid == daemon.pid
        for one in flood:
            one.join()
    assert codes <= {"unknown-field", "bad-message"}
    assert answered > 10
    grown = peak_mib(daemon.pid) - before
    assert grown < most_mib, f"{grown:.0f} MiB"
    assert until_true(lambda: resident_mib(daemon.pid) - before < left_mib), f"{resident_mib(daemon.pid)} MiB are kept"


def test_a_message_without_an_end_is_dropped_with_its_connection(place: Place) -> None:
    daemon = place.daemon()
    before = peak_mib(daemon.pid)
    with Bytes(place.runtime / "command.sock") as raw:
        raw.send(b"\1\1h")
        for _ in range(8):
            raw.begin(8 * 2**20)
            for _ in range(8):
                raw.send(ONE_MIB)
        with Client(place.runtime) as client:
            assert client.ping().pid == daemon.pid
    assert until_true(lambda: resident_mib(daemon.pid) - before < 8)


def test_more_connections_than_the_usual_limit_of_files_do_not_end_it(place: Place) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 4096:
        pytest.skip(f"this process may have {most} files at most")
    # it inherits the usual limit, and raises it by itself
    usual = ["sh", "-c", f'ulimit -S -n 1024; exec {sys.executable} -m assistant run 2> "{place.folder}/log"']
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, before[1]))
    (place.folder / "log").touch()
    with contextlib.ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        daemon = held.enter_context(subprocess.Popen(usual, env=place.environ, cwd=place.folder, text=True))
        held.callback(daemon.terminate)
        assert place.wait_ready(daemon), place.log()
        with Client(place.runtime) as client:
            client.ping()
            for number in range(1100):
                one = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                one.connect(str(place.runtime / ("command.sock" if number % 2 else "control.sock")))
            assert client.ping().pid == daemon.pid  # it was there before them
            assert until_true(lambda: 1000 < len(os.listdir(f"/proc/{daemon.pid}/fd")) < 1060)
        assert daemon.poll() is None
