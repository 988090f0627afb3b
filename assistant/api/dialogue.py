"""What a client says and waits for, without a socket: shared by the blocking and the asynchronous client.

Each method is a generator of steps. Whoever drives it does what a `Send` says, answers a `Wait` with the message that
came (None: nothing came in that time), and hands a `Told` to the caller. Errors of the daemon are raised as they were
there. Pure but for the clock.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from assistant.api import framing, sockets, wire
from assistant.api.addresses import Address
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

T = TypeVar("T")

REPLY_S = 5.0
"""For a reply that no work stands behind: it takes milliseconds, and longer where pages come back from a slow card."""
SAY_S = 600.0
"""The longest text that is taken has four minutes of speech."""
ORDER_S = 180.0
"""For a load, which may lay out weights first."""
SILENCE_S = 2.0
"""After this we look whether the daemon is still there."""

_BY_EXIT_CODE: dict[int, type[AssistantError]] = {
    ExitCode.USAGE: UsageError,
    ExitCode.NOT_RUNNING: NotRunning,
    ExitCode.BUSY: BusyNow,
    ExitCode.MEMORY: MemoryRefused,
    ExitCode.MODEL: ModelError,
    ExitCode.AUDIO_DEVICE: DeviceError,
    ExitCode.CANCELLED: Cancelled,
}


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One question with one reply."""

    socket: str
    command: wire.Data
    kind: type[T]
    """Of the reply."""
    timeout_s: float = REPLY_S


@dataclass(frozen=True, slots=True)
class Send:
    socket: str
    frames: list[bytes]


@dataclass(frozen=True, slots=True)
class Wait:
    """For the next message that belongs to `parent`: see `Dialogue.put` and `Dialogue.take`."""

    socket: str
    parent: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Told:
    data: Any
    pcm: bytes = b""


Steps = Generator[Send | Wait | Told, framing.Received | None, T]


class Walk(Generic[T]):
    """`while (step := walk.on(came)) is not None:` do the step; `came` is what its `Wait` brought."""

    result: T
    """Behind the last step."""

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps

    def on(self, came: framing.Received | None) -> Send | Wait | Told | None:
        """The next step; None behind the last one. Raises what the steps raise."""
        try:
            return self._steps.send(came)
        except StopIteration as end:
            self.result = end.value
            return None


def closed() -> UsageError:
    return UsageError("this client is closed; make another one", code="client-closed")


def raised(told: wire.Failure) -> AssistantError:
    """The error of a reply, with the exit code and the retry hint that it had where it was raised."""
    base = _BY_EXIT_CODE.get(told.exit_code, StageError)
    error = base(told.message, code=told.code, stage=told.stage, retry_after_ms=told.retry_after_ms)
    error.__dict__["retryable"] = told.retryable  # of this one, whatever its class says
    return error


def ping(timeout_s: float = REPLY_S) -> Call[wire.Pong]:
    return Call(sockets.CONTROL, wire.Ping(), wire.Pong, timeout_s)


def decoded(frames: list[bytes], kinds: Any = wire.REPLIES) -> framing.Received:
    """Raises `EngineFailed` for what is of another version than ours."""
    try:
        return framing.decode(frames, kinds, framing.MAX_REPLY_BYTES)
    except UsageError as error:
        raise EngineFailed(
            f"the daemon is of another version than this command: {error.message}", code=error.code
        ) from None


