"""Real engines: what a stage is promised after one run is what a second run takes, key-value slots apart."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assistant import config, paths
from assistant.audio.formats import read_audio
from assistant.daemon_specs import stage_spec
from assistant.memory_orchestrator.calibration import Calibration
from assistant.memory_orchestrator.estimate import KV_POOL, slot_tokens
from assistant.memory_orchestrator.ledger import LedgerWriter
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.memory_orchestrator.probe import MIB, Usage
from assistant.messages import AsrRequest, IntentRequest, LlmDone, LlmRequest, Stage, TtsRequest, Turn
from assistant.model_store.store import ModelInfo, ModelStore
from assistant.stages.fork_client import ForkServer
from assistant.stages.supervisor import Supervisor
from tests.housekept import housekept

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(120)]

SENTENCE = "The capital of France is Paris, and it lies on the river Seine. "


def llm(text: str) -> LlmRequest:
    return LlmRequest(turns=(Turn(role="user", content=text),), max_new_tokens=24)


REQUESTS: dict[str, tuple[Stage, Callable[[], Any]]] = {
    "asr": (Stage.ASR, lambda: AsrRequest(pcm=read_audio(paths.data_file("question.wav")).pcm)),
    "intent": (Stage.INTENT, lambda: IntentRequest(text="set a timer for five minutes")),
    "llm, short": (Stage.LLM, lambda: llm("What is the capital of France?")),
    "llm, full": (Stage.LLM, lambda: llm(SENTENCE * 55 + "What is the capital of France?")),
    "tts": (Stage.TTS, lambda: TtsRequest(text=SENTENCE)),
}


@asynccontextmanager
async def orchestrator(tmp_path: Path, server: ForkServer) -> AsyncIterator[MemoryOrchestrator]:
    memory = MemoryOrchestrator(ledger=LedgerWriter("ledger", tmp_path), own_pids=lambda: (server.pid,))
    async with housekept(memory):
        yield memory


async def peak_of(memory: MemoryOrchestrator, one: Supervisor, request: Any) -> tuple[Usage, int]:
    """The measured peak of a process that answered this alone, and the tokens of its key-value cache."""
    tokens = 0
    async with memory.lease(one):
        async for out in one.run(request):
            if isinstance(out, LlmDone):
                tokens = out.prompt_tokens + out.new_tokens
        peak = memory.holdings.peak_of(one.name)
    await memory.unload(one.name)
    return peak, tokens


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of its own: of pages that another process maps too, a part is counted."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(
    ("first", "settings"),
    [
        *((name, ()) for name in ("asr", "llm, short", "llm, full", "tts")),
        # its network is no copy: it lies in the package, where other tests map it, too
        pytest.param(
            "intent", (), id="intent", marks=pytest.mark.alone("of pages that others map too, a part is counted")
        ),
        pytest.param("llm, short", ("stages.llm.kv_cache=disk",), id="llm, short, on a disk"),
    ],
)
def test_what_is_promised_after_one_run_is_what_the_next_takes(
    tmp_path: Path,
    cache: Path,
    model: Callable[[str], ModelInfo],
    capsys: pytest.CaptureFixture[str],
    first: str,
    settings: tuple[str, ...],
) -> None:
    for name in ("whisper-tiny.en", "smollm2-135m-instruct", "en_US-joe-medium"):
        model(name)
    stage, request = REQUESTS[first]
    follow = [name for name, (other, _) in REQUESTS.items() if other is stage]

    async def test() -> list[tuple[str, float, float]]:
        server = ForkServer()
        server.start()
        found = []
        try:
            spec = stage_spec(stage, config.load(settings, files=[], environ={}), ModelStore.default())
            spec = replace(spec, cache_dir=cache)
            one = Supervisor(spec, server, Calibration(tmp_path / "measured.json"))
            async with orchestrator(tmp_path, server) as memory:
                guess = one.need().usage.total
                while one.need().usage.total == guess:  # a load that lays out weights is not learned from
                    await peak_of(memory, one, request())
                promised = one.need()
                for name in follow:
                    peak, tokens = await peak_of(memory, one, REQUESTS[name][1]())
                    used = slot_tokens(tokens) * spec.kv_token_bytes if tokens else 0
                    if spec.kv_home == "disk":  # where all of the room is taken at once
                        used = spec.kv_bytes
                    unused = max(0, spec.kv_bytes - used) * KV_POOL[spec.kv_home]
                    found.append((name, (promised.usage.total - unused) / MIB, peak.total / MIB))
        finally:
            await server.close()
        return found

    for name, promise, peak in asyncio.run(test()):
        with capsys.disabled():
            sys.stdout.write(f"\nestimate after {first}, then {name}: promised {promise:.1f} MiB, took {peak:.1f}")
        assert promise == pytest.approx(peak, rel=0.1), f"{first}, then {name}: promised {promise:.1f}, took {peak:.1f}"
