"""A memory orchestrator with its housekeeper at work, for tests; nothing of it is left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from assistant.memory_orchestrator.housekeeper import Housekeeper
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.memory_orchestrator.sensors import Readings
from assistant.stages.fork_client import ForkServer


@asynccontextmanager
async def housekept(
    memory: MemoryOrchestrator, housekeeper: Housekeeper | None = None, server: ForkServer | None = None
) -> AsyncIterator[MemoryOrchestrator]:
    """Closes `memory` at the end, and `server`, which is running, after it."""
    keeper = housekeeper or Housekeeper(memory.holdings, sense=Readings)
    keeper.start()
    try:
        yield memory
    finally:
        await keeper.close()
        await memory.close()
        if server is not None:
            await server.close()
