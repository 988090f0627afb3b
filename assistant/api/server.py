"""The daemon's two ROUTER sockets: commands, and controls that never wait behind them. Imports zmq; knows no pipeline.

Every message gets an answer, whatever is in it; nothing that a client sends or stops reading ends the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import zmq

from assistant import __version__
from assistant.api import framing, sockets, wire
from assistant.api.endpoint import Endpoint, Limits, Peer, PeerGone, PeerSlow
from assistant.api.queries import Job, Queries, QueryEvents
from assistant.errors import AssistantError, BusyNow, Cancelled, EngineFailed, UsageError
from assistant.messages import Stage
from assistant.messages_status import Status, VoiceStatus
from assistant.query import Answer, Query

log = logging.getLogger(__name__)

_COMMAND_LIMITS = Limits(framing.MAX_FRAME_BYTES, framing.MAX_HEADER_BYTES, framing.MAX_PCM_BYTES, framing.MAX_FRAMES)
_CONTROL_LIMITS = Limits(
    framing.MAX_HEADER_BYTES, framing.MAX_HEADER_BYTES, framing.MAX_HEADER_BYTES, framing.MAX_FRAMES
)
_MAX_ORDERS = 8
"""Loads and unloads at the same time."""
_BUSY_ORDERS_MS = 1000
_LAST_REPLIES_S = 0.3


class Backend(Protocol):
    """What the server speaks for: the assistant of this process."""

    async def answer(self, query: Query) -> Answer: ...
    async def load(self, stage: Stage, keep_alive_s: float | None = None) -> None: ...
    async def unload(self, stage: Stage) -> bool: ...
    def status(self) -> Status: ...
    @property
    def voice(self) -> Voice | None:
        """None: it runs without microphone and speaker."""


class Voice(Protocol):
    async def say(self, text: str) -> Answer: ...
    def listen(self) -> None: ...
    def mute(self, on: bool) -> None: ...
    def volume(self, percent: float) -> None: ...
    def stop(self, query_id: str | None = None) -> tuple[str, ...]: ...
    def status(self) -> VoiceStatus: ...


class Server:
    """`async with Server(...)`: its sockets are there inside, and gone afterwards."""

    def __init__(self, backend: Backend, events: QueryEvents, folder: Path, stop: Callable[[], None]) -> None:
        """`folder` is prepared and locked by the caller; `stop` is called for `shutdown`."""
        self._backend, self._stop = backend, stop
        self._queries = Queries(backend.answer, events)
        self._orders: dict[asyncio.Task[None], _Order] = {}
        self._stopping = False
        self._deliveries: set[asyncio.Task[None]] = set()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._commands = Endpoint(self._context, folder / sockets.COMMAND, _COMMAND_LIMITS, self._command)
        self._controls = Endpoint(self._context, folder / sockets.CONTROL, _CONTROL_LIMITS, self._control)

    async def __aenter__(self) -> Self:
        try:
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
        for task, order in self._orders.items():
            # told first: what it does may take longer to stop than we wait
            self._tell(order, wire.failure(Cancelled(f"the daemon is stopping; {order.name} was cancelled")))
            task.cancel()
        await self._queries.close()
        if leftover := self._deliveries | set(self._orders):
            _, late = await asyncio.wait(leftover, timeout=_LAST_REPLIES_S)
            for task in late:
                task.cancel()
        await self._close()

    async def _close(self) -> None:
        await self._commands.close()
        await self._controls.close()
        # waits for the last replies to leave, a tenth of a second at most
        self._context.term()

    # --- command.sock -----------------------------------------------------------------------------------------------
    def _command(self, peer: Peer, frames: list[bytes], refused: AssistantError | None) -> None:
        with self._answering(self._commands, peer, frames):
            if refused is not None:
                raise refused
            message = framing.decode(frames, wire.COMMANDS)
            if self._stopping:
                raise Cancelled("the daemon is stopping")
            if message.pcm and not isinstance(message.data, wire.Ask):
                raise UsageError("only `ask` takes sound", code="bad-message")
            match message.data:
                case wire.Ask():
                    self._ask(peer, message)
                case wire.Say(text=text):
                    self._begin(_Order(peer, message.id, "what is said"), self._say(text))
                case wire.Load(stage=stage, keep_alive_s=keep_alive_s):
                    self._begin(_Order(peer, message.id, f"the load of {stage}"), self._load(stage, keep_alive_s))
                case wire.Unload(stage=stage):
                    self._begin(_Order(peer, message.id, f"the unload of {stage}"), self._unload(stage))

    def _ask(self, peer: Peer, message: framing.Received) -> None:
        ask: wire.Ask = message.data
        if (ask.text is None) != bool(message.pcm):
            raise UsageError("`ask` takes a `text` or PCM frames behind the header, and not both", code="bad-message")
        if len(message.pcm) % 2:
            raise UsageError("the PCM frames hold half a sample; s16le mono at 16 kHz is expected", code="bad-message")
        outbox: asyncio.Queue[list[bytes]] = asyncio.Queue()

        def tell(reply: wire.Reply, pcm: bytes) -> None:
            outbox.put_nowait(framing.encode(reply, parent=message.id, pcm=pcm))

        job = Job(ask, message.pcm, tell)
        self._queries.submit(job)

        def abandoned(_: object) -> None:
            self._abandoned(job)

        # at once, not when there is something to tell: a load or a long recording may be silent for a while
        peer.left.add_done_callback(abandoned)
        task = asyncio.create_task(self._deliver(peer, outbox, job))
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)
        # a client may stay for years: nothing of its queries stays with it
        task.add_done_callback(lambda _: peer.left.remove_done_callback(abandoned))

    def _abandoned(self, job: Job) -> None:
        if not job.ended:
            log.info("the caller of query %s has gone", job.id)
            self._queries.cancel(job.id)

    async def _deliver(self, peer: Peer, outbox: asyncio.Queue[list[bytes]], job: Job) -> None:
        """Sends what the query tells, in order, up to its last reply. A caller that has gone needs no answer."""
        while True:
            frames = await outbox.get()
            try:
                await self._commands.send(peer, frames)
            except PeerGone:
                return self._abandoned(job)
            if job.ended and outbox.empty():
                return

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

    def _begin(self, order: _Order, work: Coroutine[Any, Any, wire.Reply]) -> None:
        if len(self._orders) >= _MAX_ORDERS:
            work.close()
            raise BusyNow(f"{_MAX_ORDERS} loads and unloads are under way", retry_after_ms=_BUSY_ORDERS_MS)
        doing = asyncio.ensure_future(work)
        task = asyncio.create_task(self._fulfil(order, doing))
        # a task that is cancelled before its first step takes none: what it waits for has to hear of it, too
        task.add_done_callback(lambda _: doing.cancel())
        self._orders[task] = order
        task.add_done_callback(lambda ended: self._orders.pop(ended))

    async def _fulfil(self, order: _Order, work: asyncio.Future[wire.Reply]) -> None:
        reply: wire.Reply
        try:
            reply = await work
        except AssistantError as error:
            reply = wire.failure(error)
        except asyncio.CancelledError:
            self._tell(order, wire.failure(Cancelled(f"{order.name} was cancelled")))
            raise
        except Exception as error:
            log.exception("%s ended with an error of ours", order.name)
            reply = wire.failure(_ours(error))
        if not order.told:
            order.told = True
            with contextlib.suppress(PeerGone):
                await self._commands.send(order.peer, framing.encode(reply, parent=order.parent))

    def _tell(self, order: _Order, reply: wire.Reply) -> None:
        """Once, and without a wait."""
        if not order.told:
            order.told = True
            self._reply(self._commands, order.peer, framing.encode(reply, parent=order.parent))

    # --- control.sock -----------------------------------------------------------------------------------------------
    def _control(self, peer: Peer, frames: list[bytes], refused: AssistantError | None) -> None:
        """Answered on the spot: nothing here waits for anything."""
        with self._answering(self._controls, peer, frames):
            if refused is not None:
                raise refused
            message = framing.decode(frames, wire.CONTROLS)
            reply = framing.encode(self._answer_control(message.data), parent=message.id)
            self._reply(self._controls, peer, reply)

    def _answer_control(self, data: Any) -> wire.Reply:
        match data:
            case wire.Ping():
                return wire.Pong(version=__version__, pid=os.getpid())
            case wire.GetStatus():
                return self._backend.status()
            case wire.Cancel(query_id=query_id):
                found = self._queries.cancel(query_id)
                if self._backend.voice is not None:
                    found += self._backend.voice.stop(query_id)
                if query_id is not None and not found:
                    raise UsageError(f"no query {query_id[:64]!r} runs or waits here", code="query-unknown")
                return wire.Cancelling(query_ids=found)
            case wire.Listen() | wire.Mute() | wire.Volume():
                return self._answer_voice(data)
            case _:
                log.info("a client asks for the end")  # which comes once the reply has left
                asyncio.get_running_loop().call_soon(self._stop)
                return wire.Stopping(pid=os.getpid())

    def _voice(self) -> Voice:
        if (voice := self._backend.voice) is None:
            raise UsageError(
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

    # --- replies ----------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _answering(self, endpoint: Endpoint, peer: Peer, frames: list[bytes]) -> Iterator[None]:
        """Whatever is raised inside is the answer."""
        try:
            yield
        except AssistantError as error:
            told = error.with_traceback(None)  # which holds the frames, and by `told` itself, until the next collection
        except Exception as error:
            log.exception("a message ended with an error of ours")
            told = _ours(error)
        else:
            return
        self._reply(endpoint, peer, framing.encode(wire.failure(told), parent=framing.id_of(frames)))

    def _reply(self, endpoint: Endpoint, peer: Peer, frames: list[bytes]) -> None:
        """A reply for which a client has left no room is lost: nobody waits for one that does not read."""
        try:
            endpoint.send_now(peer, frames)
        except PeerSlow:
            log.info("a client does not read; a reply to it is lost")
        except PeerGone:
            pass


@dataclass(slots=True)
class _Order:
    """A load or an unload that is under way."""

    peer: Peer
    parent: str
    name: str
    told: bool = False


def _ours(error: Exception) -> AssistantError:
    return EngineFailed(f"the daemon made a mistake ({type(error).__name__}); its log has more", code="internal")
