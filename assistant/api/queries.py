"""The line of queries: as many run as the model has slots, a few wait, more are refused at once. `admission` decides
who and where; here it is done. Knows no socket.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from assistant.api.admission import LEAST_RETRY_S, Limits, Refuse, Snapshot, admit
from assistant.api.jobs import Job
from assistant.api.pace import Pace
from assistant.errors import AssistantError, BusyNow, Cancelled, EngineFailed
from assistant.query import Answer, Query

log = logging.getLogger(__name__)

_LEAST_LEFT = 0.1
"""Of the work of a query that runs: it may take longer than others did."""

_OF_THE_DAEMON = ("stage-load-", "memory-", "throttled", "state", "audio-device-", "wake_word-", "muted", "volume")
"""How the events begin that belong to no query."""


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


@dataclass(frozen=True, slots=True)
class _Running:
    job: Job
    task: asyncio.Future[Answer]
    since: float


class Queries:
    def __init__(
        self,
        answer: Callable[[Query], Awaitable[Answer]],
        events: QueryEvents,
        clock: Callable[[], float] = time.monotonic,
        limits: Limits | None = None,
    ) -> None:
        self._answer = answer
        self._events = events
        self._clock = clock
        self._limits = limits or Limits()
        self._waiting: list[Job] = []
        self._running: list[_Running] = []
        self._closed = False
        self.pace = Pace()
        self.accepted = self.refused = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    def submit(self, job: Job) -> None:
        """Raises `BusyNow` when there is no place for it, or it could not be answered in time; `Cancelled` once the
        line is closed."""
        if self._closed:
            raise Cancelled("the daemon is stopping")
        found = admit(self._seen(job))
        if isinstance(found, Refuse):
            self.refused += 1
            raise BusyNow(found.why, retry_after_ms=found.retry_after_ms)
        self.accepted += 1
        job.accepted(found.ahead)
        self._waiting.insert(found.place, job)
        if found.preempts is not None:
            self._preempt(self._running[found.preempts])
        self._begin_more()

    def _seen(self, new: Job) -> Snapshot:
        return Snapshot(
            limits=self._limits,
            new=new.claim(self._work_s(new)),
            running=tuple(one.job.claim(self._left_s(one)) for one in self._running),
            waiting=tuple(job.claim(self._work_s(job)) for job in self._waiting),
            measured=self.pace.measured,
        )

    def _work_s(self, job: Job) -> float:
        return self.pace.work_s(job.chars, job.query.urgency)

    def _left_s(self, one: _Running) -> float:
        work_s = self._work_s(one.job)
        return max(_LEAST_LEFT * work_s, work_s - (self._clock() - one.since))

    def _begin_more(self) -> None:
        while not self._closed and len(self._running) < self._limits.slots and (job := self._next()) is not None:
            self._waiting.remove(job)
            self._events.follow(job.id, job.follow)
            one = _Running(job, asyncio.ensure_future(self._answer(job.query)), self._clock())
            self._running.append(one)
            job.begin()
            one.task.add_done_callback(lambda _, one=one: self._over(one))  # type: ignore[misc]

    def _next(self) -> Job | None:
        """The first one that need not wait for an earlier query of its conversation."""
        taken = {one.job.query.conversation for one in self._running}
        for job in self._waiting:
            if not job.query.conversation or job.query.conversation not in taken:
                return job
        return None

    def _over(self, one: _Running) -> None:
        job, task = one.job, one.task
        self._running.remove(one)
        self._events.leave(job.id)
        try:
            if job.leaving and task.cancelled() and not self._closed:
                self._put_back(job)
            else:
                self._learn(one)
                _end(job, task)
        finally:  # whatever happened to one, the others are answered
            self._begin_more()

    def _learn(self, one: _Running) -> None:
        if one.task.cancelled() or one.task.exception() is not None or one.task.result().error is not None:
            return
        job, at_llm_s = one.job, one.task.result().report.timings_ms.llm / 1000
        self.pace.learn(self._clock() - one.since, job.chars, job.query.urgency, job.llm, at_llm_s)

    def _preempt(self, one: _Running) -> None:
        log.info("query %s makes room for a critical one", one.job.id)
        one.job.leaving = True
        one.task.cancel()

    def _put_back(self, job: Job) -> None:
        """To the front, behind what is critical."""
        if not job.put_back():
            retry_ms = round(1000 * max([LEAST_RETRY_S, *map(self._work_s, self._waiting[:1])]))
            return job.fail(
                BusyNow("a critical query needed the place of this one; ask again", retry_after_ms=retry_ms)
            )
        self._events("preempted", {"query_id": job.id})
        place = sum(one.query.urgency == "critical" for one in self._waiting)
        self._waiting.insert(place, job)

    def cancel(self, query_id: str | None) -> tuple[str, ...]:
        """None: all that run. Gives the ids of what will end as cancelled; nothing for one that is not here."""
        found = [one for one in self._running if query_id in (None, one.job.id)]
        for one in found:
            if one.job.leaving:
                one.job.leaving = False  # it is on its way out already, and now it does not come back
            else:
                one.task.cancel()
        for job in [one for one in self._waiting if one.id == query_id]:
            self._waiting.remove(job)
            job.fail(Cancelled("the query was cancelled before it began"))
            return (job.id,)
        return tuple(one.job.id for one in found)

    async def close(self) -> None:
        """Ends all of them as cancelled."""
        self._closed = True
        while self._waiting:
            self._waiting.pop().fail(Cancelled("the daemon is stopping"))
        tasks = [one.task for one in self._running]
        for one in self._running:
            if not one.job.leaving:
                one.task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _end(job: Job, task: asyncio.Future[Answer]) -> None:
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
