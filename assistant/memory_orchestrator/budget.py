"""How much memory the assistant may use: pure arithmetic on what the probe read."""

from __future__ import annotations

from dataclasses import dataclass

from assistant.memory_orchestrator.probe import MIB, Machine

FULL_MARGIN_FROM = 1792 * MIB
"""What a board sold with 2 GB reports as its memory once firmware and kernel have taken theirs. Smaller machines keep a
margin that is smaller in proportion: 300 MiB of 512 would leave nothing to work with."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes. All of our processes together stay below `usable`."""

    total: int
    margin: int
    source: str
    """Which figure decided, for messages: configured, cgroup, or machine."""
    margin_note: str = ""
    """The arithmetic of a margin that was scaled."""
    others: int = 0
    """What it would be more if other programs held nothing."""

    @property
    def usable(self) -> int:
        return max(0, self.total - self.margin)

    @property
    def taken(self) -> int:
        """How much more would be usable if other programs held nothing."""
        return max(0, self.total + self.others - self.margin) - self.usable


def decide(machine: Machine, anon_by_us: int, *, configured_mib: float, margin_mib: float) -> Budget:
    """budget = min(configured, cgroup limit - what others hold in it, MemTotal - what others hold), in bytes.

    What others hold is MemTotal - MemAvailable - our own anonymous memory: MemAvailable already counts mapped weights,
    ours among them, as available. In a cgroup it is what is charged to it beyond page cache and us, kernel memory and
    files in memory included.

    margin = configured margin * min(1, machine / `FULL_MARGIN_FROM`), where the machine is what the hardware or the
    cgroup gives, whatever others hold of it and whatever budget was set.
    """
    others = max(0, machine.total - machine.available - anon_by_us)
    candidates = [(machine.total - others, "machine")]
    size = most = machine.total
    if machine.cgroup_limit is not None:
        candidates.append((min(machine.cgroup_limit, machine.cgroup_left + anon_by_us), "cgroup"))
        size = most = min(size, machine.cgroup_limit)
    if configured_mib > 0:
        candidates.append((int(configured_mib * MIB), "configured"))
        most = min(most, int(configured_mib * MIB))
    total, source = min(candidates)
    margin = int(margin_mib * MIB)
    if size >= FULL_MARGIN_FROM:
        return Budget(total=total, margin=margin, source=source, others=most - total)
    scaled = margin * size // FULL_MARGIN_FROM
    note = f" ({margin_mib:g} * {size // MIB}/{FULL_MARGIN_FROM // MIB}, as the machine has {size // MIB} MiB)"
    return Budget(total=total, margin=scaled, source=source, margin_note=note, others=most - total)
