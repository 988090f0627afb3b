"""The client of a running daemon: blocking, thin, with a deadline on everything. Plain pyzmq.

Whoever calls it needs no event loop and no knowledge of frames; errors of the daemon are raised as they were there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import zmq

from assistant.api import framing, sockets, wire
from assistant.closing import Closing
from assistant.errors import (
    AssistantError,
    BusyNow,
    Cancelled,
    DeviceError,
    EngineFailed,
    ExitCode,
    MemoryRefused,
    ModelError,
    NotRunning,
    StageError,
    UsageError,
)
from assistant.messages import Stage
from assistant.messages_status import Status, VoiceStatus

T = TypeVar("T")

REPLY_S = 5.0
"""For a reply that no work stands behind: it takes milliseconds, and longer where pages come back from a slow card."""
NOT_ANSWERING = "not-answering"
"""The code of a `NotRunning` when a process has the socket open, and says nothing."""
SAY_S = 600.0
"""The longest text that is taken has four minutes of speech."""
ORDER_S = 180.0
"""For a load, which may lay out weights first."""
_SILENCE_S = 2.0
"""After this we look whether the daemon is still there."""
_SEND_S = 5.0

_BY_EXIT_CODE: dict[int, type[AssistantError]] = {
    ExitCode.USAGE: UsageError,
    ExitCode.NOT_RUNNING: NotRunning,
    ExitCode.BUSY: BusyNow,
    ExitCode.MEMORY: MemoryRefused,
    ExitCode.MODEL: ModelError,
    ExitCode.AUDIO_DEVICE: DeviceError,
    ExitCode.CANCELLED: Cancelled,
}


def raised(told: wire.Failure) -> AssistantError:
    """The error of a reply, with the exit code and the retry hint that it had where it was raised."""
    base = _BY_EXIT_CODE.get(told.exit_code, StageError)
    error = base(told.message, code=told.code, stage=told.stage, retry_after_ms=told.retry_after_ms)
    error.__dict__["retryable"] = told.retryable  # of this one, whatever its class says
    return error


class Client(Closing):
    """`with Client() as client:`; used by one thread. One query at a time."""

    def __init__(self, folder: Path | None = None) -> None:
        """Connects to the sockets in `folder` (default: this user's).

        Raises `NotRunning` when nobody listens, `ConfigError` when it may be somebody else who does.
        """
        self._folder = folder or sockets.folder()
        path = self._folder / sockets.CONTROL
        if not sockets.somebody_listens(path):
            raise NotRunning(f"no daemon listens at {path}; start one with 'assistant run'")
        sockets.trusted(self._folder)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._open: dict[str, zmq.Socket[bytes]] = {}
        self._daemon = 0

    def _socket(self, name: str) -> zmq.Socket[bytes]:
        if name not in self._open:
            socket = self._open[name] = self._context.socket(zmq.DEALER)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.SNDTIMEO, int(_SEND_S * 1000))
            socket.connect(f"ipc://{self._folder / name}")
        return self._open[name]

    def close(self) -> None:
        self._context.destroy(linger=0)

    # --- one question, one reply ------------------------------------------------------------------------------------
    def ping(self, timeout_s: float = REPLY_S) -> wire.Pong:
        return self._call(sockets.CONTROL, wire.Ping(), wire.Pong, timeout_s)

    def status(self) -> Status:
        return self._call(sockets.CONTROL, wire.GetStatus(), Status, REPLY_S)

    def cancel(self, query_id: str | None = None) -> tuple[str, ...]:
        """The queries that will end as cancelled. Raises `UsageError` for an id that does not run or wait."""
        return self._call(sockets.CONTROL, wire.Cancel(query_id=query_id), wire.Cancelling, REPLY_S).query_ids

    def say(self, text: str) -> wire.Report:
        """Returns when it was heard. Raises `BusyNow` while somebody is being answered, `BadText`, `DeviceError`."""
        return self._call(sockets.COMMAND, wire.Say(text=text), wire.Report, SAY_S)

    def listen(self) -> VoiceStatus:
        """Raises `UsageError` (muted, no voice), `DeviceError` without a microphone."""
        return self._call(sockets.CONTROL, wire.Listen(), VoiceStatus, REPLY_S)

    def mute(self, on: bool) -> VoiceStatus:
        return self._call(sockets.CONTROL, wire.Mute(on=on), VoiceStatus, REPLY_S)

    def volume(self, percent: float) -> VoiceStatus:
        return self._call(sockets.CONTROL, wire.Volume(percent=percent), VoiceStatus, REPLY_S)

    def shutdown(self) -> int:
        """The process id of the daemon that is now on its way out."""
        return self._call(sockets.CONTROL, wire.Shutdown(), wire.Stopping, REPLY_S).pid

    def load(self, stage: Stage, keep_alive_s: float | None = None) -> wire.Loaded:
        order = wire.Load(stage=stage, keep_alive_s=keep_alive_s)
        return self._call(sockets.COMMAND, order, wire.Loaded, ORDER_S)

    def unload(self, stage: Stage) -> wire.Unloaded:
        return self._call(sockets.COMMAND, wire.Unload(stage=stage), wire.Unloaded, ORDER_S)

    def _call(self, name: str, command: Any, kind: type[T], timeout_s: float) -> T:
        """Raises `NotRunning` after `timeout_s` (its code is `NOT_ANSWERING`) or when the daemon goes away, or what the
        daemon raised."""
        if name == sockets.COMMAND:
            self._daemon = self.ping().pid
        sent = self._send(name, command)
        give_up = time.monotonic() + timeout_s
        while (left := give_up - time.monotonic()) > 0:
            message = self._receive(name, min(left, _SILENCE_S))
            if message is None and name == sockets.COMMAND:
                self._check_still(self._daemon)
            elif message is None:
                self._check_there()
            if message is None or message.parent != sent:
                continue  # a reply to a question that was given up
            if isinstance(message.data, wire.Failure):
                raise raised(message.data)
            if not isinstance(message.data, kind):
                raise EngineFailed(f"the daemon answered with {type(message.data).__name__}", code="bad-message")
            return message.data
        raise NotRunning(
            f"the daemon at {self._folder} has its socket open, but did not answer within {timeout_s:g} s: it was"
            " stopped, or the machine swaps; try again later, or end that process",
            code=NOT_ANSWERING,
        )

    def _send(self, name: str, command: Any, pcm: bytes = b"") -> str:
        """The id of the command."""
        frames = framing.encode(command, pcm=pcm)
        try:
            self._socket(name).send_multipart(frames)
        except zmq.Again:
            raise NotRunning(f"the daemon at {self._folder} takes nothing", code=NOT_ANSWERING) from None
        return framing.id_of(frames) or ""

    def _receive(self, name: str, timeout_s: float) -> framing.Received | None:
        """None: nothing came in that time."""
        socket = self._socket(name)
        if not socket.poll(max(1, int(timeout_s * 1000))):
            return None
        frames = socket.recv_multipart()
        try:
            return framing.decode(frames, wire.REPLIES, framing.MAX_REPLY_BYTES)
        except UsageError as error:
            raise EngineFailed(
                f"the daemon is of another version than this command: {error.message}", code=error.code
            ) from None

    # --- a query ----------------------------------------------------------------------------------------------------
    def ask(self, ask: wire.Ask, pcm: bytes = b"") -> str:
        """Sends a query; what `replies` takes. `pcm`: s16le mono 16 kHz, when `ask.text` is None.

        Raises `NotRunning`, or `UsageError` for what the daemon would refuse by its size.
        """
        self._daemon = self.ping().pid
        return self._send(sockets.COMMAND, ask, pcm)

    def replies(self, asked: str, within_s: float = math.inf) -> Iterator[tuple[Any, bytes]]:
        """(reply, its PCM) as they come; the last one is a `wire.Report`. An interrupted caller may go on anew.

        Raises what the daemon raised before the query began (`BusyNow`, `UsageError`, `Cancelled`), and `NotRunning`
        when the daemon goes away or the last one has not come `within_s`.
        """
        give_up = time.monotonic() + within_s
        while (left := give_up - time.monotonic()) > 0:
            message = self._receive(sockets.COMMAND, min(_SILENCE_S, left))
            if message is None:
                self._check_still(self._daemon)
            elif message.parent == asked:
                if isinstance(message.data, wire.Failure):
                    raise raised(message.data)
                yield message.data, message.pcm
                if isinstance(message.data, wire.Report):
                    return
        raise NotRunning(f"the daemon gave no report within {within_s:g} s")

    def _check_still(self, pid: int) -> None:
        """A new daemon at the same place knows nothing of our query."""
        self._check_there()
        if self.ping().pid != pid:
            raise NotRunning("the daemon was restarted while it answered; ask again")

    def _check_there(self) -> None:
        if not sockets.somebody_listens(self._folder / sockets.CONTROL):
            raise NotRunning("the daemon has gone; start one with 'assistant run'")


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
