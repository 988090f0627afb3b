"""One client: takes its events, works off what it asks for, one after the other. Imports `wyoming`'s events.

Reads on while it works, so that a client that leaves is noticed, and its work ends. Any error is told as an `error`
event with our code, and then the connection is closed: Home Assistant would wait for ever else.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from wyoming.error import Error
from wyoming.event import Event, Eventable, async_write_event
from wyoming.info import Info
from wyoming.ping import Pong
from wyoming.wake import Detection, NotDetected

from assistant.api.queries import Queries
from assistant.api.wyoming import jobs, sound
from assistant.api.wyoming.backend import Backend
from assistant.api.wyoming.framing import field, read_event
from assistant.api.wyoming.wishes import Wishes
from assistant.errors import AssistantError, BusyNow, Cancelled, UsageError
from assistant.messages import Stage

log = logging.getLogger(__name__)

MAX_WAITING = 4
"""Requests of one client."""
IDLE_S = 60.0
WRITE_S = 30.0
"""That a client that does not read has: one that plays what it gets reads as slowly as it plays."""
_MAX_WAKES = 8
_Job = Callable[[], Coroutine[Any, Any, None]]


class Session:
    def __init__(
        self,
        backend: Backend,
        queries: Queries,
        info: Callable[[], Info],
        room: sound.Room,
        wishes: Wishes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        idle_s: float = IDLE_S,
    ) -> None:
        self._backend, self._queries = backend, queries
        self._info, self._room, self._wishes = info, room, wishes
        self._reader, self._writer = reader, writer
        self._idle_s = idle_s
        self._last = self._now()
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue(MAX_WAITING)
        self._working = False
        self._recording: sound.Recording | None = None
        """That comes in now."""
        self._recordings: set[sound.Recording] = set()
        """All that hold room."""
        self._texts: jobs.Texts | None = None
        """Of a synthesis whose text still comes."""
        self._transcribes = self._detects = False
        self._wakes: asyncio.Queue[str] = asyncio.Queue(_MAX_WAKES)

    async def run(self) -> None:
        """Until the client leaves, or something is wrong. Closes the connection."""
        parts: list[Coroutine[Any, Any, None]] = [self._read(), self._work(), self._watch(), self._tell_of_wakes()]
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for recording in list(self._recordings):
                self._forget(recording)
        wrong = [result for task, result in zip(tasks, results, strict=True) if task in done]
        await self._part(next((one for one in wrong if isinstance(one, Exception)), None))

    def woke(self, word: str) -> None:
        """A wake word was heard by the daemon's microphone."""
        if self._detects and not self._wakes.full():
            self._wakes.put_nowait(word)

    # --- its parts --------------------------------------------------------------------------------------------------
    async def _read(self) -> None:
        while (event := await read_event(self._reader)) is not None:
            self._last = self._now()
            await self._take(event)
            await asyncio.sleep(0)  # whatever has arrived with it: others have their turn in between

    async def _work(self) -> None:
        while True:
            job = await self._jobs.get()
            self._working = True
            await job()
            self._working, self._last = False, self._now()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._idle_s / 4)
            waits_for_us = self._detects or (self._working and self._texts is None)
            if not waits_for_us and self._now() - self._last > self._idle_s:
                raise UsageError(f"nothing came for {self._idle_s:g} s", code="idle-timeout")

    async def _tell_of_wakes(self) -> None:
        while True:
            await self._send(Detection(name=await self._wakes.get()))

    # --- what comes -------------------------------------------------------------------------------------------------
    async def _take(self, event: Event) -> None:
        """Raises what is wrong with it. Events that nobody knows are dropped, as the protocol wants it."""
        services = self._backend.services
        self._wishes.look(event)
        match event.type:
            case "describe":
                await self._send(self._info())
            case "ping":
                await self._send(Pong(text=event.data.get("text")))
            case "transcribe":
                if not self._transcribes:
                    services.ahead(Stage.ASR)
                self._transcribes = True
            case "detect":
                self._detects = True
            case "audio-start" | "audio-chunk" | "audio-stop":
                await self._sound(event)
            case "synthesize" if self._texts is None:
                texts = jobs.Texts()
                texts.feed(field(event, "text", str))
                texts.end()
                self._begin(functools.partial(jobs.speak, services, texts, self._send, streamed=False))
            case "synthesize-start" | "synthesize-chunk" | "synthesize-stop":
                self._text(event)
            case "recognize":
                text = field(event, "text", str)
                self._begin(functools.partial(jobs.recognise, services, text, event.data.get("context"), self._send))
            case "transcript":
                text, context = field(event, "text", str), event.data.get("context")
                async with jobs.not_handled(context, self._send):
                    self._begin(functools.partial(jobs.ask, self._queries, self, text, context, self._send))

    async def _sound(self, event: Event) -> None:
        """Belongs to a `transcribe`, also without one. Whoever only wants to hear of wake words sends it in vain: they
        are listened for at the daemon's own microphone."""
        if self._detects and not self._transcribes:
            if event.type == "audio-stop":
                await self._send(NotDetected())
            return
        if event.type != "audio-stop":
            numbers = (field(event, name, int) for name in ("rate", "width", "channels"))
            format = sound.checked(*numbers)
            if format != sound.OURS:
                await asyncio.to_thread(sound.prepare)
            if event.type == "audio-start" or self._recording is None:
                self._forget(self._recording)
                self._recording = sound.Recording(self._room)
                self._recordings.add(self._recording)
            await self._recording.add(event.payload or b"", format)
        elif (recording := self._recording) is not None:
            self._begin(functools.partial(self._transcribe, recording))
            self._recording, self._transcribes = None, False

    async def _transcribe(self, recording: sound.Recording) -> None:
        try:
            await jobs.transcribe(self._backend.services, recording.finish(), self._send)
        finally:
            self._forget(recording)

    def _text(self, event: Event) -> None:
        if event.type == "synthesize-start":
            if self._texts is not None:
                raise UsageError("the text before has not ended: send synthesize-stop", code="bad-message")
            self._backend.services.ahead(Stage.TTS)
            texts = self._texts = jobs.Texts()
            self._begin(functools.partial(jobs.speak, self._backend.services, texts, self._send, streamed=True))
        elif self._texts is None:
            raise UsageError("there is no synthesize-start before it", code="bad-message")
        elif event.type == "synthesize-chunk":
            self._texts.feed(field(event, "text", str))
        else:
            self._texts.end()
            self._texts = None

    def _begin(self, job: _Job) -> None:
        try:
            self._jobs.put_nowait(job)
        except asyncio.QueueFull:
            raise BusyNow(f"{MAX_WAITING} requests of this client wait already", retry_after_ms=1000) from None

    def _forget(self, recording: sound.Recording | None) -> None:
        """Gives its room back."""
        if recording is not None:
            recording.close()
            self._recordings.discard(recording)

    # --- what goes --------------------------------------------------------------------------------------------------
    async def _send(self, what: Eventable) -> None:
        """Raises `Cancelled` for a client that has left, or does not read."""
        try:
            await asyncio.wait_for(async_write_event(what.event(), self._writer), WRITE_S)
        except (TimeoutError, ConnectionError):
            self._writer.transport.abort()
            raise Cancelled("the client has gone") from None

    async def _part(self, error: Exception | None) -> None:
        if error is not None and not isinstance(error, AssistantError):
            log.error("a Wyoming client's request ended with an error of ours", exc_info=error)
            error = UsageError(f"the daemon made a mistake ({type(error).__name__}); its log has more", code="internal")
        if isinstance(error, AssistantError) and not self._writer.is_closing():
            log.info("a Wyoming client is told %s", error.code)
            await refuse(self._writer, error)
        self._writer.close()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


async def refuse(writer: asyncio.StreamWriter, error: AssistantError) -> None:
    """Tells an error; whoever does not read it has a second."""
    told: Awaitable[None] = async_write_event(Error(text=error.message, code=error.code).event(), writer)
    try:
        await asyncio.wait_for(told, 1)
    except (TimeoutError, ConnectionError):
        writer.transport.abort()
