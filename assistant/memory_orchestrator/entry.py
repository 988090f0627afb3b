"""What the orchestrator keeps of each thing that holds memory, and what such a thing must be able to do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from assistant.memory_orchestrator.ledger import Row, RowState
from assistant.memory_orchestrator.policy import Need
from assistant.memory_orchestrator.probe import Sample, Usage


class Loadable(Protocol):
    """What can be given memory: a stage with its worker process."""

    @property
    def name(self) -> str: ...
    @property
    def engine(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def pid(self) -> int:
        """0 when it holds nothing."""

    def need(self) -> Need:
        """The estimate of its peak, corrected by what was measured before."""

    def settle(self, peak: Usage) -> None:
        """Is told the measured peak of the time that it was loaded."""

    async def load(self) -> None: ...
    async def unload(self) -> None:
        """Returns when the process is reaped; never raises."""


@dataclass(slots=True)
class Entry:
    thing: Loadable
    need: Need
    state: RowState = RowState.RESERVED
    users: int = 0
    last_used_ns: int = 0
    sample: Sample = field(default_factory=Sample)
    peak: Usage = field(default_factory=Usage)
    leaving: asyncio.Task[None] | None = None
    """Its unloading, once that has begun."""

    def row(self) -> Row:
        """What the ledger says of it."""
        return Row(
            stage=self.thing.name,
            engine=self.thing.engine,
            model=self.thing.model,
            pid=self.thing.pid,
            state=self.state,
            reserved=self.need.usage.total,
            anon=self.sample.now.anon,
            file=self.sample.now.file,
            kv=self.need.kv,
            last_used_ns=self.last_used_ns,
        )