class Dialogue:
    """What one client has said and not yet heard everything of."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._mail: dict[str, deque[framing.Received]] = {}
        """By command: replies that nobody has taken yet. A command that is not here was given up."""
        self._pids: dict[str, int] = {}
        """By query: the daemon that was asked."""

    # --- what has come ----------------------------------------------------------------------------------------------
    def put(self, frames: list[bytes]) -> framing.Received:
        """A message that came from a socket; a reply to what was given up is forgotten."""
        message = decoded(frames)
        if message.parent in self._mail:
            self._mail[message.parent].append(message)
        return message

    def take(self, parent: str) -> framing.Received | None:
        mail = self._mail.get(parent)
        return mail.popleft() if mail else None

    def forget(self, asked: str) -> None:
        """Nobody will take what still comes for it."""
        self._mail.pop(asked, None)
        self._pids.pop(asked, None)

    # --- one question, one reply ------------------------------------------------------------------------------------
    def call(self, call: Call[T]) -> Steps[T]:
        """Raises `NotRunning` after its time (with the code `NOT_ANSWERING`) or when the daemon goes away, or what the
        daemon raised."""
        pid = (yield from self.call(ping())).pid if call.socket == sockets.COMMAND else 0
        sent = yield from self._send(call.socket, call.command)
        try:
            return (yield from self._reply(call, sent, pid))
        finally:
            self.forget(sent)

    def _reply(self, call: Call[T], sent: str, pid: int) -> Steps[T]:
        give_up = time.monotonic() + call.timeout_s
        while (left := give_up - time.monotonic()) > 0:
            message = yield Wait(call.socket, sent, min(left, SILENCE_S))
            if message is None:
                yield from self._check_still(pid)
                continue
            if isinstance(message.data, wire.Failure):
                raise raised(message.data)
            if not isinstance(message.data, call.kind):
                raise EngineFailed(f"the daemon answered with {type(message.data).__name__}", code="bad-message")
            return message.data
        raise self._address.silent(f"did not answer within {call.timeout_s:g} s")

    def _send(self, socket: str, command: wire.Data, pcm: bytes = b"", id: str | None = None) -> Steps[str]:
        """The id of the command, whose replies are kept from now on."""
        frames = framing.encode(command, pcm=pcm, id=id)
        sent = framing.id_of(frames) or ""
        self._mail[sent] = deque()
        try:
            yield Send(socket, frames)
        except BaseException:
            self.forget(sent)
            raise
        return sent

    def _check_still(self, pid: int) -> Steps[None]:
        """A new daemon at the same place knows nothing of what was asked; `pid` 0 = any will do."""
        self._address.check_there()
        if pid and (yield from self.call(ping())).pid != pid:
            raise NotRunning("the daemon was restarted while it answered; ask again")

    # --- a query ----------------------------------------------------------------------------------------------------
    def ask(self, ask: wire.Ask, pcm: bytes = b"", id: str | None = None) -> Steps[str]:
        """Sends a query; what `replies` takes: its id, which may be chosen."""
        pid = (yield from self.call(ping())).pid
        sent = yield from self._send(sockets.COMMAND, ask, pcm, id)
        self._pids[sent] = pid
        return sent

    def sound(self, asked: str, pcm: bytes, *, last: bool = False) -> Steps[None]:
        """More of the recording of an `ask` with `more`."""
        yield Send(sockets.COMMAND, framing.encode(wire.AskSound(ask=asked, last=last), pcm=pcm))

    def replies(self, asked: str, within_s: float = math.inf) -> Steps[None]:
        """Told as they come; the last one is a `wire.Report`. May begin anew after it was broken off.

        Raises what the daemon raised before the query began (`BusyNow`, `UsageError`, `Cancelled`), and `NotRunning`
        when the daemon goes away or the last one has not come `within_s`.
        """
        give_up = time.monotonic() + within_s
        while (left := give_up - time.monotonic()) > 0:
            message = yield Wait(sockets.COMMAND, asked, min(SILENCE_S, left))
            if message is None:
                yield from self._check_still(self._pids.get(asked, -1))
                continue
            if isinstance(message.data, wire.Failure | wire.Report):
                self.forget(asked)
            if isinstance(message.data, wire.Failure):
                raise raised(message.data)
            yield Told(message.data, message.pcm)
            if isinstance(message.data, wire.Report):
                return
        raise NotRunning(f"the daemon gave no report within {within_s:g} s")

    # --- intents that we carry out ----------------------------------------------------------------------------------
    def handle(self, register: wire.Register) -> Steps[None]:
        """Tells a `wire.Registered`, then each `wire.Handle`. Raises what `call` does, and ends with the daemon only:
        one that was restarted knows of no registration."""
        pid = (yield from self.call(ping())).pid
        sent = yield from self._send(sockets.COMMAND, register)
        try:
            call = Call(sockets.COMMAND, register, wire.Registered)
            yield Told((yield from self._reply(call, sent, pid)))
            while True:
                message = yield Wait(sockets.COMMAND, sent, SILENCE_S)
                if message is None:
                    yield from self._check_still(pid)
                elif isinstance(message.data, wire.Failure):
                    raise raised(message.data)
                else:
                    yield Told(message.data)
        finally:
            self.forget(sent)
