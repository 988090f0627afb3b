"""What the kernel says: PSS of processes, machine memory, cgroup limits. Reads files alone; the root is a seam.

PSS, not RSS: pages that several of our processes share (the interpreter, numpy) count once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from assistant.memory_orchestrator.cgroup import Cgroups

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes of PSS. `file` are clean pages of mapped files, which the kernel can drop; `anon` is the rest."""

    anon: int = 0
    file: int = 0
    shm: int = 0
    """The part of `anon` that lies in shared memory (tmpfs): the LLM's keys and values."""

    @property
    def total(self) -> int:
        return self.anon + self.file

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.anon + other.anon, self.file + other.file, self.shm + other.shm)

    def __or__(self, other: Usage) -> Usage:
        """The larger of each."""
        return Usage(max(self.anon, other.anon), max(self.file, other.file), max(self.shm, other.shm))


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of one process, in bytes."""

    now: Usage = Usage()
    rss: int = 0
    rss_peak: int = 0
    """The most that the process ever had resident."""

    def peak_since(self, earlier: Sample) -> Usage:
        """The most that the process held since `earlier`, spikes between two readings included.

        The kernel keeps the peak of RSS, not of PSS; what RSS had more at its peak than now was private memory.
        """
        spike = max(0, self.rss_peak - self.rss) if self.rss_peak > earlier.rss_peak else 0
        return Usage(self.now.anon + spike, self.now.file, self.now.shm)


@dataclass(frozen=True, slots=True)
class Machine:
    """Bytes."""

    total: int
    available: int
    cgroup_limit: int | None = None
    """The smallest limit on the way from our cgroup to the root; None = none."""
    cgroup_left: int = 0
    """What is left below the limit that leaves the least, page cache not counted."""


class Probe:
    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._cgroups = Cgroups(root)

    def usage(self, pid: int) -> Usage:
        """PSS of one process; nothing for a process that has gone or is not ours."""
        return self.sample(pid).now

    def family_sample(self, pid: int) -> Sample:
        """A process and its descendants: what a worker starts to prepare a model counts as its own."""
        samples = [self.sample(one) for one in self._family(pid)]
        return Sample(
            now=sum((one.now for one in samples), Usage()),
            rss=sum(one.rss for one in samples),
            # the peaks of children need not have been at the same time as the parent's
            rss_peak=samples[0].rss_peak + sum(one.rss for one in samples[1:]),
        )

    def _family(self, pid: int) -> list[int]:
        found = [pid]
        for one in found:
            try:
                tasks = list((self._root / f"proc/{one}/task").iterdir())
                children = [(task / "children").read_text("ascii").split() for task in tasks]
            except OSError:
                continue
            found += [int(child) for group in children for child in group]
        return found

    def sample(self, pid: int) -> Sample:
        """PSS, RSS and its high-water mark of one process; zeros for one that has gone or is not ours."""
        try:
            rollup = _fields((self._root / f"proc/{pid}/smaps_rollup").read_text("ascii"))
            status = _fields((self._root / f"proc/{pid}/status").read_text("utf-8", "replace"))
        except OSError:
            return Sample()
        # where the kernel lacks the split, all of it counts as anonymous: the careful reading
        file = rollup.get("Pss_File", 0)
        return Sample(
            # what was swapped out (to zram, on a Raspberry Pi) is still ours
            now=Usage(
                anon=rollup.get("Pss", 0) - file + rollup.get("SwapPss", 0), file=file, shm=rollup.get("Pss_Shmem", 0)
            ),
            # from one file, which is read at one moment: weights are mapped at 50 MiB per ms, and what came between
            # two readings would pass for a spike
            rss=status.get("VmRSS", 0),
            rss_peak=status.get("VmHWM", 0),
        )

    def machine(self) -> Machine:
        fields = _fields((self._root / "proc/meminfo").read_text("ascii"))
        limits = self._cgroups.read()
        return Machine(
            total=fields["MemTotal"],
            # MemAvailable, not MemFree: page cache is not lost memory
            available=fields.get("MemAvailable", fields.get("MemFree", 0)),
            cgroup_limit=limits.smallest if limits else None,
            cgroup_left=limits.left if limits else 0,
        )


def _fields(text: str) -> dict[str, int]:
    """`Name:  123 kB` lines, in bytes."""
    out: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            out[name] = int(words[0]) * KIB
    return out
