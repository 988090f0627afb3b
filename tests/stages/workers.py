"""A real worker whose engine does what its test says, good or bad."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from assistant.messages import LlmRequest, Stage, Turn
from assistant.stages.base import EngineConfig
from assistant.stages.fork_client import ForkServer
from assistant.stages.process import Worker

ENGINE = "tests.stages.misbehaving:Misbehaving"
REQUEST = LlmRequest(turns=(Turn(role="user", content="hello 🌍"),))


def config(how: str) -> EngineConfig:
    return EngineConfig(model="m", model_dir=Path(), cache_dir=Path("/tmp"), threads=1, options={"how": how})


@asynccontextmanager
async def worker(how: str = "", deadline_s: float = 10, server: ForkServer | None = None) -> AsyncIterator[Worker]:
    server = server or ForkServer()
    server.start()
    one = Worker(Stage.LLM, server)
    try:
        await one.prepare(ENGINE, 10)
        await one.load(config(how), deadline_s)
        yield one
    finally:
        await one.stop()
        await server.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()
