"""Audio processes that misbehave: what the fork server runs instead of `assistant.audio.front`. The `input` of their
settings says how."""

from __future__ import annotations

import os
import socket
import time

from assistant.audio.front_messages import (
    MAX_PACKET,
    Beat,
    Begin,
    Device,
    Failed,
    Play,
    Quit,
    Ready,
    Silence,
    Volume,
    Woke,
    encode,
    to_front,
)

BEAT = Beat(captured_s=0, overflows=0, underruns=0, reopened=0)


def main(sock: socket.socket) -> int:
    begin = to_front(sock.recv(MAX_PACKET))
    assert isinstance(begin, Begin)
    way, _, marker = begin.settings.input.partition(":")
    if way == "refuses":
        sock.send(encode(Failed(error="ConfigError", code="bad-config", message="there is no such word")))
        return 1
    if way == "dies-early":
        return 3
    if way == "never-ready":
        time.sleep(60)
    sock.send(encode(Ready(words=("w",), stop_words=())))
    # what it was told at the start, for the test to see
    told = Device(
        kind="input", state="ok", name=f"{os.getpid()}", channels=int(begin.settings.muted),
        sample_rate=begin.last_session,
    )  # fmt: skip
    sock.send(encode(told))
    first = not marker or not os.path.exists(marker)
    if marker:
        open(marker, "w").close()
    if way == "dies" and first:
        return 1
    if way == "babbles" and first:
        sock.send(b"\xff no packet")
        time.sleep(60)
    if way == "stands-still" and first:
        time.sleep(60)
    return serve(sock, slow=way == "slow")


def serve(sock: socket.socket, *, slow: bool) -> int:
    taken = 0
    sock.settimeout(0.05)
    while True:
        sock.send(encode(BEAT))
        try:
            packet = sock.recv(MAX_PACKET)
        except TimeoutError:
            continue
        if not packet:
            return 0
        match to_front(packet):
            case Play(pcm=pcm):
                taken += len(pcm)
                if slow:
                    time.sleep(0.001)
            case Volume():  # "how much have you got?"
                sock.send(encode(Beat(captured_s=taken, overflows=-1, underruns=0, reopened=0)))
            case Silence(run=run):  # "wake, in the session of this number"
                sock.send(encode(Woke(word="w", phrase="w", score=1, kind="wake", session=int(run))))
            case Quit():
                return 0
