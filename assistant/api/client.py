"""The client of a running daemon: blocking, thin, with a deadline on everything. Plain pyzmq.

Whoever calls it needs no event loop and no knowledge of frames. What is said and waited for is in `dialogue`; here are
the sockets alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import zmq

from assistant.api import framing, sockets, wire, wire_events
from assistant.api.addresses import NOT_ANSWERING, SEND_S, Address, Local
from assistant.api.dialogue import (
    ORDER_S,
    REPLY_S,
    SAY_S,
    SILENCE_S,
    Call,
    Dialogue,
    Send,
    Steps,
    Told,
    Wait,
    Walk,
    closed,
    ping,
    raised,
)
from assistant.api.feed import WELCOME, Feed
from assistant.closing import Closing
from assistant.errors import NotRunning
from assistant.messages import Stage
from assistant.messages_status import Status, VoiceStatus
from assistant.messages_timers import TimerAction, TimerStatus

__all__ = ["NOT_ANSWERING", "ORDER_S", "REPLY_S", "Client", "found", "raised"]

T = TypeVar("T")


class Client(Closing):
    """`with Client() as client:`; used by one thread. One query at a time."""

    def __init__(self, folder: Path | None = None, *, address: Address | None = None) -> None:
        """Connects to the sockets in `folder` (default: this user's), or to `address`.

        Raises `NotRunning` when nobody listens, `ConfigError` when it may be somebody else who does.
        """
        self._address = address or Local(folder)
        self._address.check()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._open: dict[str, zmq.Socket[bytes]] = {}
        self._dialogue = Dialogue(self._address)

    def _socket(self, name: str) -> zmq.Socket[bytes]:
        self._check_open()
        if name not in self._open:
            socket = self._open[name] = self._context.socket(zmq.DEALER)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.SNDTIMEO, int(SEND_S * 1000))
            self._address.connect(socket, name)
        return self._open[name]

    def _check_open(self) -> None:
        if self._context.closed:
            raise closed()

    def close(self) -> None:
        self._context.destroy(linger=0)

    # --- one question, one reply ------------------------------------------------------------------------------------
    def ping(self, timeout_s: float = REPLY_S) -> wire.Pong:
        return self._call(ping(timeout_s))

    def status(self) -> Status:
        return self._call(Call(sockets.CONTROL, wire.GetStatus(), Status))

    def ps(self) -> wire.Ps:
        return self._call(Call(sockets.CONTROL, wire.GetPs(), wire.Ps))

    def snapshot(self) -> wire.Snapshot:
        return self._call(Call(sockets.CONTROL, wire.GetSnapshot(), wire.Snapshot))

    def cancel(self, query_id: str | None = None) -> tuple[str, ...]:
        """The queries that will end as cancelled. Raises `UsageError` for an id that does not run or wait."""
        return self._call(Call(sockets.CONTROL, wire.Cancel(query_id=query_id), wire.Cancelling)).query_ids

    def say(self, text: str) -> wire.Report:
        """Returns when it was heard. Raises `BusyNow` while somebody is being answered, `BadText`, `DeviceError`."""
        return self._call(Call(sockets.COMMAND, wire.Say(text=text), wire.Report, SAY_S))

    def listen(self) -> VoiceStatus:
        """Raises `UsageError` (muted, no voice), `DeviceError` without a microphone."""
        return self._call(Call(sockets.CONTROL, wire.Listen(), VoiceStatus))

    def mute(self, on: bool) -> VoiceStatus:
        return self._call(Call(sockets.CONTROL, wire.Mute(on=on), VoiceStatus))

    def volume(self, percent: float) -> VoiceStatus:
        return self._call(Call(sockets.CONTROL, wire.Volume(percent=percent), VoiceStatus))

    def timers(self, action: TimerAction = "list", id: str | None = None) -> tuple[TimerStatus, ...]:
        """Those there are, once that was done. Raises `UsageError` for an id that is none of them."""
        return self._call(Call(sockets.CONTROL, wire.Timers(action=action, id=id), wire.TimerList)).timers

    def shutdown(self) -> int:
        """The process id of the daemon that is now on its way out."""
        return self._call(Call(sockets.CONTROL, wire.Shutdown(), wire.Stopping)).pid

    def load(self, stage: Stage, keep_alive_s: float | None = None) -> wire.Loaded:
        order = wire.Load(stage=stage, keep_alive_s=keep_alive_s)
        return self._call(Call(sockets.COMMAND, order, wire.Loaded, ORDER_S))

    def unload(self, stage: Stage) -> wire.Unloaded:
        return self._call(Call(sockets.COMMAND, wire.Unload(stage=stage), wire.Unloaded, ORDER_S))

    def answer_intent(self, query_id: str, speech: str = "", error: str | None = None) -> wire.Answered:
        """To a `wire.Handle`. Raises `UsageError` when it comes too late."""
        command = wire.AnswerIntent(query_id=query_id, speech=speech, error=error)
        return self._call(Call(sockets.COMMAND, command, wire.Answered))

    def _call(self, call: Call[T]) -> T:
        return self._run(self._dialogue.call(call))

    # --- a query ----------------------------------------------------------------------------------------------------
    def ask(self, ask: wire.Ask, pcm: bytes = b"") -> str:
        """Sends a query; what `replies` takes. `pcm`: s16le mono 16 kHz, when `ask.text` is None.

        Raises `NotRunning`, or `UsageError` for what the daemon would refuse by its size.
        """
        return self._run(self._dialogue.ask(ask, pcm))

    def sound(self, asked: str, pcm: bytes, *, last: bool = False) -> None:
        """The next sound of an `ask` with `more`."""
        self._run(self._dialogue.sound(asked, pcm, last=last))

    def replies(self, asked: str, within_s: float = math.inf) -> Iterator[tuple[Any, bytes]]:
        """(reply, its PCM) as they come; the last one is a `wire.Report`. An interrupted caller may go on anew.

        Raises what the daemon raised before the query began (`BusyNow`, `UsageError`, `Cancelled`), and `NotRunning`
        when the daemon goes away or the last one has not come `within_s`.
        """
        for told in self._told(self._dialogue.replies(asked, within_s)):
            yield told.data, told.pcm

    # --- what others do ---------------------------------------------------------------------------------------------
    def handle(self, intents: Sequence[str], names: Mapping[str, Sequence[str]] | None = None) -> Iterator[Any]:
        """A `wire.Registered`, then each `wire.Handle`, to be answered with `answer_intent`. Ends only with an error:
        `UsageError` for what cannot be registered, `NotRunning` when the daemon goes."""
        try:
            for told in self._told(self._dialogue.handle(registration(intents, names))):
                yield told.data
        finally:
            if not self._context.closed:
                self._do(Send(sockets.COMMAND, framing.encode(wire.Register(intents=()))))

    def events(self, *topics: str) -> Iterator[wire_events.Published]:
        """What happens from now on under names that begin with one of `topics` (none = all). A number that is missing
        in `nth` (or `seq`, without topics) was missed. Raises `NotRunning` when the daemon goes, even after it was
        restarted."""
        self._check_open()
        feed = Feed(topics)
        socket: zmq.Socket[bytes] = self._context.socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        try:
            self._address.connect(socket, sockets.EVENTS)
            for topic in [*feed.topics, WELCOME]:
                socket.subscribe(topic)
            first = list(self._published(socket, feed, time.monotonic() + REPLY_S))
        except BaseException:
            socket.close()
            raise
        return self._follow(socket, feed, first)

    def _follow(
        self, socket: zmq.Socket[bytes], feed: Feed, first: list[wire_events.Published]
    ) -> Iterator[wire_events.Published]:
        with socket:
            yield from first
            yield from self._published(socket, feed, math.inf)

    def _published(self, socket: zmq.Socket[bytes], feed: Feed, until: float) -> Iterator[wire_events.Published]:
        """With an `until`: what comes before the daemon has heard of the topics, which it has to by then."""
        while until == math.inf or not feed.pid:
            self._check_open()
            if time.monotonic() > until:
                raise self._address.silent("told no events")
            if not socket.poll(int(SILENCE_S * 1000)):
                self._address.check_there()
            elif (event := feed.take(socket.recv_multipart())) is not None:
                yield event

    # --- steps ------------------------------------------------------------------------------------------------------
    def _run(self, steps: Steps[T]) -> T:
        walk, came = Walk(steps), None
        while (step := walk.on(came)) is not None:
            came = self._do(step)
        return walk.result

    def _told(self, steps: Steps[None]) -> Iterator[Told]:
        walk, came = Walk(steps), None
        while (step := walk.on(came)) is not None:
            came = self._do(step)
            if isinstance(step, Told):
                yield step

    def _do(self, step: Send | Wait | Told) -> framing.Received | None:
        match step:
            case Send(socket=name, frames=frames):
                try:
                    self._socket(name).send_multipart(frames)
                except zmq.Again:
                    raise self._address.silent("takes nothing") from None
            case Wait(socket=name, parent=parent, timeout_s=timeout_s):
                give_up = time.monotonic() + timeout_s
                while (message := self._dialogue.take(parent)) is None:
                    left_ms = int((give_up - time.monotonic()) * 1000)
                    if left_ms < 0 or not self._socket(name).poll(max(1, left_ms)):
                        return None
                    self._dialogue.put(self._socket(name).recv_multipart())
                return message
        return None


def registration(intents: Sequence[str], names: Mapping[str, Sequence[str]] | None) -> wire.Register:
    return wire.Register(intents=tuple(intents), names={kind: tuple(values) for kind, values in (names or {}).items()})


def found(folder: Path | None = None, timeout_s: float = REPLY_S) -> Client | None:
    """A client of a daemon that answers; None when nobody listens.

    Raises `NotRunning` with the code `NOT_ANSWERING` for one that listens and does not answer: it still has its memory.
    """
    try:
        client = Client(folder)
    except NotRunning:
        return None
    try:
        client.ping(timeout_s)
    except NotRunning as error:
        client.close()
        if error.code == NOT_ANSWERING:
            raise
        return None  # it went just now
    except BaseException:
        client.close()
        raise
    return client
