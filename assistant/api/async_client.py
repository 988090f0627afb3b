"""The client of a running daemon for programs with an event loop: many questions at a time, each with its deadline.

What is said and waited for is in `dialogue`, as for the blocking client; the sockets are in `async_steps`.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar

import zmq
import zmq.asyncio

from assistant.api import framing, sockets, wire, wire_events
from assistant.api.async_steps import AsyncSteps
from assistant.api.client import registration
from assistant.api.dialogue import ORDER_S, REPLY_S, SAY_S, SILENCE_S, Call, ping
from assistant.api.feed import WELCOME, Feed
from assistant.errors import AssistantError
from assistant.messages import Stage
from assistant.messages_status import Status, VoiceStatus
from assistant.messages_timers import TimerAction, TimerStatus

T = TypeVar("T")


class AsyncClient(AsyncSteps):
    """`async with AsyncClient() as client:`; used by the tasks of one loop, as many as they like."""

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

    async def timers(self, action: TimerAction = "list", id: str | None = None) -> tuple[TimerStatus, ...]:
        """Those there are, once that was done. Raises `UsageError` for an id that is none of them."""
        return (await self._call(Call(sockets.CONTROL, wire.Timers(action=action, id=id), wire.TimerList))).timers

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
        self, text: str | None = None, *, pcm: bytes = b"", sound: AsyncIterable[bytes] | None = None, **more: Any
    ) -> AsyncIterator[tuple[Any, bytes]]:
        """(reply, its PCM) as they come; the last one is a `wire.Report`. Exactly one of `text`, `pcm` (a recording)
        and `sound` (somebody who still speaks: pieces as they come); sound is s16le mono 16 kHz. `more`: the other
        fields of `wire.Ask`. Whoever stops following ends the query.

        Raises what the daemon raised before the query began (`BusyNow`, `UsageError`, `Cancelled`), `NotRunning` when
        the daemon goes away, and what `sound` raises.
        """
        asked = uuid.uuid4().hex[:16]
        try:
            ask = wire.Ask(text=text, more=sound is not None, **more)
            await self._run(self._dialogue.ask(ask, pcm, id=asked))
        except asyncio.CancelledError:
            self._leave(asked, "")  # it may have been sent already
            raise
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
            if not self._closed:
                await self._run(self._dialogue.sound(asked, b"", last=True))

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
            if not self._closed:
                self._socket(sockets.COMMAND).send_multipart(framing.encode(wire.Register(intents=())))

    async def events(self, *topics: str) -> AsyncIterator[wire_events.Published]:
        """What happens from now on under names that begin with one of `topics` (none = all); `async for event in await
        client.events()`. A number that is missing in `nth` (or `seq`, without topics) was missed. Raises `NotRunning`
        when the daemon goes, even after it was restarted."""
        self._check_open()
        feed = Feed(topics)
        socket = self._context.socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        first = []
        try:
            self._address.connect(socket, sockets.EVENTS)
            for topic in [*feed.topics, WELCOME]:
                socket.subscribe(topic)
            async with asyncio.timeout(REPLY_S):
                while not feed.pid:
                    if (event := feed.take(await socket.recv_multipart())) is not None:
                        first.append(event)
        except TimeoutError:
            socket.close()
            raise self._address.silent("told no events") from None
        except BaseException:  # a task that is cancelled, too
            socket.close()
            raise
        return self._follow(socket, feed, first)

    async def _follow(
        self, socket: zmq.asyncio.Socket, feed: Feed, first: list[wire_events.Published]
    ) -> AsyncIterator[wire_events.Published]:
        with socket:
            for event in first:
                yield event
            while True:
                self._check_open()
                try:
                    something = await socket.poll(int(SILENCE_S * 1000))
                except asyncio.CancelledError:  # so pyzmq calls a socket that was closed
                    if (task := asyncio.current_task()) is not None and not task.cancelling():
                        self._check_open()
                    raise
                if not something:
                    self._address.check_there()
                elif (found := feed.take(await socket.recv_multipart())) is not None:
                    yield found
