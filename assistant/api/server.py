"""The daemon's sockets: commands, controls that never wait behind them, and events. Imports zmq; knows no pipeline.

Every message gets an answer, whatever is in it; nothing that a client sends or stops reading ends the daemon.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import zmq

from assistant import __version__
from assistant.api import admission, framing, rights, sockets, wire
from assistant.api.asking import Asking
from assistant.api.backend import Backend, Voice
from assistant.api.endpoint import Endpoint, Gate, Limits, Peer
from assistant.api.events import Publisher
from assistant.api.handlers import Handlers
from assistant.api.orders import Orders
from assistant.api.queries import Queries, QueryEvents
from assistant.api.replies import Replies
from assistant.api.security import Guard, Network, Place
from assistant.audio.front_messages import EndpointSettings
from assistant.errors import AssistantError, Cancelled, DeviceError, UsageError
from assistant.messages import Stage

log = logging.getLogger(__name__)

_COMMAND_LIMITS = Limits(framing.MAX_FRAME_BYTES, framing.MAX_HEADER_BYTES, framing.MAX_PCM_BYTES, framing.MAX_FRAMES)
_CONTROL_LIMITS = Limits(
    framing.MAX_HEADER_BYTES, framing.MAX_HEADER_BYTES, framing.MAX_HEADER_BYTES, framing.MAX_FRAMES
)
_LAST_REPLIES_S = 0.3


class Server:
    """`async with Server(...)`: its sockets are there inside, and gone afterwards."""

    def __init__(
        self,
        backend: Backend,
        events: QueryEvents,
        folder: Path,
        stop: Callable[[], None],
        handlers: Handlers | None = None,
        line: admission.Limits | None = None,
        endpoint: EndpointSettings | None = None,
        network: Network | None = None,
    ) -> None:
        """`folder` is prepared and locked by the caller; `stop` is called for `shutdown`; `handlers`: what the backend
        asks for intents that other programs carry out; `line`: how many queries run and wait; `endpoint`: when somebody
        has finished speaking whose sound a client sends; `network`: listen at TCP as well."""
        self._handlers = Handlers() if handlers is None else handlers
        self._backend, self._events, self._stop = backend, events, stop
        self._queries = Queries(backend.answer, events, limits=line)
        self._stopping = False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._guard = None if network is None else Guard(self._context, network)
        self._commands = Endpoint(
            self._context, folder / sockets.COMMAND, _COMMAND_LIMITS, self._command, gate=self._gate(Place.COMMAND)
        )
        self._controls = Endpoint(
            self._context, folder / sockets.CONTROL, _CONTROL_LIMITS, self._control, gate=self._gate(Place.CONTROL)
        )
        self._replies, self._control_replies = Replies(self._commands), Replies(self._controls)
        self._orders = Orders(self._replies)
        self._asking = Asking(self._queries, self._replies, endpoint or EndpointSettings())
        self._publisher = Publisher(self._context, folder / sockets.EVENTS, gate=self._gate(Place.EVENTS))

    @property
    def queries(self) -> Queries:
        """The line, for whoever brings queries another way."""
        return self._queries

    async def __aenter__(self) -> Self:
        try:
            if self._guard is not None:
                self._guard.open()
            await self._publisher.open()
            self._events.listeners.append(self._publisher)
            await self._commands.open()
            await self._controls.open()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancels what runs and tells its callers, within a fraction of a second."""
        self._stopping = True
        self._orders.stop()
        await self._queries.close()
        if leftover := self._asking.deliveries | self._orders.tasks:
            _, late = await asyncio.wait(leftover, timeout=_LAST_REPLIES_S)
            for task in late:
                task.cancel()
        await self._close()

    async def _close(self) -> None:
        await self._commands.close()
        await self._controls.close()
        if self._publisher in self._events.listeners:
            self._events.listeners.remove(self._publisher)
        await self._publisher.close()
        if self._guard is not None:
            self._guard.close()
        # waits for the last replies to leave, a tenth of a second at most; a socket that could not be made whole goes
        self._context.destroy(linger=0)

    # --- clients from the network ----------------------------------------------------------------------------------
    def _gate(self, place: Place) -> Gate | None:
        return None if self._guard is None else Gate(self._guard, place)

    def _permit(self, peer: Peer, command: Any) -> None:
        """Raises `UsageError` code "forbidden"; never for a client of this machine."""
        if peer.user is None or self._guard is None:
            return
        self._guard.permit(peer.user.key, command)
        if isinstance(command, wire.Cancel):
            owned = self._asking.asked_by(command.query_id) == peer.user.key
            rights.may_cancel(self._guard.rights(peer.user.key), command.query_id, owned)

    # --- command.sock -----------------------------------------------------------------------------------------------
    def _command(self, peer: Peer, frames: list[bytes], refused: AssistantError | None) -> None:
        with self._replies.answering(peer, frames):
            if refused is not None:
                raise refused
            message = framing.decode(frames, wire.COMMANDS)
            self._permit(peer, message.data)
            if self._stopping:
                raise Cancelled("the daemon is stopping")
            if message.pcm and not isinstance(message.data, wire.Ask | wire.AskSound):
                raise UsageError("only `ask` and `ask-sound` take sound", code="bad-message")
            match message.data:
                case wire.Ask():
                    self._asking.ask(peer, message)
                case wire.AskSound():
                    self._asking.sound(peer, message)
                case wire.Say(text=text):
                    self._orders.begin(peer, message.id, "what is said", self._say(text), for_them=True)
                case wire.Load(stage=stage, keep_alive_s=keep_alive_s):
                    self._orders.begin(peer, message.id, f"the load of {stage}", self._load(stage, keep_alive_s))
                case wire.Register():
                    still = functools.partial(self._permit, peer, message.data)
                    registered = self._handlers.register(peer, message, self._replies, still)
                    self._replies.now(peer, registered, message.id)
                case wire.AnswerIntent():
                    self._replies.now(peer, self._handlers.answer(peer.caller, message.data), message.id)
                case wire.Unload(stage=stage):
                    self._orders.begin(peer, message.id, f"the unload of {stage}", self._unload(stage))

    async def _load(self, stage: Stage, keep_alive_s: float | None) -> wire.Loaded:
        await self._backend.load(stage, keep_alive_s)
        rows = (row for row in self._backend.status().stages if row.name == stage)
        return wire.Loaded(stage=stage, status=next(rows, None))

    async def _say(self, text: str) -> wire.Reply:
        answer = await self._voice().say(text)
        if answer.error is not None:
            raise answer.error
        return wire.report(answer.report, None)

    async def _unload(self, stage: Stage) -> wire.Unloaded:
        return wire.Unloaded(stage=stage, unloaded=await self._backend.unload(stage))

    # --- control.sock -----------------------------------------------------------------------------------------------
    def _control(self, peer: Peer, frames: list[bytes], refused: AssistantError | None) -> None:
        """Answered on the spot: nothing here waits for anything."""
        with self._control_replies.answering(peer, frames):
            if refused is not None:
                raise refused
            message = framing.decode(frames, wire.CONTROLS)
            self._permit(peer, message.data)
            self._control_replies.now(peer, self._answer_control(message.data), message.id)

    def _answer_control(self, data: Any) -> wire.Reply:
        match data:
            case wire.Ping():
                return wire.Pong(version=__version__, pid=os.getpid())
            case wire.GetStatus():
                return self._backend.status()
            case wire.GetPs():
                status = self._backend.status()
                return wire.Ps(stages=status.stages, memory=status.memory, pressure=status.pressure.level)
            case wire.GetSnapshot():
                status, events = self._backend.status(), self._publisher
                return wire.Snapshot(seq=events.seq, time=round(time.time(), 3), counts=events.counts, status=status)
            case wire.Cancel(query_id=query_id):
                found = self._queries.cancel(query_id)
                if self._backend.voice is not None:
                    found += self._backend.voice.stop(query_id)
                if query_id is not None and not found:
                    raise UsageError(f"no query {query_id[:64]!r} runs or waits here", code="query-unknown")
                return wire.Cancelling(query_ids=found)
            case wire.Timers():
                return self._answer_timers(data)
            case wire.Listen() | wire.Mute() | wire.Volume():
                return self._answer_voice(data)
            case _:
                log.info("a client asks for the end")  # which comes once the reply has left
                asyncio.get_running_loop().call_soon(self._stop)
                return wire.Stopping(pid=os.getpid())

    def _answer_timers(self, order: wire.Timers) -> wire.TimerList:
        if (timers := self._backend.timers) is None:
            raise UsageError("there are no timers here", code="no-timers")
        if order.action != "list":
            if order.id is None:
                raise UsageError(f"`timers` with the action {order.action} needs the `id` of a timer")
            timers.act(order.action, order.id)
        return wire.TimerList(timers=timers.all())

    def _voice(self) -> Voice:
        if (voice := self._backend.voice) is None:
            raise DeviceError(
                "the daemon runs without microphone and speaker; start it with audio.enabled = true", code="no-voice"
            )
        return voice

    def _answer_voice(self, data: Any) -> wire.Reply:
        voice = self._voice()
        match data:
            case wire.Mute(on=on):
                voice.mute(on)
            case wire.Volume(percent=percent):
                voice.volume(percent)
            case _:
                voice.listen()
        return voice.status()
