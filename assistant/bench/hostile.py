"""A hundred thousand messages that are wrong in some way: each gets its error, and the daemon stays as it was.

    assistant bench hostile [--messages 100000] [--seed 3] [--set KEY=VALUE]... [--json]

A daemon of its own, without microphone and speaker; the messages go to both sockets, as fast as they are answered.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import zmq

from assistant.api import sockets, wire
from assistant.bench.daemons import OwnDaemon, terminable
from assistant.bench.hostile_frames import hostile
from assistant.bench.load import percentile
from assistant.bench.observer import read_tree
from assistant.bench.output import judge, said
from assistant.errors import EngineFailed

BATCH = 32
"""Fewer than the replies that wait for whoever does not read: none is lost, so they can be counted."""
GROWTH_MIB, STATUS_MS = 4.0, 50.0
"""Targets: of the daemon's own memory, and of the slowest `status` in a hundred."""
_REPLY_MS = 10_000
_WARM = 0.1
"""Of the messages, before memory counts."""
_SETTLE_S = 1.0


class Hostile(msgspec.Struct, frozen=True, kw_only=True):
    messages: int
    errors: dict[str, int]
    """By code."""
    unanswered: int
    """Without a reply, or with one that is no error."""
    handled: bool
    """Whether a question is answered afterwards."""
    seconds: float
    status_p50_ms: float
    status_p99_ms: float
    growth_mib: float
    """Anonymous memory of the daemon itself, from a tenth of the messages to their end."""

    @property
    def reached(self) -> bool:
        """Whether it met its targets."""
        answered = self.handled and not self.unanswered and "internal" not in self.errors
        return answered and self.growth_mib < GROWTH_MIB and self.status_p99_ms <= STATUS_MS


class _Sender:
    def __init__(self, folder: Path) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._to = {name: self._connected(folder / name) for name in (sockets.COMMAND, sockets.CONTROL)}

    def _connected(self, path: Path) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(sockets.ipc(path))
        return socket

    def batch(self, name: str, dice: random.Random) -> list[str]:
        """The codes that came back; empty for what was no error, nothing for what did not come."""
        to = self._to[name]
        for _ in range(BATCH):
            to.send_multipart(hostile(dice, name.removesuffix(".sock")))
        codes: list[str] = []
        while len(codes) < BATCH and to.poll(_REPLY_MS):
            reply = json.loads(to.recv_multipart()[0])
            codes.append(str(reply["data"]["code"]) if reply["type"] == "error" else "")
        return codes

    def close(self) -> None:
        self._context.destroy(linger=0)


def measure(messages: int, seed: int, sets: Sequence[str] = ()) -> Hostile:
    dice, codes, times = random.Random(seed), Counter[str](), list[float]()
    batches = max(1, round(messages / BATCH))
    with OwnDaemon(sets) as daemon:
        _handled(daemon)
        sender, began, before = _Sender(daemon.folder), time.monotonic(), 0.0
        try:
            for number in range(batches):
                codes.update(sender.batch((sockets.COMMAND, sockets.CONTROL)[number % 2], dice))
                if number == int(batches * _WARM):
                    before = _anon_mib(daemon)
                asked = time.perf_counter()
                daemon.client.status()
                times.append((time.perf_counter() - asked) * 1000)
        finally:
            sender.close()
        took = time.monotonic() - began
        time.sleep(_SETTLE_S)
        return Hostile(
            messages=batches * BATCH,
            errors={code: count for code, count in sorted(codes.items()) if code},
            unanswered=batches * BATCH - codes.total() + codes[""],
            handled=_handled(daemon),
            seconds=round(took, 1),
            status_p50_ms=percentile(times, 50),
            status_p99_ms=percentile(times, 99),
            growth_mib=round(_anon_mib(daemon) - before, 1),
        )


def _handled(daemon: OwnDaemon) -> bool:
    asked = daemon.client.ask(wire.Ask(text="what time is it"))
    *_, (report, _) = daemon.client.replies(asked, within_s=60)
    return isinstance(report, wire.Report) and report.outcome == "handled"


def _anon_mib(daemon: OwnDaemon) -> float:
    """Of the daemon itself: its stages hear nothing of messages."""
    if daemon.process.poll() is not None:
        raise EngineFailed(f"the daemon ended: {daemon.log[-200:]}")
    return read_tree(daemon.pid).processes[daemon.pid].anon / 2**20


def table(found: Hostile) -> str:
    return "\n".join(
        [
            f"{found.messages} messages in {found.seconds:g} s, {found.unanswered} without their error",
            *(f"  {count:8} {code}" for code, count in found.errors.items()),
            f"status after each {BATCH}: p50 {found.status_p50_ms:.1f} ms, p99 {found.status_p99_ms:.1f} ms"
            f" (at most {STATUS_MS:g})",
            f"memory of the daemon {found.growth_mib:+.1f} MiB (less than {GROWTH_MIB:g})",
            f"targets: {said(found.reached)}",
        ]
    )


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="assistant bench hostile", description="Messages that are wrong in some way, and what they cost."
    )
    parser.add_argument("--messages", type=int, default=100_000, metavar="N", help="How many (default: 100000).")
    parser.add_argument("--seed", type=int, default=3, help="Of the dice; another one makes other messages.")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="Another setting; repeatable.")
    parser.add_argument("--json", action="store_true", help="One JSON document on stdout.")
    options = parser.parse_args(args)
    if options.messages < 1:
        parser.error("--messages takes 1 or more")
    with terminable():
        return judge(lambda: measure(options.messages, options.seed, options.set), table, as_json=options.json)
