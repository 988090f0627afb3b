"""Our side of `bench e2e` in a process of its own: `python -m assistant.bench.e2e_child ORDER`, prints `Answers`.

Builds the real composition, as `ask --standalone` does, and plays a recording to it at the pace of a microphone: once
with nothing loaded, once with everything loaded. Like a daemon that has been up for a while, it has answered a question
before; its fork server is idle, and the weights are in the page cache. Measures no memory: that is seen from outside.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import wave
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from assistant import config as settings
from assistant.api.live import SentSpeech
from assistant.audio.vad import WINDOW_BYTES, speech_spans
from assistant.bench.naive import WARM_UP
from assistant.daemon import Assistant
from assistant.daemon_voice import endpoint_settings
from assistant.errors import AssistantError, MemoryRefused
from assistant.machine import lines_of
from assistant.messages import ASR_RATE, STAGE_ORDER, LlmRequest, Progress, QueryReport, StageOutput, StageRequest
from assistant.query import LiveEvent, Query
from assistant.stages.supervisor import Supervisor

_BLOCK_S = WINDOW_BYTES / 2 / ASR_RATE
_STILL_S = 0.2
"""Without any work: the fork server has imported what it shares."""
_PATIENCE_S = 20.0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    question: str
    """WAV, 16 kHz mono."""
    before: str
    """Another one, to warm up with."""
    sets: tuple[str, ...] = ()
    states: tuple[str, ...] = ("cold", "warm")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    at_s: float
    """Monotonic."""
    name: str
    data: dict[str, Any] = {}
    """Numbers and short texts alone."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """One query. Monotonic seconds."""

    began_s: float
    """When the first sample was spoken."""
    first_audio_s: float
    """When the first sample went to the output; 0 = never."""
    ended_s: float
    audio_s: float
    """Length of what was spoken."""
    events: list[Event]
    work: list[Work]
    report: QueryReport
    pids: dict[int, str]
    """Stages of the workers, by process."""


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    states: dict[str, Answered]
    pressed: tuple[str, ...] = ()
    """Why the machine was slowed down, if it was."""


class TimedSink:
    """An `AudioSink` that keeps the time instead of the sound."""

    def __init__(self) -> None:
        self.first_s = 0.0
        self.sample_rate = 0
        self.seconds = 0.0

    def write(self, pcm: bytes, sample_rate: int) -> None:
        if pcm and not self.first_s:
            self.first_s = time.monotonic()
        self.sample_rate = sample_rate
        self.seconds += len(pcm) / 2 / sample_rate


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a stage, wanted in the end or not. Monotonic seconds."""

    stage: str
    begun_s: float
    first_s: float
    """Of the first text or sound that came of it; 0 = none came."""
    ended_s: float
    ahead: bool = False
    """The LLM has read, and nothing was to be written yet."""


class TimedSupervisor(Supervisor):
    """Notes when its stage works: events of an answer that was drafted are told when it is certain, not when they
    happen."""

    work: ClassVar[list[Work]] = []
    """Of all stages of this process."""

    async def run(self, request: StageRequest, more: AsyncIterator[bytes] | None = None) -> AsyncGenerator[StageOutput]:
        begun, first = time.monotonic(), 0.0
        try:
            async with aclosing(super().run(request, more)) as results:
                async for out in results:
                    if not first and not isinstance(out, Progress):
                        first = time.monotonic()
                    yield out
        finally:
            self.work.append(
                Work(
                    stage=self.name,
                    begun_s=begun,
                    first_s=first,
                    ended_s=time.monotonic(),
                    ahead=isinstance(request, LlmRequest) and request.ahead,
                )
            )


class Watched:
    """A `LiveSpeech` that says when it paused and when its end was noticed: no event of the query does."""

    def __init__(self, speech: SentSpeech, tell: Callable[[str, dict[str, Any]], None]) -> None:
        self._speech, self._tell = speech, tell
        self.wake_phrase = speech.wake_phrase

    @property
    def pcm(self) -> bytes:
        return self._speech.pcm

    def go_on(self) -> bool:
        return self._speech.go_on()

    async def events(self) -> AsyncIterator[LiveEvent]:
        async for event in self._speech.events():
            if event.what != "sound":
                self._tell(f"live-{event.what}", {})
            yield event


