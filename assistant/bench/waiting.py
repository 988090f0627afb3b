"""What a daemon costs that waits for its wake word: processor time and memory of all its processes.

    assistant bench waiting [--seconds 30] [--set KEY=VALUE]... [--json]

It opens the machine's microphone. Sound or silence makes no difference to what it computes; words that wake it do, so
let nobody speak to it meanwhile.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from assistant.bench.daemons import OwnDaemon, terminable
from assistant.bench.output import judge, said
from assistant.errors import DeviceError
from assistant.memory_orchestrator.probe import MIB, Probe

TARGET_CPU_PERCENT, TARGET_PSS_MIB = 3.0, 80.0
_SETTLE_S = 5.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Process(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cpu_percent: float
    """Of one core."""
    pss_mib: float


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    microphone: str
    words: tuple[str, ...]
    processes: tuple[Process, ...]
    cpu_percent: float
    pss_mib: float
    reached: bool


def measure(seconds: float, sets: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Waiting:
    """`environ`: of the daemon. Raises `DeviceError` without a microphone, and what the daemon's start raises."""
    with OwnDaemon(("audio.enabled=true", *sets), environ=environ) as daemon:
        time.sleep(_SETTLE_S)
        voice = daemon.client.status().voice
        if voice is None or voice.input.state != "ok":
            raise DeviceError(f"there is no microphone to wait at: {voice.input.message if voice else 'it is off'}")
        pids = [daemon.pid, *_descendants(daemon.pid)]
        before = {pid: _cpu_s(pid) for pid in pids}
        began = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        processes = tuple(
            Process(
                name=_name(pid),
                cpu_percent=round((_cpu_s(pid) - before[pid]) / took * 100, 2),
                pss_mib=round(Probe().usage(pid).total / MIB, 1),
            )
            for pid in pids
        )
    cpu, pss = sum(one.cpu_percent for one in processes), sum(one.pss_mib for one in processes)
    return Waiting(
        seconds=round(took, 1),
        microphone=f"{voice.input.name}, {voice.input.sample_rate} Hz, {voice.input.channels} ch",
        words=voice.words,
        processes=processes,
        cpu_percent=round(cpu, 2),
        pss_mib=round(pss, 1),
        reached=cpu <= TARGET_CPU_PERCENT and pss <= TARGET_PSS_MIB,
    )


def _descendants(pid: int) -> list[int]:
    found = [
        int(one) for task in Path(f"/proc/{pid}/task").iterdir() for one in (task / "children").read_text().split()
    ]
    return found + [deeper for one in found for deeper in _descendants(one)]


def _cpu_s(pid: int) -> float:
    """Of all its threads, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _name(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    comm = Path(f"/proc/{pid}/comm").read_text().strip()
    return (
        comm if comm.startswith("assistant") else next((one for one in command if one.startswith("assistant.")), comm)
    )


def table(found: Waiting) -> str:
    lines = [f"{one.name:<28}{one.cpu_percent:>8.2f} %{one.pss_mib:>9.1f} MiB" for one in found.processes]
    return "\n".join(
        [
            f"waiting for {', '.join(found.words)} at {found.microphone}, {found.seconds:g} s",
            *lines,
            f"{'all':<28}{found.cpu_percent:>8.2f} %{found.pss_mib:>9.1f} MiB",
            f"target: {TARGET_CPU_PERCENT:g} % of one core, {TARGET_PSS_MIB:g} MiB: {said(found.reached)}",
        ]
    )


def _seconds(text: str) -> float:
    if not 0 < (seconds := float(text)) <= 86_400:
        raise argparse.ArgumentTypeError("between 0 and a day")
    return seconds


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="assistant bench waiting", description="What it costs to wait.")
    parser.add_argument("--seconds", type=_seconds, default=30, help="how long it is watched (30)")
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="KEY=VALUE", help="a setting")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    with terminable():
        return judge(lambda: measure(args.seconds, args.sets), table, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
