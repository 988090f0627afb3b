"""The audio process itself, without a device: it obeys, tells what it lacks, and ends as it should."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from assistant.audio.front_messages import (
    MAX_PACKET,
    Begin,
    Cue,
    Device,
    Failed,
    FromFront,
    FrontSettings,
    Mute,
    Quit,
    Ready,
    ToFront,
    Volume,
    WakeSettings,
    encode,
    from_front,
)

CODE = """
import socket, sys
from assistant.audio.front import main
sys.exit(main(socket.socket(fileno=int(sys.argv[1]))))
"""
NOWHERE = FrontSettings(input="nothing of the kind", output="nothing of the kind")


class Process:
    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.settimeout(15)
        with theirs:
            number = theirs.fileno()
            # not the leader of a group, like the process that the fork server forks
            self._process = subprocess.Popen([sys.executable, "-c", CODE, str(number)], pass_fds=[number])

    def send(self, *packets: ToFront) -> None:
        for packet in packets:
            self._ours.send(encode(packet))

    def babble(self) -> None:
        self._ours.send(b"\xff no packet")

    def leave(self) -> None:
        self._ours.close()

    def until(self, there: Callable[[FromFront], bool]) -> FromFront:
        while not there(packet := from_front(self._ours.recv(MAX_PACKET))):
            pass
        return packet

    def ended(self) -> int:
        return self._process.wait(15)

    def close(self) -> None:
        self._ours.close()
        self._process.kill()
        self._process.wait()


@pytest.fixture
def process() -> Iterator[Process]:
    one = Process()
    yield one
    one.close()


def state(kind: str, state: str) -> Callable[[FromFront], bool]:
    return lambda packet: isinstance(packet, Device) and (packet.kind, packet.state) == (kind, state)


def test_without_devices_it_serves_on_and_tells_what_is_missing(process: Process) -> None:
    process.send(Begin(settings=NOWHERE))
    assert process.until(lambda packet: isinstance(packet, Ready)) == Ready(words=(), stop_words=())
    found = process.until(state("input", "lost"))
    assert isinstance(found, Device)
    assert "nothing of the kind" in found.message
    process.send(Mute(on=True), Volume(percent=20), Cue(name="awake"), Begin(settings=NOWHERE))
    process.until(state("input", "off"))
    process.send(Mute(on=False))
    process.until(state("input", "lost"))
    process.send(Quit())
    assert process.ended() == 0


def test_a_message_is_not_longer_than_its_reader_takes(process: Process) -> None:
    process.send(Begin(settings=FrontSettings(input="x" * 9_000, output="x" * 9_000)))
    found = process.until(state("input", "lost"))
    assert isinstance(found, Device)
    assert 100 < len(found.message) <= 2_000


def test_a_wake_word_without_a_model_is_told_before_it_ends(process: Process) -> None:
    process.send(Begin(settings=FrontSettings(wake=WakeSettings(words=("nobody_knows_it",)))))
    found = process.until(lambda packet: True)
    assert isinstance(found, Failed)
    assert "nobody_knows_it" in found.message
    assert process.ended() == 1


def test_something_else_than_settings_is_no_beginning(process: Process) -> None:
    process.send(Quit())
    assert process.ended() == 2


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("how", ["babbles", "leaves"])
def test_it_ends_with_a_daemon_that(process: Process, how: str, begun: bool) -> None:
    if begun:
        process.send(Begin(settings=NOWHERE))
        process.until(lambda packet: isinstance(packet, Ready))
    if how == "babbles":
        process.babble()
    else:
        process.leave()
    assert process.ended() == 0
