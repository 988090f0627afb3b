"""Sound on its way to a worker while it works: sends it, and knows whose turn it is. Imports `stages.channel`.

A watchdog must not take the silence of a speaker for a worker that hangs. So the worker says when it waits for sound
(`Waiting`), and time counts against it only while there is some that it has not taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from assistant.errors import StageError, StageHung
from assistant.stages.channel import More


class Feeding:
    """One request's sound. Without any (`chunks` None) it is an ordinary deadline for each step."""

    def __init__(
        self,
        stage: str,
        request_id: int,
        chunks: AsyncIterator[bytes] | None,
        send: Callable[[More], Awaitable[None]],
        step_timeout_s: float,
    ) -> None:
        self.taken = -1
        """Frames that the worker has heard, as it says itself; -1 = not yet what the request came with."""
        self._stage, self._id, self._chunks, self._send = stage, request_id, chunks, send
        self._step_s = step_timeout_s
        self._sent = 0
        self._sending = self._over = False
        self._task: asyncio.Task[None] | None = None
        self._watch: asyncio.Timeout | None = None
        self._error: Exception | None = None

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """A step of the worker. Raises `StageHung` when it takes too long, or what the source of the sound raised."""
        try:
            if self._error is None:
                async with asyncio.timeout(None if self._its_turn_is_over else self._step_s) as self._watch:
                    yield
                return
        except TimeoutError:
            if self._error is None:
                raise StageHung(
                    f"{self._stage} made no progress for {self._step_s:g} s and was stopped", stage=self._stage
                ) from None
        finally:
            self._watch = None
        raise self._error

    @property
    def _its_turn_is_over(self) -> bool:
        return self._chunks is not None and self.taken == self._sent

    def start(self) -> None:
        """Begins to send; the request itself must have been sent."""
        if self._chunks is not None and self._task is None:
            self._task = asyncio.create_task(self._feed(self._chunks))

    async def _feed(self, chunks: AsyncIterator[bytes]) -> None:
        try:
            async for pcm in chunks:
                await self._offer(More(id=self._id, pcm=pcm))
                if self._over:
                    return
            await self._offer(More(id=self._id, pcm=b"", last=True))
        except StageError:
            return  # the worker's end: whoever waits for its answer hears of it there
        except Exception as error:  # noqa: BLE001 - raised again by whoever asked for the request
            self._error = error
            if self._watch is not None:
                self._watch.reschedule(0)

    async def _offer(self, frame: More) -> None:
        waited, self._sending = self._its_turn_is_over, True
        self._sent += 1
        if waited and self._watch is not None:
            self._watch.reschedule(asyncio.get_running_loop().time() + self._step_s)
        await self._send(frame)
        self._sending = False

    async def stop(self) -> None:
        """Between two frames: half a one would be the end of the connection. Waits for a worker that takes nothing."""
        self._over = True
        if self._task is not None:
            if not self._sending:
                self._task.cancel()
            await asyncio.wait([self._task])

    async def abandon(self) -> None:
        """At once; the worker is gone, or will be."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


class Recording:
    """Sound that is still coming, and can be heard from its beginning again: by a worker that replaces a dead one."""

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self._source = source
        self._chunks: list[bytes] = []
        self._ended = False
        self._error: Exception | None = None
        self._grown = asyncio.Event()

    async def record(self) -> None:
        """Takes in what comes until its end; what the source raises is raised by `chunks`."""
        try:
            async for pcm in self._source:
                self._chunks.append(pcm)
                self._grown.set()
        except Exception as error:  # noqa: BLE001 - handed on, whatever it is
            self._error = error
        finally:
            self._ended = True
            self._grown.set()

    def chunks(self) -> AsyncIterator[bytes]:
        """From the beginning. For one reader at a time; whoever stops reading leaves nothing behind."""
        return _Chunks(self)

    async def chunk(self, number: int) -> bytes | None:
        """None behind the last one."""
        while number >= len(self._chunks):
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            self._grown.clear()
            await self._grown.wait()
        return self._chunks[number]


class _Chunks:
    def __init__(self, recording: Recording) -> None:
        self._recording, self._next = recording, 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        chunk = await self._recording.chunk(self._next)
        if chunk is None:
            raise StopAsyncIteration
        self._next += 1
        return chunk


@asynccontextmanager
async def recorded(source: AsyncIterator[bytes] | None) -> AsyncIterator[Recording | None]:
    """Records `source`, if there is one, for as long as the block runs."""
    if source is None:
        yield None
        return
    recording = Recording(source)
    task = asyncio.create_task(recording.record())
    try:
        yield recording
    finally:
        task.cancel()
        await asyncio.wait([task])
