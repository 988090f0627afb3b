"""A thousand clients that connect and vanish, a hundred thousand hostile frames: a real daemon lives on, as large as it
was, and answers everybody else. A part of that by default, all of it with `--hostile-percent 100`.
"""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assistant.api import wire
from assistant.api.client import Client
from assistant.bench.hostile_frames import hostile
from assistant.bench.observer import read_tree
from assistant.model_store.store import ModelInfo
from tests.api.daemon_process import Place, until
from tests.api.talking import HELLO, Bytes, Raw, header

FLAT_MIB = 4.0
BATCH = 32
"""Fewer than the replies that wait for whoever does not read: none is lost, so they can be counted."""
SOCKETS = ("command", "control")


@pytest.fixture
def place(model: Callable[[str], ModelInfo]) -> Iterator[Place]:
    model("smollm2-135m-instruct")  # not asked, but looked for
    with Place() as one:
        yield one


def anon_mib(pid: int) -> float:
    """Of the daemon itself: its stages come and go, and hear nothing of frames."""
    return read_tree(pid).processes[pid].anon / 2**20


def answered(place: Place) -> bool:
    """Whether a question and a control of somebody else are answered as ever."""
    with Client(place.runtime) as client:
        *_, (report, _) = client.replies(client.ask(wire.Ask(text="what time is it")), within_s=10)
        return isinstance(report, wire.Report) and report.outcome == "handled" and bool(client.status().pid)


def vanishing(path: Path, dice: random.Random) -> None:
    """One client, which leaves in the middle of something."""
    ask = header("ask", {"text": "tell me a story about a dragon"})
    match dice.randrange(6):
        case 0:  # says nothing
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).close()
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as raw:
                raw.connect(str(path))
        case 1:  # in the middle of the greeting
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as raw:
                raw.connect(str(path))
                raw.sendall(HELLO[: dice.randrange(1, len(HELLO))])
        case 2:  # in the middle of a message
            with Bytes(path) as one:
                one.begin(dice.randrange(1, 60_000))
                one.send(b"x" * dice.randrange(1, 60_000))
        case 3:  # having asked
            with Bytes(path) as one:
                one.say(ask)
        case 4:  # having asked for much, without a look at an answer
            with Bytes(path) as one:
                for _ in range(20):
                    one.say(header("status"))
        case _:
            with Bytes(path) as one:
                one.send(dice.randbytes(dice.randrange(1, 2000)))


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_clients_that_connect_and_vanish_leave_nothing(place: Place, hostile_percent: int) -> None:
    daemon, dice = place.daemon(), random.Random(5)
    paths = [place.runtime / f"{name}.sock" for name in SOCKETS]
    files = Path(f"/proc/{daemon.pid}/fd")
    for _ in range(20):  # what is made once is made now
        vanishing(dice.choice(paths), dice)
    assert answered(place)
    before, open_before = anon_mib(daemon.pid), len(os.listdir(files))
    for number in range(10 * hostile_percent):
        vanishing(dice.choice(paths), dice)
        if number % 25 == 0:
            assert answered(place)
    assert answered(place)
    assert daemon.poll() is None
    assert until(lambda: len(os.listdir(files)) <= open_before + 2), "connections of clients that have gone are kept"
    assert until(lambda: place.state() == "idle"), "somebody who has gone is still being answered"
    assert until(lambda: anon_mib(daemon.pid) - before < FLAT_MIB), f"{anon_mib(daemon.pid) - before:.1f} MiB more"
    assert "Traceback" not in place.log()


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_every_hostile_frame_is_answered_with_an_error_and_the_daemon_stays_as_it_was(
    place: Place, hostile_percent: int
) -> None:
    daemon, dice = place.daemon(), random.Random(3)
    paths = [place.runtime / f"{name}.sock" for name in SOCKETS]
    before, seen = 0.0, set()
    with Raw(place.runtime, "command") as command, Raw(place.runtime, "control") as control:
        batches = max(10, 1000 * hostile_percent // BATCH)
        for number in range(batches):
            name, raw = (SOCKETS[number % 2], (command, control)[number % 2])
            for _ in range(BATCH):
                raw.send(*hostile(dice, name))
            replies = [raw.reply(10) for _ in range(BATCH)]
            assert [reply for reply in replies if reply is None or reply["type"] != "error"] == []
            seen |= {reply["data"]["code"] for reply in replies if reply}
            if number % 40 == 0:
                _announced(dice.choice(paths), dice)
                _asked_twice(command)
                assert answered(place)
            if number == batches // 10:
                before = anon_mib(daemon.pid)
        assert raw.reply(0.1) is None, "something was answered twice"
    assert daemon.poll() is None
    assert {"bad-message", "unknown-command", "unknown-field", "unknown-version"} <= seen
    assert "internal" not in seen
    assert until(lambda: anon_mib(daemon.pid) - before < FLAT_MIB), f"{anon_mib(daemon.pid) - before:.1f} MiB more"
    assert "Traceback" not in place.log()


def _announced(path: Path, dice: random.Random) -> None:
    """A frame of up to 2^63 bytes, which is never sent: the connection is closed."""
    with Bytes(path) as one:
        one.send(struct.pack(">BQ", 2, dice.randrange(9 * 2**20, 2**63)))
        assert one.gone()


def _asked_twice(raw: Raw) -> None:
    """The same `id` again and again is the sender's own affair: each has its own answer."""
    for _ in range(3):
        raw.send(header("unload", {"stage": "asr"}, id="same"))
    replies = [raw.reply(10) or {} for _ in range(3)]
    assert [(reply["type"], reply["parent"]) for reply in replies] == [("unloaded", "same")] * 3
