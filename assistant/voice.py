"""The assistant with a microphone and a speaker: who is heard, who is answered, who is interrupted.

Takes what the audio process says and makes queries of it; one at a time, and a new one ends the old one. Every way
through it comes back to idle. Knows the pipeline as a function and opens no device.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from assistant.audio.front_messages import Beat, Device, FromFront, Mute, Played, Ready, Sound, Spoke, Volume, Woke
from assistant.errors import BusyNow, DeviceError, UsageError
from assistant.messages import Emit, VoiceState
from assistant.messages_status import VoiceStatus
from assistant.query import Answer, LiveEvent, Query, checked_text
from assistant.recordings import Recordings
from assistant.voice_cues import Cues
from assistant.voice_duck import Ducker
from assistant.voice_front import Front
from assistant.voice_interrupt import StopListener
from assistant.voice_live import Utterance
from assistant.voice_report import VoiceReport
from assistant.voice_ring import BEAT_S, Ring, Ringer
from assistant.voice_say import ended, outcome
from assistant.voice_sessions import Sessions
from assistant.voice_sink import Sinks
from assistant.voice_states import DEADLINES_S, States

log = logging.getLogger(__name__)

CONVERSATION = "voice"
_AWAKE_AFTER_S = 0.45
"""Who goes on in one breath needs no sound that says "go on"."""
_BUSY_MS = 2000


class Voice:
    def __init__(
        self,
        *,
        front: Callable[[Callable[[FromFront], None]], Front],
        answer: Callable[[Query], Awaitable[Answer]],
        transcribe: Callable[[bytes], Awaitable[str]],
        emit: Emit,
        ducker: Ducker,
        recordings: Recordings | None = None,
        thinking_after_s: float = 1.0,
        deadlines_s: Mapping[VoiceState, float] = DEADLINES_S,
        clock: Callable[[], float] = time.monotonic,
        ring_beat_s: float = BEAT_S,
    ) -> None:
        """`front` makes the handle of the audio process, given who takes its packets. `transcribe`: a short utterance,
        aside from everything else; "" where there is no room for it."""
        self._front = front(self._take)
        self._answer, self._emit, self._ducker, self._recordings = answer, emit, ducker, recordings
        self._thinking_after_s = thinking_after_s
        self._states = States(emit, clock, deadlines_s)
        self._sessions = Sessions(self._front.send)
        self._session = 0
        self._query_id = ""
        """Of the one that runs."""
        self._task: asyncio.Task[Answer | None] | None = None
        """Of the query."""
        self._watch: asyncio.Task[None] | None = None
        self._sinks = Sinks(self._front.send)
        self._sounds: dict[str, Utterance] = {}
        """What was said, by query; like the sinks, of those that run or put their things away."""
        self._cues = Cues(self._front.send)
        self._report = VoiceReport(emit)
        self._stops = StopListener(
            self._sessions.open, self._sessions.close, transcribe, self.stop, lambda: self._ringer.ringing
        )
        self._ringer = Ringer(
            send=self._front.send,
            say=self.say,
            busy=lambda: bool(self._query_id),
            lost=lambda: self._report.speaker.state == "lost",
            stops=self._stops,
            ducker=ducker,
            clock=clock,
            beat_s=ring_beat_s,
        )

    async def start(self) -> None:
        """Raises `ConfigError`, `EngineFailed`, `StageError` when there cannot be an audio process. One without a
        microphone is no error: it is looked for, again and again."""
        await self._front.start()
        self._watch = asyncio.create_task(self._states.watch(self._overdue))

    async def close(self) -> None:
        self._cues.forget()
        await self._ringer.close()
        tasks = [task for task in (self._watch, self._task) if task is not None]
        for task in tasks:
            task.cancel()
        # all at once: a worker that stands still must not keep the microphone open
        await asyncio.gather(
            *tasks, self._stops.close(), self._front.close(), self._ducker.close(), return_exceptions=True
        )

    # --- what others may ask for ------------------------------------------------------------------------------------
    @property
    def state(self) -> VoiceState:
        return self._states.state

    @property
    def pid(self) -> int:
        return self._front.pid

    def listen(self) -> None:
        """As if the wake word had been said. Raises `DeviceError` without a microphone, `UsageError` while muted."""
        if self._front.settings.muted:
            raise UsageError("the microphone is muted; 'assistant mute off' opens it", code="muted")
        self._report.check("input")
        self._begin(self._sessions.listening())

    async def say(self, text: str) -> Answer:
        """Speaks a text of somebody's. Raises `BusyNow` while it listens or speaks, `BadText`, `Cancelled`."""
        if self._query_id:
            raise BusyNow("somebody is being listened to or answered", retry_after_ms=_BUSY_MS)
        self._report.check("output")
        query = self._query(text=checked_text(text, "text"), verbatim=True)
        self._states.enter("processing")
        task = self._task = asyncio.create_task(self._converse(query, None))
        return await outcome(task, lambda: self.stop(query.id))

    def ring(self, id: str, ring: Ring) -> None:
        """Until somebody says stop, or the wake word; as soon as nobody is listened to or answered."""
        self._ringer.ring(id, ring)

    def unring(self, id: str) -> None:
        self._ringer.end(id)

    def mute(self, on: bool) -> None:
        self._front.send(Mute(on=on))
        self._report.muted(on)
        self._emit("muted", {"on": on})

    def volume(self, percent: float) -> None:
        self._front.send(Volume(percent=percent))
        self._emit("volume", {"percent": percent})

    def stop(self, query_id: str | None = None) -> tuple[str, ...]:
        """Silence, and the end of what runs. None: whatever it is, what rings included. The ids of what ends."""
        rang = tuple(f"timer-{id}" for id in self._ringer.end()) if query_id is None else ()
        if self._task is None or self._task.done() or query_id not in (None, ended := self._query_id):
            return rang
        self._interrupt()
        self._states.enter("idle")
        return (ended, *rang)

    def status(self) -> VoiceStatus:
        return self._report.status(self._front.settings, self._front.restarts)

    def follow(self, name: str, data: Mapping[str, Any]) -> None:
        """Every event of the assistant; those of our queries say where they are."""
        run = data.get("query_id")
        if run not in self._sinks:
            return
        if name == "run-end" and self._recordings is not None and "report" in data:
            self._recordings.keep(data["report"], self._sounds[run].pcm if run in self._sounds else b"")
        if run != self._query_id:
            return  # interrupted: it only puts its things away
        if name == "stt-end":
            self._sessions.close(self._session)
            self._states.enter("processing")
            self._stops.begin()
        elif name == "tts-start":
            self._states.enter("responding")
            self._stops.begin()
        else:
            self._states.alive()

    # --- what the audio process says --------------------------------------------------------------------------------
    def _take(self, packet: FromFront) -> None:
        match packet:
            case Sound() | Spoke():
                self._sessions.take(packet)
                if packet.session == self._session:
                    self._states.alive()
            case Played():
                self._played(packet)
            case Woke(kind="wake"):
                self._woken(packet)
            case Woke(word=word):
                log.info("told to stop", extra={"fields": {"word": word}})
                self.stop()
            case Device() | Ready() | Beat():
                self._report.take(packet)
                if isinstance(packet, Device) and packet.state == "lost":
                    self._lost(packet)

    def _lost(self, packet: Device) -> None:
        (self._sessions.lost if packet.kind == "input" else self._sinks.missing)(packet.message)

    def _woken(self, packet: Woke) -> None:
        log.info("woken", extra={"fields": {"word": packet.word, "score": round(packet.score, 3)}})
        self._report.wakes += 1
        self._emit("wake_word-end", {"word": packet.word, "score": packet.score})
        self._begin(self._sessions.woken(packet))

    def _played(self, packet: Played) -> None:
        self._sinks.played(packet)
        if packet.run == self._query_id:
            self._states.alive()
            if packet.seconds > 0:
                self._cues.forget()

    # --- one query --------------------------------------------------------------------------------------------------
    def _begin(self, utterance: Utterance) -> None:
        self._ringer.end()
        before = self._interrupt()
        query = self._query(live=utterance, conversation=CONVERSATION)
        self._sounds[query.id] = utterance
        self._session = utterance.session
        utterance.on_event = self._heard
        self._states.enter("listening")
        self._cues.later(_AWAKE_AFTER_S, "awake")
        self._task = asyncio.create_task(self._converse(query, before))

    def _query(self, **what: Any) -> Query:
        """A query that is answered at our speaker, and is the one that runs now."""
        run = uuid.uuid4().hex[:12]
        self._query_id = run
        return Query(id=run, sink=self._sinks.open(run, self._report.speaker), **what)

    async def _converse(self, query: Query, before: asyncio.Task[Answer | None] | None) -> Answer | None:
        """From the first word to the end of the answer, whatever happens in between. None: a mistake of ours."""
        duck, asks = asyncio.create_task(self._ducker.duck()), False
        try:
            if before is not None:  # what was heard of its answer belongs into the conversation first
                await asyncio.wait([before])
            answer = await self._answer(query)
            self._cues.forget()
            await ended(answer, self._sinks[query.id], self._cues, self._report)
            asks = answer.asks and query.live is not None
            return answer
        except asyncio.CancelledError:
            log.info("interrupted", extra={"fields": {"query": query.id}})
            raise
        except Exception:  # a mistake of ours must not end the listening
            log.exception("a query ended with an error of ours")
            self._cues.now("error")
            return None
        finally:
            self._sinks.close(query.id)
            if (utterance := self._sounds.pop(query.id, None)) is not None:
                self._sessions.close(utterance.session)
            if self._query_id == query.id:
                self._query_id = ""
                self._cues.forget()
                self._stops.end()
                self._states.enter("idle")
            await asyncio.gather(duck, return_exceptions=True)
            if not self._query_id and not self._ringer.ringing:
                await self._ducker.unduck()
            if asks:  # when this task has ended
                asyncio.get_running_loop().call_soon(self._listen_on)

    def _listen_on(self) -> None:
        """Who was asked back answers without a wake word."""
        if not self._query_id and not self._ringer.ringing:
            with contextlib.suppress(UsageError, DeviceError):  # muted or lost meanwhile
                self.listen()

    def _heard(self, event: LiveEvent) -> None:
        """Where the speaker is in the utterance."""
        self._states.alive()
        if event.what in ("speech", "resumed"):
            self._states.enter("listening")
            self._cues.forget()
        elif event.what == "end":
            self._states.enter("processing")
            self._cues.later(self._thinking_after_s, "thinking")

    def _interrupt(self) -> asyncio.Task[Answer | None] | None:
        """Silence at once; the task that still has to put things away."""
        task, self._task = self._task, None
        if task is None or task.done():
            return None
        self._report.interruptions += 1
        if self._query_id in self._sinks:
            self._sinks[self._query_id].silence()
        self._cues.forget()
        self._stops.end()
        task.cancel()
        return task

    def _overdue(self) -> None:
        log.error("a state was not left in time", extra={"fields": {"state": self.state}})
        self._interrupt()
        self._states.enter("idle")
