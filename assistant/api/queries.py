"""The line of queries: one runs, a few wait in order, the urgent ones first; more are refused at once. Imports `wire`;
knows no socket.

Each ends with exactly one last reply: a report, or an error when it never began.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from assistant.api import wire
from assistant.errors import AssistantError, BusyNow, Cancelled, EngineFailed
from assistant.messages import QueryReport
from assistant.query import URGENCIES, Answer, LiveSpeech, Query, checked_conversation, checked_urgency

log = logging.getLogger(__name__)

MAX_WAITING = 4
MAX_HELD_BYTES = 32 * 2**20
"""Of the recordings of all queries in the line: they are the daemon's own memory."""
_REMEMBERED = 8
_FIRST_GUESS_S = 2.0
_LEAST_RETRY_S = 0.1

_OF_THE_DAEMON = ("stage-load-", "memory-", "throttled", "state", "audio-device-", "wake_word-", "muted", "volume")
"""How the events begin that belong to no query."""

Tell = Callable[[wire.Reply, bytes], None]
"""Takes a reply and its PCM; called in the loop's thread, returns at once."""


class QueryEvents:
    """What the assistant is given as `emit`: hands each event to whoever follows its query, and what happens to the
    stages and the memory to whoever has a query running. Only that is logged: it holds no words of anybody."""

    def __init__(self) -> None:
        self._followers: dict[str, Callable[[str, dict[str, Any]], None]] = {}
        self.listeners: list[Callable[[str, dict[str, Any]], None]] = []
        """Told of every event, of whatever query; raise nothing."""

    def __call__(self, name: str, data: dict[str, Any]) -> None:
        for listener in self.listeners:
            listener(name, data)
        if "query_id" not in data and name.startswith(_OF_THE_DAEMON):
            log.info(name, extra={"fields": data})
            for follower in list(self._followers.values()):
                follower(name, data)
            return
        found = self._followers.get(str(data.get("query_id")))
        if found is not None:
            found(name, data)

    def follow(self, query_id: str, follower: Callable[[str, dict[str, Any]], None]) -> None:
        self._followers[query_id] = follower

    def leave(self, query_id: str) -> None:
        self._followers.pop(query_id, None)


