"""The real ledger, policy, orchestrator and housekeeper under anything that can happen, in any order.

Parts, kernel and clock are scripted; the loop runs by as many turns as Hypothesis likes, so that a cancel, a death or
an eviction meets every other step in the middle. Many more of them: `--hypothesis-profile=deep` (see conftest.py).
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from assistant.errors import AssistantError, ModelDamaged, StageDied
from assistant.memory_orchestrator.journey import Journey
from assistant.memory_orchestrator.ledger import RowState
from assistant.memory_orchestrator.probe import MIB, Usage
from assistant.messages import Level
from tests.memory_orchestrator.scripted import BASE, OWN_PID, Kernel, Part, Room, open_gate

NAMES = ("asr", "intent", "llm", "tts")
PARTS = ("asr", "intent", "llm", "small llm", "tts")
MARGIN = 100
parts = st.sampled_from(PARTS)


@dataclass(eq=False)
class Lease:
    wanted: list[Part]
    release: asyncio.Event = field(default_factory=asyncio.Event)
    holds: dict[str, int] = field(default_factory=dict)
    """Pid by name, while it holds them."""
    task: asyncio.Task[None] | None = None


class AnyOrder(RuleBasedStateMachine):
    leases = Bundle("leases")
    journeys = Bundle("journeys")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.kernel = Kernel(total=2000)
        self.kernel.cgroup = 900
        self.room = Room(folder, budget=0, margin=MARGIN, keep_alive_s=300, kernel=self.kernel)
        self.holdings = self.room.memory.holdings
        sizes = {"asr": 200, "intent": 30, "llm": 350, "small llm": 120, "tts": 150}
        self.parts = {
            key: Watched(self, self.kernel, key.split()[-1], mib, model=key, file=100 * (key == "llm"))
            for key, mib in sizes.items()
        }
        self.open: list[Lease] = []
        self.commands: list[asyncio.Task[Any]] = []
        self.running: list[tuple[Journey, ExitStack]] = []
        self.dead = {0}  # a process that died before its user had a look at it
        self.excused = False
        """The budget became smaller: what is held may be more than there is room for."""

    # --- running ----------------------------------------------------------------------------------------------------
    def turn(self, turns: int) -> None:
        async def some() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.loop.run_until_complete(some())

    async def _hold(self, lease: Lease, deadline_s: float) -> None:
        async with self.room.memory.lease(*lease.wanted, deadline_s=deadline_s):
            lease.holds = {part.name: part.pid for part in lease.wanted}
            try:
                await lease.release.wait()
            finally:
                lease.holds = {}

    # --- rules ------------------------------------------------------------------------------------------------------
    @rule(
        target=leases,
        wanted=st.lists(parts, min_size=1, max_size=2, unique_by=lambda key: key.split()[-1]),
        deadline_s=st.sampled_from([0.0, 0.01, 3.0]),
        turns=st.integers(0, 6),
    )
    def ask(self, wanted: list[str], deadline_s: float, turns: int) -> Lease:
        lease = Lease([self.parts[key] for key in wanted])
        lease.task = self.loop.create_task(self._hold(lease, deadline_s))
        self.open.append(lease)
        self.turn(turns)
        return lease

    @rule(lease=consumes(leases), turns=st.integers(0, 6))
    def give_back(self, lease: Lease, turns: int) -> None:
        lease.release.set()
        self.turn(turns)

    @rule(lease=leases, turns=st.integers(0, 6))
    def cancel(self, lease: Lease, turns: int) -> None:
        assert lease.task is not None
        lease.task.cancel()
        self.turn(turns)

    @rule(turns=st.integers(1, 30))
    def go_on(self, turns: int) -> None:
        self.turn(turns)

    @rule(key=parts, turns=st.integers(0, 6))
    def prefetch(self, key: str, turns: int) -> None:
        async def now() -> None:
            self.room.memory.prefetch(self.parts[key])

        self.loop.run_until_complete(now())
        self.turn(turns)

    @rule(key=parts, keep_alive_s=st.sampled_from([None, -1.0, 0.0, 10.0]), turns=st.integers(0, 6))
    def load(self, key: str, keep_alive_s: float | None, turns: int) -> None:
        work = self.room.memory.load(self.parts[key], keep_alive_s=keep_alive_s, deadline_s=0.01)
        self.commands.append(self.loop.create_task(work))
        self.turn(turns)

    @rule(name=st.sampled_from(NAMES), turns=st.integers(0, 6))
    def unload(self, name: str, turns: int) -> None:
        self.commands.append(self.loop.create_task(self.room.memory.unload(name)))
        self.turn(turns)

    @rule(target=journeys, stages=st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    def set_out(self, stages: list[str]) -> tuple[Journey, ExitStack]:
        stack = ExitStack()
        one = stack.enter_context(self.room.memory.journey(stages)), stack
        self.running.append(one)
        return one

    @rule(journey=journeys, name=st.sampled_from(NAMES))
    def reach(self, journey: tuple[Journey, ExitStack], name: str) -> None:
        journey[0].reached(name)

    @rule(journey=consumes(journeys))
    def arrive(self, journey: tuple[Journey, ExitStack]) -> None:
        self.running.remove(journey)
        journey[1].close()

    @rule(seconds=st.sampled_from([0, 1, 40, 400]), turns=st.integers(0, 6))
    def look(self, seconds: float, turns: int) -> None:
        self.room.clock.forward(seconds)
        self.loop.run_until_complete(self.room.housekeeper.look())
        self.turn(turns)

    @rule(level=st.sampled_from(["normal", "elevated", "high", "critical"]))
    def press(self, level: Level) -> None:
        self.room.press(level)

    @rule(cgroup=st.sampled_from([None, 300, 600, 900]), others=st.sampled_from([0, 800, 1500]))
    def change_the_budget(self, cgroup: int | None, others: int) -> None:
        self.kernel.cgroup, self.kernel.others = cgroup, others
        self.excused = True

    @rule(key=parts, mib=st.integers(1, 500))
    def grow(self, key: str, mib: int) -> None:
        if self.parts[key].pid:
            self.parts[key].hold(mib)

    @rule(key=parts, promise=st.integers(1, 500))
    def learn(self, key: str, promise: int) -> None:
        self.parts[key].promise = promise
        self.parts[key].fresh = promise % 5 > 0

    @rule(key=parts)
    def die(self, key: str) -> None:
        self.parts[key].die()

    @rule(key=parts, how=st.sampled_from([StageDied, ModelDamaged]), times=st.integers(1, 2))
    def fail(self, key: str, how: type[AssistantError], times: int) -> None:
        self.parts[key].fails = [how("as told") for _ in range(times)]
        self.parts[key].prepare_fails = [how("as told")]

    @rule(key=parts, which=st.sampled_from(["may_load", "may_prepare", "may_leave"]), is_open=st.booleans())
    def gate(self, key: str, which: str, is_open: bool) -> None:
        gate: asyncio.Event = getattr(self.parts[key], which)
        gate.set() if is_open else gate.clear()

    # --- what holds after every step --------------------------------------------------------------------------------
    @invariant()
    def leases_and_users_agree(self) -> None:
        wanted = Counter(part.name for one in self.open if not one.task or not one.task.done() for part in one.wanted)
        wanted.update(name for name in NAMES for task in self.commands if not task.done())
        held = Counter(name for one in self.open for name, pid in one.holds.items() if pid not in self.dead)
        for name, entry in self.holdings.entries.items():
            assert held[name] <= entry.users <= wanted[name], (name, entry)
        for one in self.open:
            for name, pid in one.holds.items():
                if pid not in self.dead:
                    entry = self.holdings.entries[name]
                    assert (entry.thing.pid, entry.state) == (pid, RowState.IN_USE)

    @invariant()
    def the_ledger_says_what_is(self) -> None:
        rows = {row.stage: (row.state, row.reserved, row.model) for row in self.room.ledger().rows}
        assert rows == {
            name: (one.state, one.need.usage.total, one.thing.model) for name, one in self.holdings.entries.items()
        }

    @invariant()
    def all_is_inside_the_budget(self) -> None:
        self.holdings.figures.read_all(self.holdings.entries.values())
        snapshot = self.holdings.snapshot()
        assert snapshot.base == BASE * MIB
        if snapshot.free >= 0:
            self.excused = False
        alone = snapshot.squeezable and len(snapshot.held) == 1
        broken = any(row.measured.total > row.reserved.total for row in snapshot.held)
        assert snapshot.free >= 0 or self.excused or alone or broken, snapshot

    def teardown(self) -> None:
        try:
            self.loop.run_until_complete(asyncio.wait_for(self._end(), 10))
        finally:
            self.loop.run_until_complete(self.room.memory.close())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            self.stack.close()

    async def _end(self) -> None:
        """Every wait ends, nothing is lost, and all of it is given back."""
        for part in self.parts.values():
            part.fails, part.prepare_fails = [], []
            for gate in (part.may_load, part.may_prepare, part.may_leave):
                gate.set()
        for lease in self.open:
            lease.release.set()
        tasks = [lease.task for lease in self.open if lease.task is not None] + self.commands
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, bool | AssistantError | asyncio.CancelledError), outcome
        for _, stack in self.running:
            stack.close()
        self.kernel.cgroup, self.kernel.others = None, 0
        self.room.press("normal")
        await self._at_rest()
        # whatever has happened, everything can be had again
        await self.room.use(self.parts["llm"], self.parts["tts"])
        self.room.press("critical")
        self.room.clock.forward(1000)
        await self.room.look()
        await self._at_rest()
        assert self.holdings.entries == {}
        assert self.kernel.held.keys() == {OWN_PID}
        assert self.room.ledger().rows == ()

    async def _at_rest(self) -> None:
        while any(entry.in_use for entry in self.holdings.entries.values()):
            await asyncio.sleep(0.001)
        assert all(entry.state in (RowState.IDLE, RowState.PREPARED) for entry in self.holdings.entries.values())


class Watched(Part):
    """Knows when it is unloaded under a user, and which of its processes have died."""

    def __init__(self, machine: AnyOrder, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._machine = machine
        self.may_load, self.may_prepare, self.may_leave = open_gate(), open_gate(), open_gate()
        self.weight_files_bytes = 50 * MIB

    async def unload(self) -> None:
        users = [lease for lease in self._machine.open if self.pid and lease.holds.get(self.name) == self.pid]
        assert not users, f"{self.name} was unloaded under its user"
        await super().unload()

    def die(self) -> None:
        if self.pid:
            self._machine.dead.add(self.pid)
            super().die()

    def hold(self, mib: int) -> None:
        self._kernel.hold(self.pid, Usage(mib * MIB, self.file * MIB))


TestAnyOrder = AnyOrder.TestCase
DEEP = settings.get_current_profile_name() == "deep"
if not DEEP:
    TestAnyOrder.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
pytest.mark.timeout(0 if DEEP else 60)(TestAnyOrder)
