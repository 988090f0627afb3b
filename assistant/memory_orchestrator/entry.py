"""What the orchestrator keeps of each thing that holds memory, and what such a thing must be able to do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from assistant.memory_orchestrator.ledger import Row, RowState
from assistant.memory_orchestrator.policy import NOT_NEEDED, Held, Need
from assistant.memory_orchestrator.probe import MIB, Sample, Usage

_LEAK_SHARE, _LEAK_FIXED = 1.15, 16 * MIB
"""How far an idle stage may stand above its promise before it is taken for a leak."""


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

    @property
    def fresh(self) -> bool:
        """False when it should be loaded anew at the next opportunity: other settings than now."""

    @property
    def weight_files_bytes(self) -> int:
        """What `read_ahead` would read."""

    def need(self, *, anew: bool = False) -> Need:
        """The estimate of its peak, corrected by what was measured before. `anew`: of a load that trusts no cached
        file and makes them again, which takes more."""

    def prepared_need(self) -> Need:
        """The same of its process without weights."""

    def settle(self, peak: Usage) -> bool:
        """Is told the measured peak of its load and first work; False when it has not worked yet."""

    def read_ahead(self) -> None:
        """Asks the kernel to read its weights; returns at once; never raises."""

    async def prepare(self) -> None:
        """Its process, with the engine imported. Raises what went wrong, and then holds nothing."""

    async def load(self, *, again: bool = False) -> None:
        """From wherever `prepare` left it. `again`: the first try failed, so nothing cached is to be trusted."""

    async def unload(self) -> None:
        """Returns when the process is reaped; never raises."""

    def kill(self, why: str) -> None:
        """Ends its process at once; whoever waits for it gets a typed error that says `why`."""


@dataclass(slots=True, eq=False)
class Entry:
    thing: Loadable
    need: Need
    state: RowState = RowState.RESERVED
    users: int = 0
    last_used_ns: int = 0
    keep_alive_s: float | None = None
    """Of this load; None = as configured."""
    until_ns: int = 0
    sample: Sample = field(default_factory=Sample)
    peak: Usage = field(default_factory=Usage)
    spike: Usage = field(default_factory=Usage)
    """The most since the last reading of all."""
    at_rest: Usage | None = None
    """What it held after its first work."""
    loading: asyncio.Task[None] | None = None
    """Its load, which belongs to nobody who waits for it."""
    leaving: asyncio.Task[None] | None = None
    """Its unloading, once that has begun."""

    @property
    def coming(self) -> bool:
        return self.state in (RowState.RESERVED, RowState.LOADING)

    @property
    def in_use(self) -> bool:
        return self.users > 0 or self.coming or self.state is RowState.LEAVING

    @property
    def leaks(self) -> bool:
        """Whether it holds more than its promise and its first rest explain."""
        if self.at_rest is None:
            return False
        explained = max(self.need.anon, self.at_rest.anon)
        return self.sample.now.anon > explained * _LEAK_SHARE + _LEAK_FIXED

    def held(self, next_use: int = NOT_NEEDED) -> Held:
        """What the policy sees of it."""
        return Held(
            stage=self.thing.name,
            reserved=self.need.usage,
            measured=self.sample.now,
            in_use=self.in_use,
            last_used_ns=self.last_used_ns,
            until_ns=self.until_ns,
            next_use=next_use,
        )

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
            keep_alive_until_ns=self.until_ns,
        )
