"""An assistant without stages, for the tests of the server: it answers when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from assistant.api import sockets
from assistant.api.backend import Timers, Voice
from assistant.api.queries import QueryEvents
from assistant.api.server import Server
from assistant.errors import BusyNow, Cancelled, NeverFits, UsageError
from assistant.messages import ErrorReport, IntentReport, MemoryReport, Outcome, QueryReport, Stage, Timings
from assistant.messages_status import (
    DeviceStatus,
    MemoryStatus,
    PressureStatus,
    StageStatus,
    Status,
    VoiceStatus,
)
from assistant.query import Answer, Query


class Backend:
    """`text` says what happens: "wait" for `go`, "loud" speaks two seconds first, "wrong" ends with an error, "crash"
    with one of ours; others echo."""

    def __init__(self, events: QueryEvents) -> None:
        self._events = events
        self.go = asyncio.Event()
        self.order: list[str] = []
        self.heard: list[bytes] = []
        self.loaded: dict[Stage, float | None] = {}
        self.cancelled: list[str] = []
        self.slow_to_stop_s = 0.0
        """How long a load goes on after it was cancelled."""
        self.broken = False
        """Whether `status` ends with an error of ours."""
        self.speaking: SpeakingVoice | None = None
        self.timers: Timers | None = None

    async def answer(self, query: Query) -> Answer:
        outcome, error = Outcome.ANSWERED, None
        self._events("run-start", {"query_id": query.id})
        self._events("memory-admit", {"stage": "llm"})
        try:
            return Answer(await self._answer(query), None)
        except asyncio.CancelledError:
            outcome, error = Outcome.CANCELLED, Cancelled("the query was cancelled")
            self.cancelled.append(query.text or "")
            raise
        finally:
            report = report_of(query, outcome, error)
            self._events("run-end", {"query_id": query.id, "outcome": outcome.value, "report": report})

    async def _answer(self, query: Query) -> QueryReport:
        text = query.text or ""
        if query.pcm is not None:
            self.heard.append(query.pcm())
        if query.live is not None:
            async with contextlib.aclosing(query.live.events()) as events:  # type: ignore[type-var]
                async for _ in events:
                    pass
            self.heard.append(query.live.pcm)
        self.order.append(text)
        if text == "crash":
            raise RuntimeError("a bug")
        if text == "wrong":
            raise UsageError("a bad question")
        if text.startswith("loud") and query.sink is not None:
            query.sink.write(bytes(1 << 16), 16_000)
            await self.go.wait()
        if text.startswith("wait"):
            await self.go.wait()
        for word in ("one ", "two"):
            self._events("reply-delta", {"query_id": query.id, "text": word})
            if query.sink is not None:
                query.sink.write(word.encode() * 100, 16_000)
            await asyncio.sleep(0)
        return report_of(query, Outcome.ANSWERED, None)

    async def load(self, stage: Stage, keep_alive_s: float | None = None) -> None:
        if stage is Stage.TTS:
            raise NeverFits("too large", stage="tts")
        if stage is Stage.ASR:
            try:
                await self.go.wait()
            finally:
                await asyncio.sleep(self.slow_to_stop_s)
        if keep_alive_s != 0:
            self.loaded[stage] = keep_alive_s

    async def unload(self, stage: Stage) -> bool:
        return self.loaded.pop(stage, self) is not self

    @property
    def voice(self) -> Voice | None:
        return self.speaking

    def status(self) -> Status:
        if self.broken:
            raise RuntimeError("a bug")
        rows = [
            StageStatus(name=stage, engine="e", model="m", state="idle", pid=1, reserved_mib=2, anon_mib=1, file_mib=1,
                        kv_mib=0)
            for stage in self.loaded
        ]  # fmt: skip
        memory = MemoryStatus(
            budget_mib=9, margin_mib=1, base_mib=1, used_mib=1, peak_mib=1, peak_anon_mib=1, mode="sequential"
        )
        return Status(
            version="0", pid=1, uptime_s=0, state="idle", queries=len(self.order), memory=memory,
            pressure=PressureStatus(), stages=tuple(rows), voice=self.speaking.status() if self.speaking else None,
        )  # fmt: skip


def report_of(query: Query, outcome: Outcome, error: Any) -> QueryReport:
    return QueryReport(
        query_id=query.id,
        transcript=query.text or "",
        intent=IntentReport(),
        reply="one two",
        outcome=outcome,
        error=ErrorReport(**error.to_dict()) if error else None,
        audio=None,
        timings_ms=Timings(),
        stages=(),
        memory=MemoryReport(budget_mib=9, margin_mib=1, peak_mib=1, peak_anon_mib=1, mode="sequential"),
    )


class SpeakingVoice:
    """A voice that notes what it is asked for."""

    def __init__(self, runs: str = "") -> None:
        self.orders: list[str] = []
        self.muted, self.percent, self.runs = False, 100.0, runs
        self.microphone = DeviceStatus(state="ok", name="d", sample_rate=48_000, channels=1)

    async def say(self, text: str) -> Answer:
        if text == "busy":
            raise BusyNow("busy", retry_after_ms=5)
        self.orders.append(text)
        return Answer(report_of(Query(text=text), Outcome.HANDLED, None), None)

    def listen(self) -> None:
        if self.muted:
            raise UsageError("muted", code="muted")
        self.orders.append("listen")

    def mute(self, on: bool) -> None:
        self.muted = on

    def volume(self, percent: float) -> None:
        self.percent = percent

    def stop(self, query_id: str | None = None) -> tuple[str, ...]:
        ended = (self.runs,) if self.runs and query_id in (None, self.runs) else ()
        self.runs = "" if ended else self.runs
        return ended

    def status(self) -> VoiceStatus:
        device = DeviceStatus(state="ok", name="d", sample_rate=48_000, channels=1)
        return VoiceStatus(
            muted=self.muted, volume_percent=self.percent, words=("hey_jarvis",), stop_words=(), input=self.microphone,
            output=device, wakes=0, interruptions=0, unheard=0, devices_lost=0, overflows=0, restarts=0,
        )  # fmt: skip


@contextlib.asynccontextmanager
async def served(folder: Path, stop: Callable[[], None] = lambda: None) -> AsyncIterator[Backend]:
    """A server with real sockets in `folder`."""
    events = QueryEvents()
    backend = Backend(events)
    async with Server(backend, events, sockets.prepared(folder), stop):
        yield backend
