"""The client of a running daemon for programs with an event loop: many questions at a time, each with its deadline.

What is said and waited for is in `dialogue`, as for the blocking client; here are the sockets, and who gets which
message. Imports zmq.asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import zmq
import zmq.asyncio

from assistant.api import framing, sockets, wire, wire_events
from assistant.api.addresses import SEND_S, Address, Local
from assistant.api.client import registration
from assistant.api.dialogue import (
    NOT_ANSWERING,
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
    ping,
)
from assistant.api.feed import WELCOME, Feed
from assistant.errors import AssistantError, NotRunning
from assistant.messages import Stage
from assistant.messages_status import Status, VoiceStatus

T = TypeVar("T")


class AsyncClient:
    """`async with AsyncClient() as client:`; used by the tasks of one loop, as many as they like."""

    def __init__(self, folder: Path | None = None, *, address: Address | None = None) -> None:
        """Of the daemon whose sockets are in `folder` (default: this user's), or of the one at `address`."""
        self._given = folder, address
        self._context: zmq.asyncio.Context
        self._open: dict[str, zmq.asyncio.Socket] = {}
        self._readers: set[asyncio.Task[None]] = set()
        self._arrived: dict[str, asyncio.Event] = {}
        """By command that somebody waits for."""
        self._left: set[str] = set()
        """Queries that nobody follows any more, and of which we do not know yet how the daemon calls them."""
        self._broken: AssistantError | None = None

    async def __aenter__(self) -> Self:
        """Raises `NotRunning` when nobody listens, `ConfigError` when it may be somebody else who does."""
        folder, address = self._given
        self._address = address or Local(folder)
        self._address.check()
        self._dialogue = Dialogue(self._address)
        self._context = zmq.asyncio.Context()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What runs for us ends at the daemon, too: it notices at once that we have gone."""
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        self._context.destroy(linger=0)

    # --- one question, one reply ------------------------------------------------------------------------------------
    async def ping(self, timeout_s: float = REPLY_S) -> wire.Pong:
        return await self._call(ping(timeout_s))

    async def status(self) -> Status:
        return await self._call(Call(sockets.CONTROL, wire.GetStatus(), Status))

    async def ps(self) -> wire.Ps:
        return await self._call(Call(sockets.CONTROL, wire.GetPs(), wire.Ps))

    async def snapshot(self) -> wire.Snapshot:
        return await self._call(Call(sockets.CONTROL, wire.GetSnapshot(), wire.Snapshot))

    async def cancel(self, query_id: str | None = None) -> tuple[str, ...]:
        """The queries that will end as cancelled. Raises `UsageError` for an id that does not run or wait."""
        return (await self._call(Call(sockets.CONTROL, wire.Cancel(query_id=query_id), wire.Cancelling))).query_ids

    async def say(self, text: str) -> wire.Report:
        """Returns when it was heard. Raises `BusyNow` while somebody is being answered, `BadText`, `DeviceError`."""
        return await self._call(Call(sockets.COMMAND, wire.Say(text=text), wire.Report, SAY_S))

    async def listen(self) -> VoiceStatus:
        """Raises `UsageError` (muted, no voice), `DeviceError` without a microphone."""
        return await self._call(Call(sockets.CONTROL, wire.Listen(), VoiceStatus))

    async def mute(self, on: bool) -> VoiceStatus:
        return await self._call(Call(sockets.CONTROL, wire.Mute(on=on), VoiceStatus))

    async def volume(self, percent: float) -> VoiceStatus:
        return await self._call(Call(sockets.CONTROL, wire.Volume(percent=percent), VoiceStatus))

    async def shutdown(self) -> int:
        """The process id of the daemon that is now on its way out."""
        return (await self._call(Call(sockets.CONTROL, wire.Shutdown(), wire.Stopping))).pid

    async def load(self, stage: Stage, keep_alive_s: float | None = None) -> wire.Loaded:
        order = wire.Load(stage=stage, keep_alive_s=keep_alive_s)
        return await self._call(Call(sockets.COMMAND, order, wire.Loaded, ORDER_S))

    async def unload(self, stage: Stage) -> wire.Unloaded:
        return await self._call(Call(sockets.COMMAND, wire.Unload(stage=stage), wire.Unloaded, ORDER_S))

    async def answer_intent(self, query_id: str, speech: str = "", error: str | None = None) -> wire.Answered:
        """To a `wire.Handle`. Raises `UsageError` when it comes too late."""
        command = wire.AnswerIntent(query_id=query_id, speech=speech, error=error)
        return await self._call(Call(sockets.COMMAND, command, wire.Answered))

    async def _call(self, call: Call[T]) -> T:
        return await self._run(self._dialogue.call(call))

    # --- a query ----------------------------------------------------------------------------------------------------
    async def ask(
        self,
        text: str | None = None,
        *,
        pcm: bytes = b"",
        sound: AsyncIterable[bytes] | None = None,
        **more: Any,
    ) -> AsyncIterator[tuple[Any, bytes]]:
        """(reply, its PCM) as they come; the last one is a `wire.Report`. Exactly one of `text`, `pcm` (a recording)
        and `sound` (somebody who still speaks: pieces as they come); sound is s16le mono 16 kHz. `more`: the other
        fields of `wire.Ask`. Whoever stops following ends the query.

        Raises what the daemon raised before the query began (`BusyNow`, `UsageError`, `Cancelled`), `NotRunning` when
        the daemon goes away, and what `sound` raises.
        """
        asked = await self._run(self._dialogue.ask(wire.Ask(text=text, more=sound is not None, **more), pcm))
        speaking = asyncio.create_task(self._speak(asked, sound)) if sound is not None else None
        query_id, ended = "", False
        try:
            async for told in self._told(self._dialogue.replies(asked)):
                if isinstance(told.data, wire.Accepted):
                    query_id = told.data.query_id
                ended = isinstance(told.data, wire.Report)
                yield told.data, told.pcm
        except AssistantError:
            ended = True  # there, or with its daemon
            raise
        finally:
            if not ended:
                self._leave(asked, query_id)
            if speaking is not None:
                speaking.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await speaking

    async def _speak(self, asked: str, sound: AsyncIterable[bytes]) -> None:
        """Whatever happens to the sound, the query hears its end."""
        try:
            async for pcm in sound:
                await self._run(self._dialogue.sound(asked, pcm))
        finally:
            await self._run(self._dialogue.sound(asked, b"", last=True))

    def _leave(self, asked: str, query_id: str) -> None:
        """Ends a query, without a wait for the reply."""
        self._dialogue.forget(asked)
        if not query_id:
            self._left.add(asked)
            return
        # sent on the spot, and kept by the socket if it cannot be
        self._socket(sockets.CONTROL).send_multipart(framing.encode(wire.Cancel(query_id=query_id)))

    # --- what others do ---------------------------------------------------------------------------------------------
    async def handle(
        self, intents: Sequence[str], names: Mapping[str, Sequence[str]] | None = None
    ) -> AsyncIterator[Any]:
        """A `wire.Registered`, then each `wire.Handle`, to be answered with `answer_intent`. Ends only with an error:
        `UsageError` for what cannot be registered, `NotRunning` when the daemon goes."""
        try:
            async for told in self._told(self._dialogue.handle(registration(intents, names))):
                yield told.data
        finally:
            if not self._context.closed:
                self._socket(sockets.COMMAND).send_multipart(framing.encode(wire.Register(intents=())))

    async def events(self, *topics: str) -> AsyncIterator[wire_events.Published]:
        """What happens from now on under names that begin with one of `topics` (none = all); `async for event in await
        client.events()`. A number that is missing in `nth` (or `seq`, without topics) was missed. Raises `NotRunning`
        when the daemon goes, even after it was restarted."""
        feed = Feed(topics)
        socket = self._context.socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        self._address.connect(socket, sockets.EVENTS)
        for topic in [*feed.topics, WELCOME]:
            socket.subscribe(topic)
        first = []
        try:
            async with asyncio.timeout(REPLY_S):
                while not feed.pid:
                    if (event := feed.take(await socket.recv_multipart())) is not None:
                        first.append(event)
        except TimeoutError:
            socket.close()
            raise NotRunning(f"the daemon at {self._address} tells no events", code=NOT_ANSWERING) from None
        return self._follow(socket, feed, first)

    async def _follow(
        self, socket: zmq.asyncio.Socket, feed: Feed, first: list[wire_events.Published]
    ) -> AsyncIterator[wire_events.Published]:
        with socket:
            for event in first:
                yield event
            while True:
                if not await socket.poll(int(SILENCE_S * 1000)):
                    self._address.check_there()
                elif (found := feed.take(await socket.recv_multipart())) is not None:
                    yield found

    # --- steps ------------------------------------------------------------------------------------------------------
    async def _run(self, steps: Steps[T]) -> T:
        came = None
        while True:
            try:
                step = steps.send(came)
            except StopIteration as end:
                result: T = end.value
                return result
            came = await self._do(step)

    async def _told(self, steps: Steps[None]) -> AsyncIterator[Told]:
        came = None
        while True:
            try:
                step = steps.send(came)
            except StopIteration:
                return
            came = await self._do(step)
            if isinstance(step, Told):
                yield step

    async def _do(self, step: Send | Wait | Told) -> framing.Received | None:
        match step:
            case Send(socket=name, frames=frames):
                try:
                    async with asyncio.timeout(SEND_S):
                        await self._socket(name).send_multipart(frames)
                except TimeoutError:
                    raise NotRunning(f"the daemon at {self._address} takes nothing", code=NOT_ANSWERING) from None
            case Wait(parent=parent, timeout_s=timeout_s):
                if (message := self._dialogue.take(parent)) is not None:
                    return message
                if self._broken is not None:
                    raise self._broken
                arrived = self._arrived[parent] = asyncio.Event()
                try:
                    async with asyncio.timeout(timeout_s):
                        await arrived.wait()
                except TimeoutError:
                    return None
                finally:
                    self._arrived.pop(parent, None)
                return self._dialogue.take(parent)
        return None

    def _socket(self, name: str) -> zmq.asyncio.Socket:
        if name not in self._open:
            socket = self._open[name] = self._context.socket(zmq.DEALER)
            socket.setsockopt(zmq.LINGER, 0)
            self._address.connect(socket, name)
            self._readers.add(asyncio.create_task(self._read(socket)))
        return self._open[name]

    async def _read(self, socket: zmq.asyncio.Socket) -> None:
        """Every message to whoever waits for it."""
        try:
            while True:
                message = self._dialogue.put(await socket.recv_multipart())
                parent = message.parent or ""
                if parent in self._left and isinstance(message.data, wire.Accepted | wire.Failure):
                    self._left.discard(parent)
                    if isinstance(message.data, wire.Accepted):
                        self._leave(parent, message.data.query_id)
                if parent in self._arrived:
                    self._arrived[parent].set()
        except AssistantError as error:
            self._broken = error
            for arrived in self._arrived.values():
                arrived.set()