class Bench:
    def __init__(self, order: Order) -> None:
        self._order = order
        self._config = settings.load(list(order.sets))
        self._events: list[Event] = []
        self._pids: dict[int, str] = {}
        self._pressed: list[str] = []
        self._assistant: Assistant

    async def run(self) -> Answers:
        question, before = _pcm_of(self._order.question), _pcm_of(self._order.before)
        found = {}
        async with Assistant(self._config, emit=self._follow, supervisor=TimedSupervisor) as self._assistant:
            await self._used_before(before)
            for state in self._order.states:
                if state == "warm":
                    await self._load_all(before)
                found[state] = await self._answered(question)
            pressure = self._assistant.status().pressure
            if pressure.level != "normal":
                self._pressed += pressure.reasons
        return Answers(states=found, pressed=tuple(dict.fromkeys(self._pressed)))

    def _follow(self, name: str, data: dict[str, Any]) -> None:
        plain = {key: value for key, value in data.items() if isinstance(value, bool | int | float | str)}
        self._events.append(Event(at_s=time.monotonic(), name=name, data=plain))
        if name == "stage-load-end":
            entry = self._assistant.memory.holdings.entries.get(data["stage"])
            if entry is not None and entry.thing.pid:
                self._pids[entry.thing.pid] = data["stage"]
        if name == "throttled" and data["level"] != "normal":
            self._pressed += data["reasons"]

    async def _used_before(self, before: bytes) -> None:
        """A typed question, and sound without a recogniser; afterwards nothing is loaded."""
        speech_spans(before)
        await self._assistant.answer(Query(text=WARM_UP, sink=TimedSink()))
        for stage in STAGE_ORDER:  # they are on their way out already; this waits for it
            await self._assistant.unload(stage)
        await _idle(self._assistant.fork_server_pid)

    async def _load_all(self, before: bytes) -> None:
        """As far as it fits; each has worked once."""
        for stage in STAGE_ORDER:
            try:
                await self._assistant.load(stage, keep_alive_s=-1)
            except MemoryRefused as error:
                logging.getLogger(__name__).warning("not resident: %s", error.message)
        await self._assistant.transcribe(before)
        await self._assistant.answer(Query(text=WARM_UP, sink=TimedSink()))

    async def _answered(self, pcm: bytes) -> Answered:
        speech, sink = SentSpeech(endpoint_settings(self._config)), TimedSink()
        self._events.clear()
        TimedSupervisor.work.clear()
        began = time.monotonic()
        microphone = asyncio.create_task(_played(speech.put, pcm, began))
        try:
            answer = await self._assistant.answer(Query(live=Watched(speech, self._follow), sink=sink, started=began))
        finally:
            microphone.cancel()
        return Answered(
            began_s=began,
            first_audio_s=sink.first_s,
            ended_s=time.monotonic(),
            audio_s=sink.seconds,
            events=list(self._events),
            work=list(TimedSupervisor.work),
            report=answer.report,
            pids=dict(self._pids),
        )


async def _played(put: Any, pcm: bytes, began_s: float) -> None:
    """Each block when its last sample would have been spoken; then silence, for as long as anybody listens."""
    number = 0
    while True:
        block = pcm[number * WINDOW_BYTES : (number + 1) * WINDOW_BYTES]
        number += 1
        await asyncio.sleep(max(0.0, began_s + number * _BLOCK_S - time.monotonic()))
        put(block + bytes(WINDOW_BYTES - len(block)), False)


async def _idle(pid: int) -> None:
    """Returns once the process has not worked for a moment."""
    give_up, before = time.monotonic() + _PATIENCE_S, ""
    while time.monotonic() < give_up and (now := _work_of(pid)) != before:
        before = now
        await asyncio.sleep(_STILL_S)


def _work_of(pid: int) -> str:
    """Its processor time, as the kernel counts it."""
    fields = "".join(lines_of(Path(f"/proc/{pid}/stat"))).rpartition(")")[2].split()
    return " ".join(fields[11:13])


def _pcm_of(path: str) -> bytes:
    with wave.open(path, "rb") as file:
        return file.readframes(file.getnframes())


def main(argument: str) -> int:
    order = msgspec.json.decode(argument, type=Order)
    logging.basicConfig(level="ERROR", format="%(levelname)s %(name)s: %(message)s")
    try:
        found = asyncio.run(Bench(order).run())
    except AssistantError as error:
        sys.stderr.write(f"error: {error.message}\n")
        return int(error.exit_code)
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
