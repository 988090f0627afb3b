"""Clock governor, temperature, throttling, PSI, /dev/shm. Imports the memory orchestrator's sensors."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator

from assistant.doctor.findings import Finding
from assistant.doctor.scene import MIB, Scene, mib
from assistant.machine import lines_of
from assistant.memory_orchestrator.pressure import ABOVE_TRIP_C, CLOCK_CAPPED, SOFT_LIMIT, THROTTLED, WEAK_SUPPLY
from assistant.memory_orchestrator.sensors import Sensors

_SLOW = ("powersave", "conservative", "userspace")
_BETTER = ("schedutil", "ondemand", "performance")
_OWN_DRIVERS = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
"""Whose "powersave" follows the load, as ondemand does."""
_VCGENCMD_S = 3.0
_HISTORY = 16
"""Bits by which the firmware's flags of the past are higher than those of now."""
_FEW_FILES = 512
"""The keys and values of the LLM alone are two files a layer, and each client is some more."""
_SMALL_SHM = 64 * MIB
"""Bytes free: the ledger, and the keys and values of a small model."""


def look_at_governor(scene: Scene) -> Iterator[Finding]:
    folder = "sys/devices/system/cpu/cpufreq"
    slow, seen, able = set(), set(), set[str]()
    for policy in sorted((scene.root / folder).glob("policy*")):
        chosen = "".join(lines_of(policy / "scaling_governor"))
        seen.add(chosen)
        if chosen in _SLOW and "".join(lines_of(policy / "scaling_driver")) not in _OWN_DRIVERS:
            slow.add(chosen)
            able |= {*"".join(lines_of(policy / "scaling_available_governors")).split()}
    if slow:
        better = next((one for one in _BETTER if one in able), _BETTER[0])
        yield Finding(
            "governor-slow", "advice", f"the clock's governor is {', '.join(sorted(slow))}",
            f"echo {better} | sudo tee /{folder}/policy*/scaling_governor",
        )  # fmt: skip
    else:
        yield Finding("governor", "ok", ", ".join(sorted(seen - {""})) or "the kernel does not show the clock here")


def look_at_temperature(scene: Scene) -> Iterator[Finding]:
    now = Sensors(scene.root).read()
    if now.temperature_c is None or now.trip_c is None:
        yield Finding("temperature", "ok", "no sensor")
        return
    above = now.temperature_c - now.trip_c
    told = f"{now.temperature_c:.0f} °C; the processor is slowed down from {now.trip_c:.0f} °C on"
    elevated, high, _ = ABOVE_TRIP_C
    if above < elevated:
        yield Finding("temperature", "ok", told)
        return
    yield Finding(
        "too-hot", "problem" if above >= high else "advice", told,
        "add a heatsink or a fan; watch it with: watch -n1 cat /sys/class/thermal/thermal_zone*/temp",
    )  # fmt: skip


_FLAGGED = (
    (
        "supply-weak", WEAK_SUPPLY, "the voltage is too low", "the voltage has been too low",
        "use the supply that the board's maker names, reboot, then: vcgencmd get_throttled",
    ),
    (
        "throttled", CLOCK_CAPPED | THROTTLED | SOFT_LIMIT,
        "the firmware holds the clock down", "the firmware has held the clock down",
        "mend supply and cooling, reboot, then: vcgencmd get_throttled",
    ),
)  # fmt: skip
"""Finding, flags, what is said while they are set and afterwards, and what to do."""


def look_at_supply(scene: Scene) -> Iterator[Finding]:
    """Raspberry Pi's flags, from sysfs or from its own program."""
    flags = Sensors(scene.root).read().throttled or _vcgencmd(scene)
    if flags is None:
        yield Finding("supply", "ok", "the firmware tells nothing about it here")
        return
    past = flags >> _HISTORY
    for id, mask, is_so, was_so, fix in _FLAGGED:
        if (flags | past) & mask:
            now = bool(flags & mask)
            text = is_so if now else f"{was_so} since the start"
            yield Finding(id, "problem" if now else "advice", f"{text} (flags {flags:#x})", fix)
    if not flags:
        yield Finding("supply", "ok", "the firmware reports nothing")


def _vcgencmd(scene: Scene) -> int | None:
    """None where there is no such program, or it says nothing: `throttled=0x50005`."""
    program = shutil.which("vcgencmd", path=scene.environ.get("PATH"))
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "get_throttled"], capture_output=True, text=True, timeout=_VCGENCMD_S, check=False
        )
        return int(done.stdout.strip().partition("=")[2], 16)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None


# --- the kernel -----------------------------------------------------------------------------------------------------
def look_at_pressure(scene: Scene) -> Iterator[Finding]:
    stalled = Sensors(scene.root).read().stalled
    if stalled is not None:
        yield Finding("pressure", "ok", f"PSI is there; {stalled:g} % of the last 10 s were lost to memory stalls")
    else:
        yield Finding(
            "pressure-missing", "advice", "/proc/pressure/memory cannot be read", scene.command_line_fix("psi=1")
        )


def look_at_open_files(scene: Scene) -> Iterator[Finding]:
    """The hard limit of this process; the daemon raises the soft one itself."""
    del scene
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= most < _FEW_FILES:
        fix = "LimitNOFILE=16384 in the service, or in /etc/security/limits.conf: * hard nofile 16384"
        clients = max(0, (most - 224) // 4)  # docs/protocol.md
        text = f"at most {most} files may be open, which are enough for {clients} clients of each socket at a time"
        yield Finding("open-files-few", "advice", text, fix)
    else:
        yield Finding("open-files", "ok", f"at most {most} files may be open" if most >= 0 else "no limit")


def look_at_shared_memory(scene: Scene) -> Iterator[Finding]:
    folder = scene.root / "dev/shm"
    mount = "sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
    if not folder.is_dir():
        yield Finding("shared-memory-missing", "problem", "there is no /dev/shm", f"sudo mkdir -p /dev/shm && {mount}")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
        fix = "sudo mount -o remount,rw /dev/shm" if read_only else "sudo chmod 1777 /dev/shm"
        yield Finding("shared-memory-missing", "problem", "it cannot be written: /dev/shm", fix)
        return
    free = shutil.disk_usage(folder).free
    if free < _SMALL_SHM:
        yield Finding(
            "shared-memory-small", "advice", f"{mib(free)} are free in /dev/shm",
            "sudo mount -o remount,size=25% /dev/shm (or --shm-size=256m of the container)",
        )  # fmt: skip
    else:
        yield Finding("shared-memory", "ok", f"{mib(free)} are free in /dev/shm")