class _Voice:
    """The sink of a query: its sound goes to the caller, in pieces or at the end."""

    def __init__(self, tell: Tell, at_once: bool) -> None:
        self._tell, self._at_once = tell, at_once
        self._kept: list[bytes] = []
        self._bytes = 0
        self.sample_rate = 0

    def write(self, pcm: bytes, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self._bytes += len(pcm)
        if self._at_once:
            self._tell(wire.Audio(sample_rate=sample_rate), pcm)
        else:
            self._kept.append(pcm)

    @property
    def seconds(self) -> float:
        return self._bytes / 2 / self.sample_rate if self.sample_rate else 0.0

    def flush(self) -> None:
        if self._kept:
            self._tell(wire.Audio(sample_rate=self.sample_rate), b"".join(self._kept))
            self._kept.clear()


class Job:
    """One `ask`: what the pipeline does for it becomes replies."""

    def __init__(self, ask: wire.Ask, pcm: bytes, tell: Tell, live: LiveSpeech | None = None) -> None:
        """`live`: the recording is still coming.

        Raises `UsageError` for what is no name of a conversation, or no urgency."""
        self._tell, self._stream = tell, ask.stream
        self._voice = _Voice(tell, ask.stream) if ask.speech else None
        self._report: QueryReport | None = None
        self.size = len(pcm)
        self.ended = False
        """Its last reply was told."""
        self.query = Query(
            text=ask.text,
            pcm=(lambda: pcm) if ask.text is None and live is None else None,
            live=live,
            sink=self._voice,
            sink_waits=not ask.stream,
            conversation="" if ask.conversation is None else checked_conversation(ask.conversation),
            urgency=checked_urgency(ask.urgency),
            started=time.monotonic() - ask.age_ms / 1000,
        )

    @property
    def id(self) -> str:
        return self.query.id

    def overtakes(self, other: Job) -> bool:
        """More urgent, and not of the same conversation, in which what was said first is answered first."""
        mine, others = self.query, other.query
        if mine.conversation and mine.conversation == others.conversation:
            return False
        return URGENCIES.index(mine.urgency) < URGENCIES.index(others.urgency)

    def accepted(self, ahead: int) -> None:
        self._tell(wire.Accepted(query_id=self.id, ahead=ahead), b"")

    def begin(self) -> None:
        # told whatever `stream` says: a client that has vanished meanwhile is found out before the work is done
        self._tell(wire.Started(query_id=self.id), b"")

    def follow(self, name: str, data: dict[str, Any]) -> None:
        if name == "run-end":
            self._report = data.get("report")
            data = {key: value for key, value in data.items() if key != "report"}  # it comes as the last reply
        if self._stream:
            self._tell(wire.Event(name=name, data=data), b"")

    def end(self, answer: Answer) -> None:
        if self._voice is not None:
            self._voice.flush()
        self.ended = True
        self._tell(wire.report(answer.report, answer.error), b"")

    def fail(self, error: AssistantError) -> None:
        """Ends it without an answer; with a report, if the pipeline gave one before it was cancelled."""
        self.ended = True
        if self._report is not None and isinstance(error, Cancelled):
            self._tell(wire.report(self._report, error), b"")
        else:
            self._tell(wire.failure(error), b"")


class Queries:
    def __init__(
        self,
        answer: Callable[[Query], Awaitable[Answer]],
        events: QueryEvents,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._answer = answer
        self._events = events
        self._clock = clock
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._since = 0.0
        self._task: asyncio.Task[Answer] | None = None
        self._worker: asyncio.Task[None] | None = None
        self._closed = False
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)

    def submit(self, job: Job) -> None:
        """Raises `BusyNow` when the line is full, by number or by the size of its recordings; `Cancelled` once it is
        closed."""
        if self._closed:
            raise Cancelled("the daemon is stopping")
        running = [self._running] if self._running else []
        line = [*running, *self._waiting]
        if len(line) > MAX_WAITING or (line and sum(one.size for one in line) + job.size > MAX_HELD_BYTES):
            raise BusyNow(
                f"{len(line)} {'query is' if len(line) == 1 else 'queries are'} ahead, which is all that there is room"
                " for; ask again later",
                retry_after_ms=round(self._retry_after_s() * 1000),
            )
        place = len(self._waiting)
        while place and job.overtakes(self._waiting[place - 1]):
            place -= 1
        job.accepted(len(running) + place)
        self._waiting.insert(place, job)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())

    def _retry_after_s(self) -> float:
        """Until the running query ends, if it takes as long as the last ones did: then a place is free."""
        usual = sum(self._durations) / len(self._durations) if self._durations else _FIRST_GUESS_S
        return max(_LEAST_RETRY_S, usual - (self._clock() - self._since))

    async def _work(self) -> None:
        while self._waiting:
            job = self._running = self._waiting.popleft()
            self._since = self._clock()
            self._events.follow(job.id, job.follow)
            self._task = asyncio.ensure_future(self._answer(job.query))
            job.begin()
            try:
                await asyncio.wait([self._task])
                _end(job, self._task)
            finally:
                self._events.leave(job.id)
                self._running = self._task = None
            self._durations.append(self._clock() - self._since)

    def cancel(self, query_id: str | None) -> tuple[str, ...]:
        """None: the one that runs. Gives the ids of what will end as cancelled; nothing for one that is not here."""
        if self._running is not None and query_id in (None, self._running.id):
            assert self._task is not None
            self._task.cancel()
            return (self._running.id,)
        for job in self._waiting:
            if job.id == query_id:
                self._waiting.remove(job)
                job.fail(Cancelled("the query was cancelled before it began"))
                return (job.id,)
        return ()

    async def close(self) -> None:
        """Ends all of them as cancelled."""
        self._closed = True
        while self._waiting:
            self._waiting.pop().fail(Cancelled("the daemon is stopping"))
        if self._task is not None:
            self._task.cancel()
        if self._worker is not None:
            await asyncio.gather(self._worker, return_exceptions=True)


def _end(job: Job, task: asyncio.Task[Answer]) -> None:
    if task.cancelled():
        return job.fail(Cancelled("the query was cancelled"))
    error = task.exception()
    if error is None:
        job.end(task.result())
    elif isinstance(error, AssistantError):
        job.fail(error)
    else:
        log.error("a query ended with an error of ours", exc_info=error)
        job.fail(EngineFailed(f"the daemon made a mistake ({type(error).__name__}); its log has more", code="internal"))
