"""Many clients in one thread, which ask at a given rate whatever becomes of what they asked before. Imports zmq and the
vocabulary; starts no daemon.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import zmq

from assistant.api import framing, sockets, wire
from assistant.errors import UsageError


@dataclass(slots=True)
class Asked:
    sent: float
    """Monotonic seconds, as all times here."""
    taken: bool = False
    """It got a place in the line."""
    ended: float = 0.0
    """When its last reply was read; 0 = it has none."""
    code: str = ""
    """Of the error that is its last reply."""

    @property
    def ms(self) -> float:
        return (self.ended - self.sent) * 1000


class Crowd:
    """`with Crowd(folder, 8) as crowd: crowd.ask_for(ask, rate, seconds)`."""

    def __init__(self, folder: Path, clients: int) -> None:
        """Connects each of them to the command socket of the daemon in `folder`."""
        self.asked: dict[str, Asked] = {}
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._poller = zmq.Poller()
        self._sockets = []
        for _ in range(clients):
            socket = self.connected(folder / sockets.COMMAND)
            self._poller.register(socket, zmq.POLLIN)
            self._sockets.append(socket)
        self._next = itertools.cycle(self._sockets)

    def connected(self, path: Path) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, 0)  # nothing shall be lost here
        socket.connect(sockets.ipc(path))
        return socket

    @property
    def open(self) -> int:
        """What has no last reply yet."""
        return sum(not one.ended for one in self.asked.values())

    def ask_for(self, ask: wire.Ask, rate: float, seconds: float) -> None:
        """`rate` questions a second, of one client after another; replies are read meanwhile."""
        began = time.monotonic()
        for number in range(max(1, round(rate * seconds))):
            self.read_until(began + number / rate)
            self.ask(ask)
        self.read_until(began + seconds)

    def ask(self, ask: wire.Ask) -> str:
        """The id of the message."""
        frames = framing.encode(ask)
        name = framing.id_of(frames) or ""
        self.asked[name] = Asked(time.monotonic())
        next(self._next).send_multipart(frames)
        return name

    def finish(self, within_s: float) -> None:
        """Reads until everything has its last reply."""
        give_up = time.monotonic() + within_s
        while self.open and time.monotonic() < give_up:
            self.read(give_up)

    def read_until(self, moment: float) -> None:
        while time.monotonic() < moment:
            self.read(moment)

    def read(self, until: float) -> None:
        """What there is, or comes first until then."""
        for socket, _ in self._poller.poll(max(0, round((until - time.monotonic()) * 1000))):
            now = time.monotonic()
            try:
                while True:
                    self._heard(socket.recv_multipart(zmq.NOBLOCK), now)
            except zmq.Again:
                pass

    def _heard(self, frames: list[bytes], now: float) -> None:
        told: Any = framing.decode(frames, wire.REPLIES, framing.MAX_REPLY_BYTES)
        one = self.asked.get(told.parent or "")
        if one is None or one.ended:
            raise UsageError(f"the daemon answered what was not asked, or twice: {told.data}")
        match told.data:
            case wire.Accepted():
                one.taken = True
            case wire.Report(error=error):
                one.ended, one.code = now, error.code if error is not None else ""
            case wire.Failure(code=code):
                one.ended, one.code = now, code
            case _:
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.destroy(linger=0)


def status_ms(folder: Path, crowd: Crowd, ask: wire.Ask, seconds: float, every_s: float = 0.01) -> list[float]:
    """Round trips of `status`, one every `every_s`, while a question is always being answered."""
    found = []
    with crowd.connected(folder / sockets.CONTROL) as socket:
        give_up = time.monotonic() + seconds
        while (began := time.monotonic()) < give_up:
            if not crowd.open:
                crowd.ask(ask)
            socket.send_multipart(framing.encode(wire.GetStatus()))
            socket.recv_multipart()
            found.append((time.monotonic() - began) * 1000)
            crowd.read_until(began + every_s)
    return found
