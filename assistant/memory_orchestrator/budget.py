"""How much memory the assistant may use: pure arithmetic on what the probe read."""

from __future__ import annotations

from dataclasses import dataclass

from assistant.memory_orchestrator.probe import MIB, Machine


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes. All of our processes together stay below `usable`."""

    total: int
    margin: int
    source: str
    """Which figure decided, for messages: configured, cgroup, or machine."""

    @property
    def usable(self) -> int:
        return max(0, self.total - self.margin)


def decide(machine: Machine, anon_by_us: int, *, configured_mib: float, margin_mib: float) -> Budget:
    """budget = min(configured, cgroup limit - what others hold in it, MemTotal - what others hold), in bytes.

    What others hold is MemTotal - MemAvailable - our own anonymous memory: MemAvailable already counts mapped weights,
    ours among them, as available. In a cgroup it is what is charged to it beyond page cache and us.
    """
    others = max(0, machine.total - machine.available - anon_by_us)
    candidates = [(machine.total - others, "machine")]
    if machine.cgroup_limit is not None:
        neighbours = max(0, machine.cgroup_anon - anon_by_us)
        candidates.append((max(0, machine.cgroup_limit - neighbours), "cgroup"))
    if configured_mib > 0:
        candidates.append((int(configured_mib * MIB), "configured"))
    total, source = min(candidates)
    return Budget(total=total, margin=int(margin_mib * MIB), source=source)
