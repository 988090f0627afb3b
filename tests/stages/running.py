"""A real worker with a real engine, for the tests of engines."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from assistant.messages import LlmDelta, LlmDone, LlmRequest, Stage, StageOutput, Turn
from assistant.model_store.store import ModelInfo
from assistant.stages.base import EngineConfig
from assistant.stages.fork_client import ForkServer
from assistant.stages.process import Worker
from assistant.stages.registry import engine_path

FRANCE = "What is the capital of France?"
SYSTEM = Turn(role="system", content="You are a voice assistant. Answer in one short sentence.")


def config_of(model: ModelInfo, cache_dir: Path, **options: Any) -> EngineConfig:
    return EngineConfig(
        model=model.name,
        model_dir=model.path,
        digest=model.digest,
        cache_dir=cache_dir,
        threads=2,
        options=options,
    )


@asynccontextmanager
async def running(stage: Stage, engine: str, config: EngineConfig) -> AsyncIterator[Worker]:
    server = ForkServer()
    server.start()
    worker = Worker(stage, server)
    try:
        await worker.prepare(engine_path(stage, engine), 20)
        await worker.load(config, 60)
        yield worker
    finally:
        await worker.stop()
        await server.close()


async def collect(worker: Worker, request: Any) -> list[StageOutput]:
    return [out async for out in worker.run(request, 30)]


def answer(llm: ModelInfo, cache: Path, text: str = FRANCE, *, distrust_cache: bool = False, **options: Any) -> str:
    """Of a worker that lives for this one question."""

    async def ask() -> str:
        config = msgspec.structs.replace(config_of(llm, cache, **options), distrust_cache=distrust_cache)
        async with running(Stage.LLM, "mnn", config) as worker:
            turns = (SYSTEM, Turn(role="user", content=text))
            return text_of(await collect(worker, LlmRequest(turns=turns, max_new_tokens=24)))

    return asyncio.run(ask())


def question(text: str, **fields: Any) -> LlmRequest:
    return LlmRequest(turns=(Turn(role="user", content=text),), **fields)


def text_of(outputs: Iterable[StageOutput]) -> str:
    return "".join(out.text for out in outputs if isinstance(out, LlmDelta))


def done_of(outputs: list[StageOutput]) -> LlmDone:
    assert isinstance(outputs[-1], LlmDone)
    return outputs[-1]


def copied(model: ModelInfo, path: Path) -> ModelInfo:
    """The same model in files of its own."""
    shutil.copytree(model.path, path)
    return msgspec.structs.replace(model, path=path)
