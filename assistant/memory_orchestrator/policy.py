"""Who may load, who must go first, who is refused: pure functions on a snapshot. Decides; never acts.

    plan(snapshot, needs) -> Admit | Evict(victims) | Refuse(error)
    mode_of(room, needs)  -> resident | overlap | sequential

The total order of victims: what no running query will need goes first, then what is needed last (queries use their
stages in a known order, so "least recently used" would throw out exactly what comes next); among equals, whose time is
up soonest, then least recently used, then the larger, then the name. The same snapshot always gives the same victims.

Mapped weights count whole as long as that can ever fit. A model for which it cannot may still be admitted alone, with
`FILE_SHARE` of its weights counted, where the budget is the machine's own and nobody set it: the kernel drops such
pages before anybody suffers, and a model whose weights do not all stay in memory is slower, not fatal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assistant.errors import BusyNow, MemoryRefused, NeverFits
from assistant.memory_orchestrator.probe import MIB, Usage
from assistant.messages import Mode

FILE_SHARE = 0.125
"""Of mapped weights, what must fit into a machine. As soon as they do not all fit, each token reads them again from the
disk, and how many do makes no difference (`assistant bench llm --sections memory-limits`: 1.7 tok/s from 900 down to
500 MiB, 0.65 at 160 where next to nothing stays)."""
NOT_NEEDED = 1 << 30
"""`Held.next_use` of a stage that no running query will need."""
TAKEN = "memory-taken"
"""Code of the `BusyNow` that no lease of ours can end."""
_FOREVER = 1 << 63


@dataclass(frozen=True, slots=True)
class Need:
    """What a stage will hold at its peak, in bytes."""

    stage: str
    anon: int
    file: int
    kv: int = 0
    """Part of `anon`: the key-value slots, reserved in advance."""

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
    until_ns: int = 0
    """End of its keep-alive; 0 = none."""
    next_use: int = NOT_NEEDED
    """How many stages away a running query needs it: 0 = next."""

    @property
    def counts_as(self) -> Usage:
        """The larger of the two: a promise stays a promise until the stage has gone."""
        return Usage(max(self.reserved.anon, self.measured.anon), max(self.reserved.file, self.measured.file))

    @property
    def eviction_order(self) -> tuple[int, int, int, int, str]:
        size = self.counts_as.total
        return -self.next_use, self.until_ns or _FOREVER, self.last_used_ns, -size, self.stage


@dataclass(frozen=True, slots=True)
class Snapshot:
    usable: int
    """Budget minus margin."""
    budget: int
    margin: int
    base: int
    """What the daemon and its fork server hold."""
    held: tuple[Held, ...] = ()
    others: int = 0
    """What other programs hold of what could be usable: no lease of ours gives it back."""
    most: int = 0
    """The budget if other programs held nothing."""
    squeezable: bool = False
    """Whether mapped weights may count by `FILE_SHARE` where they can never fit whole."""
    margin_note: str = ""
    """The arithmetic of a margin that was scaled."""

    @property
    def room(self) -> int:
        return self.usable - self.base

    @property
    def free(self) -> int:
        return self.room - sum(row.counts_as.total for row in self.held)


@dataclass(frozen=True, slots=True)
class Admit:
    pass


@dataclass(frozen=True, slots=True)
class Evict:
    victims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    error: MemoryRefused


def plan(snapshot: Snapshot, needs: Sequence[Need], *, nearer_than: int = -1) -> Admit | Evict | Refuse:
    """What to do so that all of `needs` can load together. A stage that is already held is the caller's to reuse.

    `nearer_than`: stages that are needed in so many steps or fewer stay. For loading ahead, which must not throw out
    what is wanted as soon as the thing itself.
    """
    cost = sum(need.usage.total for need in needs)
    most = snapshot.room + snapshot.others
    squeezed = cost > most and snapshot.squeezable and len(needs) == 1
    if squeezed:
        cost = _cost(needs[0].usage, FILE_SHARE)
    if cost > most:
        return Refuse(NeverFits(_never(snapshot, needs, cost), stage=needs[0].stage))
    if cost > snapshot.room:
        return Refuse(BusyNow(_taken(snapshot, needs, cost), code=TAKEN, stage=needs[0].stage, retry_after_ms=5000))

    victims = []
    free = snapshot.free
    movable = [row for row in snapshot.held if not row.in_use and row.next_use > nearer_than]
    if squeezed and snapshot.held:  # alone: nothing fits beside weights that do not fit themselves
        cost = snapshot.room
    for row in sorted(movable, key=lambda row: row.eviction_order):
        if free >= cost:
            break
        victims.append(row)
        free += row.counts_as.total
    for row in reversed(victims[:-1]):  # a small one that came first may stay after all, now that a large one goes
        if row.next_use <= victims[-1].next_use and free - row.counts_as.total >= cost:
            victims.remove(row)
            free -= row.counts_as.total
    if free < cost:
        return Refuse(BusyNow(_busy(snapshot, needs, cost, free), stage=needs[0].stage, retry_after_ms=1000))
    return Evict(tuple(row.stage for row in victims)) if victims else Admit()


def excess(snapshot: Snapshot) -> tuple[str, ...]:
    """Idle stages that must go because the budget has become smaller than what is held. One that was admitted alone
    by a share of its weights may stay."""
    if snapshot.squeezable and len(snapshot.held) == 1:
        (row,) = snapshot.held
        over = _cost(row.counts_as, FILE_SHARE) - snapshot.room
    else:
        over = -snapshot.free
    victims = []
    for row in sorted((row for row in snapshot.held if not row.in_use), key=lambda row: row.eviction_order):
        if over <= 0:
            break
        victims.append(row.stage)
        over -= row.counts_as.total
    return tuple(victims)


def mode_of(room: int, needs: Sequence[Need]) -> Mode:
    """How stages with these needs can live in `room` bytes."""
    sizes = sorted((need.usage.total for need in needs), reverse=True)
    if sum(sizes) <= room:
        return "resident"
    return "overlap" if sum(sizes[:2]) <= room else "sequential"


def _cost(usage: Usage, share: float) -> int:
    return usage.anon + int(usage.file * share)


def _busy(snapshot: Snapshot, needs: Sequence[Need], cost: int, free: int) -> str:
    users = ", ".join(row.stage for row in snapshot.held if row.in_use) or "others"
    return f"{_names(needs)} needs {_mib(cost)} MiB, and {_mib(max(0, free))} MiB are free while {users} works"


def _taken(snapshot: Snapshot, needs: Sequence[Need], cost: int) -> str:
    return (
        f"{_names(needs)} needs {_mib(cost)} MiB, and other programs have left {_mib(max(0, snapshot.room))} of the"
        f" {_mib(snapshot.room + snapshot.others)} that could be had; end one of them, or ask again later"
    )


def _never(snapshot: Snapshot, needs: Sequence[Need], cost: int) -> str:
    room = snapshot.room + snapshot.others
    return (
        f"{_names(needs)} needs {_mib(cost)} MiB, but the budget of {_mib(max(snapshot.budget, snapshot.most))} MiB"
        f" - margin {_mib(snapshot.margin)}{snapshot.margin_note} - our own processes {_mib(snapshot.base)} leaves"
        f" {f'{_mib(room)} MiB' if room > 0 else 'nothing'};"
        f" raise memory.budget_mib or lower memory.margin_mib, or choose a smaller stages.{needs[0].stage}.model"
        f"{_of_conversations(needs)}"
    )


def _of_conversations(needs: Sequence[Need]) -> str:
    return "".join(
        f", or less of stages.{need.stage}.slots or context_tokens: keys and values take {_mib(need.kv)} of it"
        for need in needs
        if need.kv
    )


def _names(needs: Sequence[Need]) -> str:
    return " and ".join(need.stage for need in needs)


def _mib(size: int) -> int:
    return round(size / MIB)
