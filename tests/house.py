"""A pipeline over real worker processes, for the tests of queries."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from assistant import skills
from assistant.conversations import Conversations
from assistant.errors import ModelMissing
from assistant.memory_orchestrator.calibration import Calibration
from assistant.memory_orchestrator.housekeeper import Housekeeper
from assistant.memory_orchestrator.ledger import LedgerWriter
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.memory_orchestrator.probe import MIB, Probe
from assistant.memory_orchestrator.sensors import Readings
from assistant.messages import LlmRequest, Sampling, Stage
from assistant.model_store.store import ModelInfo
from assistant.pipeline import Pipeline
from assistant.pipeline_llm import LlmSettings
from assistant.skills import Context
from assistant.stages.fork_client import ForkServer
from assistant.stages.spec import StageSpec
from assistant.stages.supervisor import Supervisor
from tests.housekept import housekept
from tests.skills.world import Loud
from tests.talkers import asked

NOW = datetime(2026, 11, 29, 17, 5)
_MARGIN_MIB = 20


@dataclass(frozen=True)
class Asr:
    """A recogniser for the house: a real one with its model, or one of the tests' by its path and options."""

    path: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "whisper"
    model: ModelInfo | None = None


class House:
    """A pipeline over real processes; `how` decides what its LLM does."""

    def __init__(
        self,
        tmp_path: Path,
        step_timeout_s: float,
        *,
        conversations: Conversations | None = None,
        slots: int = 1,
        lease_deadline_s: float = 30,
        asr: Asr | None = None,
        names: tuple[str, ...] = (),
        guarded: tuple[str, ...] = (),
        room_mib: float = 0,
    ) -> None:
        """With `conversations`, its LLM is a `Storyteller`. `asr`: instead of the `Parrot`. `room_mib`: that much may
        be loaded at the same time; 0 = what the machine has."""
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.how = ""
        self.speaker = Loud()
        self.llm_loaded = asyncio.Event()
        self.server = ForkServer()
        self.ledger = tmp_path / "ledger"
        self.asked = tmp_path / "asked"
        self._asr, self._names = asr, names
        self._talks = conversations is not None
        self._step_timeout_s = step_timeout_s
        self._heard = tmp_path / "heard"
        self._calibration = Calibration(tmp_path / "measured.json")
        self._supervisors: dict[tuple[Stage, str], Supervisor] = {}
        self.memory = MemoryOrchestrator(
            ledger=LedgerWriter("ledger", tmp_path),
            own_pids=lambda: (os.getpid(),),
            budget_mib=room_mib and room_mib + _MARGIN_MIB + held_mib(),
            margin_mib=_MARGIN_MIB if room_mib else 300,
            emit=self._emit,
        )
        self.housekeeper = Housekeeper(self.memory.holdings, sense=Readings, emit=self._emit)
        self.pipeline = Pipeline(
            memory=self.memory,
            stages=self.lookup,
            llm=LlmSettings(system_prompt="Be kind.", sampling=Sampling(), max_new_tokens=5, slots=slots),
            conversations=conversations,
            emit=self._emit,
            now=lambda: NOW,
            context=functools.partial(Context, speaker=self.speaker),
            guarded=guarded,
            lease_deadline_s=lease_deadline_s,
        )

    def _emit(self, name: str, data: dict[str, Any]) -> None:
        self.events.append((name, data))
        if (name, data.get("stage")) == ("stage-load-end", "llm"):
            self.llm_loaded.set()

    async def lookup(self, stage: Stage) -> Supervisor:
        return self._supervisor(stage)

    def _supervisor(self, stage: Stage) -> Supervisor:
        if (stage, self.how) == (Stage.LLM, "missing"):
            raise ModelMissing("the model is not there; fetch it")
        key = (stage, self.how)
        if key not in self._supervisors:
            engines = {Stage.LLM: "mnn", Stage.ASR: "whisper", Stage.TTS: "piper", Stage.INTENT: "templates"}
            options: dict[Stage, dict[str, Any]] = {
                Stage.LLM: {"how": self.how, "asked": str(self.asked)},
                Stage.ASR: {"heard": str(self._heard)},
                Stage.INTENT: {
                    "language": "en",
                    "intents": list(skills.handled_intents()),
                    "names": {"name": self._names},
                },
            }
            spec = StageSpec(
                stage=stage, engine=engines[stage], model="m",
                model_dir=Path(), digest="", weight_bytes=0, cache_dir=self.ledger.parent / "cache",
                threads=1, start_timeout_s=10, step_timeout_s=self._step_timeout_s,
                options=options.get(stage), emergency=True,
            )  # fmt: skip
            if stage is Stage.ASR and self._asr is not None:
                spec = self._real(spec, self._asr)
            paths_of: dict[Stage, str | None] = {
                Stage.LLM: "tests.talkers:Storyteller" if self._talks else "tests.stages.misbehaving:Misbehaving",
                Stage.ASR: self._asr.path if self._asr else "tests.stages.misbehaving:Parrot",
                Stage.TTS: "tests.talkers:Beeper",
            }
            path = paths_of.get(stage)
            self._supervisors[key] = Supervisor(spec, self.server, self._calibration, self._emit, path)
        return self._supervisors[key]

    def _real(self, spec: StageSpec, asr: Asr) -> StageSpec:
        options = {"heard": str(self._heard), **asr.options} if asr.path else dict(asr.options)
        spec = replace(spec, engine=asr.engine, options=options, step_timeout_s=30, threads=2)
        if asr.model is None:
            return spec
        model = asr.model
        return replace(spec, model=model.name, model_dir=model.path, digest=model.digest, weight_bytes=80 << 20)

    def attempts(self) -> list[str]:
        """What the recogniser has written down."""
        return self._heard.read_text().split() if self._heard.exists() else []

    def heard(self) -> list[int]:
        """Bytes of each recording that the recogniser was given."""
        return [int(line) for line in self._heard.read_text().split()] if self._heard.exists() else []

    def requests(self) -> list[LlmRequest]:
        """What the storyteller was asked."""
        return asked(self.asked)

    def names(self) -> list[str]:
        return [name for name, _ in self.events]


def held_mib() -> float:
    """By this process."""
    return Probe().usage(os.getpid()).total / MIB


@asynccontextmanager
async def house(tmp_path: Path, step_timeout_s: float = 5, **more: Any) -> AsyncIterator[House]:
    one = House(tmp_path, step_timeout_s, **more)
    one.server.start()
    async with housekept(one.memory, one.housekeeper, one.server):
        yield one


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]
