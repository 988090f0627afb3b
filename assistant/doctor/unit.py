"""The systemd unit, where one was installed. Reads files alone; asks systemd nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from assistant.doctor.findings import Finding
from assistant.doctor.places import user_name
from assistant.doctor.scene import Scene
from assistant.machine import lines_of
from assistant.paths import UNIT

_PREFIXES = "-@:+!|"
"""Of a program in ExecStart: how it is started, and no part of its path."""


def look_at_unit(scene: Scene, user: str = "") -> Iterator[Finding]:
    """`user`: whose unit may be there; empty = ours. Root's services need no session."""
    name = user or user_name()
    if not (scene.root / "run/systemd/system").is_dir():
        yield Finding("service", "ok", "this machine was not started by systemd")
        return
    system = scene.root / "etc/systemd/system" / UNIT
    own = scene.places.config.parent / "systemd/user" / UNIT
    there = [unit for unit in (system, own) if unit.is_file()]
    troubles = [finding for unit in there for finding in _program(scene, unit, "" if unit is system else " --user")]
    if own in there and name != "root" and not (scene.root / "var/lib/systemd/linger" / name).exists():
        text = f"{name}'s services end with the last session"
        troubles.append(Finding("service-linger", "advice", text, f"sudo loginctl enable-linger {name}"))
    yield from troubles
    if not troubles:
        names = ", ".join(map(str, there))
        yield Finding("service", "ok", names or "no unit is installed", "" if there else "assistant install-service")


def _program(scene: Scene, unit: Path, option: str) -> Iterator[Finding]:
    again = f"assistant install-service{option or ' --system'}"
    starts = [line.partition("=")[2].strip() for line in lines_of(unit) if line.startswith("ExecStart=")]
    try:
        program = shlex.split(starts[-1])[0].lstrip(_PREFIXES).replace("%%", "%").replace("$$", "$")
    except (IndexError, ValueError):
        yield Finding("service-broken", "problem", f"{unit} has no ExecStart= that can be read", again)
        return
    if program.startswith("/") and not os.access(scene.root / program[1:], os.X_OK):
        yield Finding("service-broken", "problem", f"{unit} starts {program}, which is not there", again)
