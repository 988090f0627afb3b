"""Who may use which CPU, and who goes first: niceness and affinity of a worker by its role. Pure.

Imports `messages` and the type of a CPU; sets nothing (`worker` does, before it imports its engine).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from assistant.machine import Cpu
from assistant.messages import Stage


class Placement(msgspec.Struct, frozen=True):
    nice: int = 0
    """On top of the daemon's own."""
    cpus: tuple[int, ...] = ()
    """Numbers of the CPUs that it may use; empty = leave as it is."""


ANYWHERE = Placement()
"""As the daemon is."""
NICE: Mapping[Stage, int] = {Stage.ASR: 1, Stage.TTS: 1, Stage.INTENT: 2, Stage.LLM: 5}
"""The daemon comes first, since a late audio block is heard; then hearing and speaking, whose gaps are heard too; the
LLM, which takes all the time that it gets, comes last."""
SESSION_NICE = 1
"""Of all workers together. Where the kernel shares CPUs among sessions first (sched_autogroup, on in most
distributions), niceness counts inside of a session alone, and the fork server with its workers is a session."""
FEWEST_CORES = 4
"""With fewer, a core of its own for audio would cost the LLM more than niceness leaves undone."""
_BIG = 2 / 3
"""Share of the fastest core's capacity. Little cores have a quarter to three fifths of a big one; cores of one kind
differ by a few percent at most."""


def placement(stage: Stage, cpus: Sequence[Cpu]) -> Placement:
    """Where a stage's worker belongs, given the CPUs that this process may use."""
    numbers = _for_thinking(cpus) if stage is Stage.LLM else ()
    return Placement(nice=NICE[stage], cpus=numbers)


def threads_for(placed: Placement, cpus: Sequence[Cpu]) -> int:
    """Physical cores that it may use, at least 1: compute threads that share a core slow each other."""
    return max(1, len({cpu.core for cpu in cpus if not placed.cpus or cpu.number in placed.cpus}))


def _for_thinking(cpus: Sequence[Cpu]) -> tuple[int, ...]:
    """The big cores where there are two of them and others beside; else all but one, which stays for audio."""
    cores: dict[tuple[int, int, int], list[Cpu]] = {}
    for cpu in sorted(cpus, key=lambda cpu: cpu.number):
        cores.setdefault(cpu.core, []).append(cpu)
    if len(cores) < FEWEST_CORES:
        return ()
    fastest = max(cpu.capacity for cpu in cpus)
    big = [core for core, members in cores.items() if members[0].capacity >= fastest * _BIG]
    if len(big) < 2 or len(big) == len(cores):
        left = min(cores, key=lambda core: cores[core][0].capacity)  # of equal ones the first
        big = [core for core in cores if core != left]
    return tuple(sorted(cpu.number for core in big for cpu in cores[core]))
