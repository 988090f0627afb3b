"""What this computer is. Reads /sys and /proc alone."""

from __future__ import annotations

import os
import time
from pathlib import Path


def physical_cores(root: Path = Path("/")) -> int:
    """Cores that this process may use, hyper-threads counted once: more compute threads than that slow each other."""
    cores = set()
    usable = os.sched_getaffinity(0)
    for cpu in usable:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        try:
            cores.add(tuple((topology / name).read_text("ascii") for name in ("physical_package_id", "core_id")))
        except OSError:
            return max(1, len(usable))
    return max(1, len(cores))


def process_age_s() -> float:
    """Seconds since this process was started, imports and all (resolution 10 ms)."""
    ticks = int(Path("/proc/self/stat").read_text("ascii", errors="replace").rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
