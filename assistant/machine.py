"""What this computer is. Reads /sys and /proc alone; imports nothing of ours."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Cpu(NamedTuple):
    """One logical CPU, as the kernel schedules on it."""

    number: int
    core: tuple[int, int, int]
    """Package, cluster, core. Hyper-threads share it; without the cluster the cores of a big.LITTLE machine would."""
    capacity: int
    """Computing power, 1024 = this machine's fastest kind; also where the kernel does not say."""


_FASTEST = 1024


def usable_cpus(root: Path = Path("/"), numbers: Iterable[int] | None = None) -> tuple[Cpu, ...]:
    """The CPUs that this process may use (or those with `numbers`), by number; never empty.

    A CPU of which the kernel says nothing is a core of its own.
    """
    wanted = os.sched_getaffinity(0) if numbers is None else numbers
    return tuple(_cpu(root / f"sys/devices/system/cpu/cpu{number}", number) for number in sorted(wanted))


def _cpu(folder: Path, number: int) -> Cpu:
    topology = folder / "topology"
    core = number_of(topology / "core_id")
    place = (
        (-1, -1, number)
        if core is None
        else (number_of(topology / "physical_package_id") or 0, number_of(topology / "cluster_id") or 0, core)
    )
    return Cpu(number, place, number_of(folder / "cpu_capacity") or _FASTEST)


def process_age_s() -> float:
    """Seconds since this process was started, imports and all (resolution 10 ms)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - _start_in(_stat(os.getpid())) / os.sysconf("SC_CLK_TCK")


def process_start(pid: int) -> int:
    """Clock ticks since boot, the same in every time namespace; 0 when there is no such process, or only its zombie."""
    start = _start_in(_stat(pid))
    return start - _ahead_ticks() if start else 0


def _stat(pid: int) -> str:
    return "".join(lines_of(Path(f"/proc/{pid}/stat")))


def _start_in(told: str) -> int:
    """Field 22 of /proc/PID/stat, by our own boot-time clock."""
    fields = told.rpartition(")")[2].split()
    return int(fields[19]) if fields and fields[0] not in "ZX" else 0


def _ahead_ticks() -> int:
    """How far the boot-time clock of our time namespace is ahead of the machine's (time_namespaces(7))."""
    for line in lines_of(Path("/proc/self/timens_offsets")):
        clock, seconds, nanoseconds = line.split()
        if clock == "boottime":
            return round((int(seconds) + int(nanoseconds) / 1e9) * os.sysconf("SC_CLK_TCK"))
    return 0


def has_ended(pid: int, start: int = 0) -> bool:
    """Whether the process is gone, or (`start`: when it began, as `process_start` tells) another one has its number.

    False when the kernel does not let us look, as without a free descriptor: who may live is not to be taken for dead.
    """
    try:
        found = _start_in(Path(f"/proc/{pid}/stat").read_text("utf-8", "replace"))
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    return found == 0 or start not in (0, found - _ahead_ticks())


def pid_namespace() -> int:
    """Names those whom we see by their numbers: not the processes of other containers. 0 = unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


# --- small files of the kernel: what is not there, or not to be read, says nothing ----------------------------------
def lines_of(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def number_of(file: Path, base: int = 10) -> int | None:
    try:
        return int("".join(lines_of(file)), base)
    except ValueError:
        return None


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_TRIM_FROM = 128 * 1024
"""Bytes; glibc's own first guess, which it raises by itself when large blocks come and go."""


def keep_malloc_tidy() -> None:
    """For a process that lives long: one heap for all threads, and what is freed goes back to the kernel. By default
    each thread gets a heap of its own, which keeps the most that it ever held. Does nothing without glibc."""
    share_one_heap()
    with contextlib.suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, _TRIM_FROM)
        mallopt(_M_MMAP_THRESHOLD, _TRIM_FROM)


def share_one_heap() -> None:
    """All threads that will be started share the first one's. Does nothing without glibc."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


_DESCRIPTORS = 16384


def allow_descriptors() -> int:
    """As many open files as we may have: 1024, the usual limit, are soon used up by clients that come and stay.
    How many that are now."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, _DESCRIPTORS) if most > 0 else _DESCRIPTORS, most))
    return descriptors()


def may_be_scheduled() -> bool:
    """Whether a thread of ours may be given the scheduling that it has anyway: libzmq does that with each of its own,
    and ends the process where a filter of system calls forbids it."""
    try:
        os.sched_setscheduler(0, os.sched_getscheduler(0), os.sched_getparam(0))
    except OSError:
        return False
    return True


def descriptors() -> int:
    """How many files this process may have open."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return allowed if allowed >= 0 else _DESCRIPTORS
