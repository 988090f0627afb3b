"""Who may load, who must go first, who is refused: pure functions on a snapshot. Decides; never acts.

    plan(snapshot, need) -> Admit | Evict(victims) | Refuse(error)

This is the strict sequential mode: one heavy stage at a time. The total order of victims is: idle, then least
recently used, then the larger, then the name; the same snapshot always gives the same victims.

Mapped weights count whole against a budget that somebody has set. Against what a machine or a cgroup has, they count by
`FILE_SHARE`: the kernel drops such pages before anybody suffers, and a model whose weights do not all stay in memory is
slower, not fatal.
"""

from __future__ import annotations

from dataclasses import dataclass

from assistant.errors import BusyNow, MemoryRefused, NeverFits
from assistant.memory_orchestrator.probe import MIB, Usage

FILE_SHARE = 0.5
"""Of mapped weights, what must fit into a machine: with less, each token would read most of them from disk again."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a stage will hold at its peak, in bytes."""

    stage: str
    anon: int
    file: int
    kv: int = 0
    """Part of `anon`: the key-value slots, reserved in advance."""
    heavy: bool = True
    """False for a stage so small that it may stay beside a heavy one."""

    @property
    def usage(self) -> Usage:
        return Usage(self.anon, self.file)


@dataclass(frozen=True, slots=True)
class Held:
    """A stage that is loaded or loading, in bytes."""

    stage: str
    reserved: Usage
    measured: Usage
    in_use: bool
    last_used_ns: int
    heavy: bool = True

    @property
    def counts_as(self) -> Usage:
        """The larger of the two: a promise stays a promise until the stage has gone."""
        return Usage(max(self.reserved.anon, self.measured.anon), max(self.reserved.file, self.measured.file))


@dataclass(frozen=True, slots=True)
class Snapshot:
    usable: int
    """Budget minus margin."""
    budget: int
    margin: int
    base: int
    """What the daemon and its fork server hold."""
    held: tuple[Held, ...] = ()
    file_share: float = 1.0
    """How much of mapped weights counts: 1, or `FILE_SHARE`."""

    def cost(self, usage: Usage) -> int:
        return usage.anon + int(usage.file * self.file_share)

    @property
    def free(self) -> int:
        return self.usable - self.base - sum(self.cost(row.counts_as) for row in self.held)


@dataclass(frozen=True, slots=True)
class Admit:
    pass


@dataclass(frozen=True, slots=True)
class Evict:
    victims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    error: MemoryRefused


def plan(snapshot: Snapshot, need: Need) -> Admit | Evict | Refuse:
    """What to do so that `need` can load. A stage that is already held is the caller's to reuse, never planned."""
    cost = snapshot.cost(need.usage)
    if cost > snapshot.usable - snapshot.base:
        return Refuse(NeverFits(_never(snapshot, need), stage=need.stage))
    rivals = [row for row in snapshot.held if need.heavy and row.heavy]
    if any(row.in_use for row in rivals):
        names = ", ".join(row.stage for row in rivals if row.in_use)
        return Refuse(BusyNow(f"{need.stage} must wait for {names}", stage=need.stage, retry_after_ms=1000))

    def order(row: Held) -> tuple[int, int, str]:
        return row.last_used_ns, -snapshot.cost(row.counts_as), row.stage

    victims = list(rivals)
    free = snapshot.free + sum(snapshot.cost(row.counts_as) for row in victims)
    for row in sorted((row for row in snapshot.held if row not in rivals and not row.in_use), key=order):
        if free >= cost:
            break
        victims.append(row)
        free += snapshot.cost(row.counts_as)
    if free < cost:
        return Refuse(
            BusyNow(
                f"{need.stage} needs {_mib(cost)} MiB and {_mib(max(0, free))} MiB are free while others work",
                stage=need.stage,
                retry_after_ms=1000,
            )
        )
    return Evict(tuple(row.stage for row in sorted(victims, key=order))) if victims else Admit()


def _never(snapshot: Snapshot, need: Need) -> str:
    room = snapshot.usable - snapshot.base
    smaller = f", or choose a smaller stages.{need.stage}.model" if need.heavy else ""
    return (
        f"{need.stage} needs {_mib(snapshot.cost(need.usage))} MiB, but the budget of {_mib(snapshot.budget)} MiB"
        f" - margin {_mib(snapshot.margin)} - our own processes {_mib(snapshot.base)} leaves"
        f" {f'{_mib(room)} MiB' if room > 0 else 'nothing'};"
        f" raise memory.budget_mib or lower memory.margin_mib{smaller}"
    )


def _mib(size: int) -> int:
    return round(size / MIB)
