"""One query through real workers, with an LLM stage that has a bad day: the query always ends, once, and says how."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from assistant import paths, skills
from assistant.memory_orchestrator.calibration import Calibration
from assistant.memory_orchestrator.ledger import LedgerReader, LedgerWriter
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.messages import Outcome, Sampling, Stage
from assistant.pipeline import LlmSettings, Pipeline
from assistant.query import Query
from assistant.stages.fork_client import ForkServer
from assistant.stages.supervisor import StageSpec, Supervisor

NOW = datetime(2026, 11, 29, 17, 5)


class House:
    """A pipeline over real processes; `how` decides what its LLM does."""

    def __init__(self, tmp_path: Path, step_timeout_s: float) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.how = ""
        self.llm_loaded = asyncio.Event()
        self.server = ForkServer()
        self.ledger = tmp_path / "ledger"
        self._step_timeout_s = step_timeout_s
        self._heard = tmp_path / "heard"
        self._calibration = Calibration(tmp_path / "measured.json")
        self._supervisors: dict[tuple[Stage, str], Supervisor] = {}
        self.memory = MemoryOrchestrator(
            ledger=LedgerWriter("ledger", tmp_path), own_pids=lambda: (os.getpid(),), emit=self._emit
        )
        self.pipeline = Pipeline(
            memory=self.memory,
            stages=self._supervisor,
            llm=LlmSettings(system_prompt="Be kind.", sampling=Sampling(), max_new_tokens=5),
            emit=self._emit,
            now=lambda: NOW,
        )

    def _emit(self, name: str, data: dict[str, Any]) -> None:
        self.events.append((name, data))
        if (name, data.get("stage")) == ("stage-load-end", "llm"):
            self.llm_loaded.set()

    def _supervisor(self, stage: Stage) -> Supervisor:
        key = (stage, self.how)
        if key not in self._supervisors:
            llm, asr = stage is Stage.LLM, stage is Stage.ASR
            spec = StageSpec(
                stage=stage, engine="mnn" if llm else "whisper" if asr else "templates", model="m",
                model_dir=Path(), digest="", weight_bytes=0, cache_dir=self.ledger.parent / "cache",
                threads=1, start_timeout_s=10, step_timeout_s=self._step_timeout_s,
                options=(
                    {"how": self.how} if llm
                    else {"heard": str(self._heard)} if asr
                    else {"language": "en", "intents": list(skills.handled_intents())}
                ),
            )  # fmt: skip
            paths_of = {Stage.LLM: "tests.stages.misbehaving:Misbehaving", Stage.ASR: "tests.stages.misbehaving:Parrot"}
            path = paths_of.get(stage)
            self._supervisors[key] = Supervisor(spec, self.server, self._calibration, self._emit, path)
        return self._supervisors[key]

    def heard(self) -> list[int]:
        """Bytes of each recording that the recogniser was given."""
        return [int(line) for line in self._heard.read_text().split()] if self._heard.exists() else []

    def names(self) -> list[str]:
        return [name for name, _ in self.events]


@asynccontextmanager
async def house(tmp_path: Path, step_timeout_s: float = 5) -> AsyncIterator[House]:
    one = House(tmp_path, step_timeout_s)
    one.server.start()
    one.memory.start()
    try:
        yield one
    finally:
        await one.memory.close()
        await one.server.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def test_a_question_goes_to_the_llm_with_the_system_prompt(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            answer = await one.pipeline.answer(Query(text="  Why?  "))
            assert answer.error is None
            assert answer.report.outcome is Outcome.ANSWERED
            assert "Be kind." in answer.report.reply
            assert "content='Why?'" in answer.report.reply
            assert [stage.name for stage in answer.report.stages] == ["intent", "llm"]
            assert one.names().count("run-end") == 1
            assert one.names()[0] == "run-start"
            assert one.names()[-1] == "run-end"

    run(test)


def test_a_local_command_never_loads_the_llm(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            report = (await one.pipeline.answer(Query(text="what time is it"))).report
            assert (report.outcome, report.reply) == (Outcome.HANDLED, "It is 5:05 PM.")
            assert not [data for name, data in one.events if data.get("stage") == "llm"]

    run(test)


@pytest.mark.parametrize(
    ("how", "code", "reply"),
    [
        ("damaged", "model-damaged", ""),
        ("raise-on-load", "engine-failed", ""),
        ("crash-on-load", "stage-died", ""),
        ("raise-on-run", "engine-failed", ""),
        ("exit-mid-stream", "stage-died", "half"),
        ("hang-on-run", "stage-hung", ""),
        ("say-nothing", "llm-no-answer", ""),
    ],
)
def test_a_stage_that_fails_fails_its_query_and_no_other(tmp_path: Path, how: str, code: str, reply: str) -> None:
    async def test() -> None:
        async with house(tmp_path, step_timeout_s=0.5) as one:
            one.how = how
            answer = await one.pipeline.answer(Query(text="Why?"))
            report = answer.report
            assert report.outcome is Outcome.FAILED
            assert report.error is not None
            assert answer.error is not None
            assert (report.error.code, report.error.stage) == (code, "llm")
            assert report.reply == reply
            assert one.names().count("run-end") == 1
            left = [row.stage for row in LedgerReader("ledger", tmp_path).read().rows]
            assert left == (["intent", "llm"] if how in ("raise-on-run", "say-nothing") else ["intent"])
            one.how = ""
            assert (await one.pipeline.answer(Query(text="Why?"))).report.outcome is Outcome.ANSWERED

    run(test)


def speech() -> bytes:
    return paths.data_file("question.wav").read_bytes()[44:]


def test_stages_load_while_the_recording_is_read_and_no_recogniser_hears_silence(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            read = threading.Event()

            def silence() -> bytes:
                read.wait(5)
                return bytes(16_000 * 2 * 3)

            task = asyncio.create_task(one.pipeline.answer(Query(pcm=silence)))
            async with asyncio.timeout(5):
                while {data["stage"] for name, data in one.events if name == "stage-load-end"} != {"asr", "intent"}:
                    await asyncio.sleep(0.02)  # both are there before a single sample is
            read.set()
            report = (await task).report
            assert report.error is not None
            assert report.error.code == "stt-no-text-recognized"
            assert one.heard() == []

    run(test)


def test_the_recogniser_hears_speech_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            quiet = bytes(16_000 * 2 * 3)
            report = (await one.pipeline.answer(Query(pcm=lambda: quiet + speech() + quiet))).report
            assert report.transcript == "what time is it"
            (heard,) = one.heard()
            assert 1.0 < heard / 32_000 < 3.2

    run(test)


def test_a_start_that_crashed_is_tried_once_more_without_trusting_its_cache(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            one.how = "crash-until-distrusted"
            report = (await one.pipeline.answer(Query(text="Why?"))).report
            assert (report.outcome, report.error) == (Outcome.ANSWERED, None)

    run(test)


def test_a_cancelled_query_ends_once_and_its_stage_serves_the_next(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            one.how = "slow"
            task = asyncio.create_task(one.pipeline.answer(Query(text="Why?")))
            await one.llm_loaded.wait()
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            ends = [data for name, data in one.events if name == "run-end"]
            assert [data["outcome"] for data in ends] == ["cancelled"]
            assert ends[0]["report"].error.code == "cancelled"
            one.how = ""
            assert (await one.pipeline.answer(Query(text="Why?"))).report.outcome is Outcome.ANSWERED

    run(test)


def test_a_bad_text_loads_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as one:
            report = (await one.pipeline.answer(Query(text="a\0b"))).report
            assert report.error is not None
            assert report.error.code == "text-has-nul"
            assert "memory-admit" not in one.names()

    run(test)
