"""The composition root: builds the parts from the settings, starts them, stops them in reverse order.

Imports no engine library: those live in workers.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import time
from types import TracebackType
from typing import Self

from assistant import __version__, paths
from assistant.config import Config
from assistant.conversations import Conversations
from assistant.daemon_looks import Looks
from assistant.daemon_remote import check_api_key
from assistant.daemon_skills import SkillRoom
from assistant.daemon_specs import llm_settings
from assistant.daemon_stages import Stages
from assistant.daemon_state import DaemonState
from assistant.daemon_timers import Timers
from assistant.daemon_voice import front_settings, voice_of
from assistant.disk import Disk, Writes
from assistant.errors import AssistantError
from assistant.memory_orchestrator.calibration import Calibration
from assistant.memory_orchestrator.housekeeper import Housekeeper
from assistant.memory_orchestrator.ledger import LedgerWriter
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.memory_orchestrator.sensors import Sensors
from assistant.memory_orchestrator.view import memory_sums, stage_rows
from assistant.memory_orchestrator.writers import remove_stale, segment_name, tell_of_other_versions
from assistant.messages import STAGE_ORDER, AsrRequest, Emit, Stage, Transcript
from assistant.messages_status import Status
from assistant.model_store.store import ModelStore
from assistant.pipeline import Pipeline
from assistant.pipeline_speech import speech_of
from assistant.query import Answer, IntentHandlers, Query, Understood
from assistant.services import Services
from assistant.stages.fork_client import ForkServer
from assistant.stages.registry import engine_path
from assistant.stages.spec import StageSpec
from assistant.stages.supervisor import Supervisor
from assistant.tasks import in_own_thread, uninterrupted
from assistant.voice import Voice

log = logging.getLogger(__name__)

_ASIDE_S = 0.5
"""That an utterance aside waits for memory."""
_LEAVE_S = 1.0
"""That workers get to leave by themselves."""


class Assistant:
    """`async with Assistant(config) as assistant: await assistant.answer(query)`."""

    def __init__(
        self,
        config: Config,
        *,
        owner: str = "",
        store: ModelStore | None = None,
        conversations: Conversations | None = None,
        emit: Emit = lambda name, data: None,
        voice: bool = False,
        handlers: IntentHandlers | None = None,
        supervisor: type[Supervisor] = Supervisor,
        disk: Disk | None = None,
    ) -> None:
        """`owner` names the ledger: "daemon", or this process when empty, which then keeps nothing loaded for a next
        query. `conversations`: what was said before; nothing by default. `voice`: with microphone and speaker.
        `handlers`: other programs that carry out intents. `supervisor`: one that watches its stage, too.
        `disk`: how long models' files may keep us waiting."""
        self._config = config
        self._supervisor = supervisor
        self._daemon, self._owner = bool(owner), owner or str(os.getpid())
        self._keep_alive_s = config.memory.keep_alive_s if owner else 0
        self._store = store or ModelStore.default()
        self._conversations = (
            Conversations(config.stages.llm.conversation_ttl_s) if conversations is None else conversations
        )
        self._outer = emit
        self._with_voice = voice
        self.voice: Voice | None = None
        """None: without microphone and speaker."""
        self._server = ForkServer()
        self._writes = Writes()
        self._calibration = Calibration(paths.state_dir() / "measured.json", self._writes)
        self._noted: dict[str, tuple[str, ...]] = {}
        self._handlers = handlers
        self._skills = SkillRoom(
            emit=self._tell, voice=lambda: self.voice, daemon=self._daemon, language=config.stages.intent.language
        )
        self._stages = Stages(
            config,
            self._store,
            self._supervisor_of,
            lambda: self.memory.holdings.relief.level,
            lambda: handlers.understood if handlers is not None else Understood(),
        )
        self._looks = Looks(
            self._stages,
            disk or Disk(),
            also=lambda spec: self._calibration.look(spec.calibration_model),
            changed=self._tell_needs,
        )
        self._started = time.monotonic()
        self._answered = 0
        self._state = DaemonState(emit)
        self.memory: MemoryOrchestrator
        """There while it runs."""
        self.services: Services
        """Single stages, for programs that want no whole query."""
        self._housekeeper: Housekeeper
        self._pipeline: Pipeline

    async def __aenter__(self) -> Self:
        config = self._config
        for stage in STAGE_ORDER:
            engine_path(stage, config.stage(stage).engine)
        check_api_key(config)
        # first, because everything waits for it: its interpreter starts while the rest is built
        self._server.start()
        try:
            await self._looks.check_small()
            remove_stale()
            if self._daemon:
                tell_of_other_versions()
            self.memory = MemoryOrchestrator(
                ledger=LedgerWriter(segment_name(self._owner)),
                own_pids=self._own_pids,
                forking=lambda: self._server.forking,
                budget_mib=config.memory.budget_mib,
                margin_mib=config.memory.margin_mib,
                keep_alive_s=self._keep_alive_s,
                emit=self._tell,
            )
            await self._looks.all()  # or the ledger could not say in which mode it will be
            self.memory.holdings.told()
            self._housekeeper = Housekeeper(self.memory.holdings, sense=Sensors().read, emit=self._tell)
            self._housekeeper.start()
        except BaseException:
            await self._server.close()
            raise
        self._pipeline = Pipeline(
            memory=self.memory,
            stages=self._looks,
            llm=llm_settings(config),
            conversations=self._conversations,
            instead=self._looks.instead,
            away=self._stages.away,
            handlers=self._handlers,
            context=self._skills.context,
            guarded=config.house.protected,
            emit=self._tell,
        )
        self.services = Services(
            memory=self.memory,
            stages=self._looks,
            known=self._looks.seen,
            languages=lambda stage: getattr(config.stage(stage), "language", ""),
            failed=self._stages.note,
            emit=self._tell,
        )
        if self._with_voice:
            try:
                front = await self._looks.ask("voice", lambda alive: front_settings(config, self._store))
                voice = voice_of(config, front, self._server, self._answer, self.transcribe, self._state.of_voice)
                await voice.start()
            except BaseException:
                await self._close()
                raise
            self.voice = voice
        await self._skills.open()
        return self

    def _tell(self, name: str, data: dict[str, object]) -> None:
        self._outer(name, data)
        if self.voice is not None:
            self.voice.follow(name, data)

    def _own_pids(self) -> tuple[int, ...]:
        voice = (self.voice.pid,) if self.voice is not None and self.voice.pid else ()
        return (os.getpid(), self._server.pid, *voice)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops everything that was started, a cancel in between notwithstanding."""
        await uninterrupted(self._close())

    async def _close(self) -> None:
        try:
            await self._skills.close()
            await self._looks.close()
            if self.voice is not None:
                await self.voice.close()
            await self._housekeeper.close()
            hurry = asyncio.get_running_loop().call_later(_LEAVE_S, self.end_workers)
            await self.memory.close()
            hurry.cancel()
            await self._writes.close()
        finally:
            await self._server.close()

    def end_workers(self) -> None:
        """All of them at once, whatever they do: for an end that must not wait for one that stands still."""
        self._server.end()

    @property
    def timers(self) -> Timers | None:
        """None in a process that is no daemon."""
        return self._skills.timers

    @property
    def fork_server_pid(self) -> int:
        return self._server.pid

    async def answer(self, query: Query) -> Answer:
        with self._state.asked():
            return await self._answer(query)

    async def _answer(self, query: Query) -> Answer:
        """The voice asks here: it says by itself what it does."""
        self._tell_needs()
        try:
            return await self._pipeline.answer(query)
        finally:
            self._answered += 1

    async def transcribe(self, pcm: bytes) -> str:
        """A short utterance, aside from what runs; "" when nobody speaks in it or there is no room for it now."""
        try:
            speech = await in_own_thread(functools.partial(speech_of, lambda: pcm))
            recogniser = await self._looks(Stage.ASR)
            async with self.memory.lease(recogniser, deadline_s=_ASIDE_S):
                found = [out async for out in recogniser.run(AsrRequest(pcm=speech)) if isinstance(out, Transcript)]
        except AssistantError as error:
            self._stages.note(Stage.ASR, error)
            log.info("not recognised aside: %s", error.code)
            return ""
        return found[-1].text if found else ""

    async def load(self, stage: Stage, keep_alive_s: float | None = None) -> None:
        """Loads a stage and leaves it idle. `keep_alive_s`: of this load; negative = for ever.

        Raises `ModelError`, `MemoryRefused`, or what the engine raised.
        """
        await self.memory.load(await self._looks(stage), keep_alive_s=keep_alive_s)

    async def unload(self, stage: Stage) -> bool:
        """False when it was not loaded. Raises `BusyNow` when it is in use."""
        return await self.memory.unload(stage.value)

    def status(self) -> Status:
        """Of what is known: no disk is asked."""
        self._looks.seen()
        self._tell_needs()
        view = self.memory.holdings.view()
        return Status(
            version=__version__,
            pid=os.getpid(),
            uptime_s=round(time.monotonic() - self._started, 1),
            state=self._state.state,
            queries=self._answered,
            memory=memory_sums(view),
            pressure=self._housekeeper.pressure.status,
            stages=stage_rows(view, time.monotonic_ns()),
            voice=self.voice.status() if self.voice is not None else None,
        )

    async def missing(self) -> list[str]:
        """What cannot be used of what is configured, and what to do: told before anybody asks in vain."""
        return await self._looks.all()

    def _tell_needs(self) -> None:
        """What the whole chain would need decides the mode; a stage whose model is missing needs nothing yet."""
        self.memory.holdings.figures.expect(self._looks.needs())

    def _supervisor_of(self, spec: StageSpec) -> Supervisor:
        return self._supervisor(
            spec, self._server, self._calibration, self._tell, relief=lambda: self.memory.holdings.relief,
            noted=self._noted,
        )  # fmt: skip
