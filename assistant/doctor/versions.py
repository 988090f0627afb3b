"""Versions: Python, the kernel, ours, and the packages that we were tested with. Imports none of them."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata

from assistant import paths, versions
from assistant.doctor.findings import Finding
from assistant.doctor.scene import Scene

OURS = "local-voice-assistant"
_OLDEST = (3, 11)
_PINNED = re.compile(r"([A-Za-z0-9._-]+)==([^;\s]+)")

VersionOf = Callable[[str], str]
"""Raises `PackageNotFoundError`."""


def look_at_versions(scene: Scene) -> Iterator[Finding]:
    del scene
    troubles = [*python(sys.version_info[:2]), *packages(required(), metadata.version)]
    yield from troubles
    if not troubles:
        yield Finding("versions", "ok", ", ".join([*versions.lines(versions.installed()), _kernel()]))


def required() -> list[tuple[str, str]]:
    """(name, version) of what is pinned: of a checkout's pyproject.toml, or of what was installed."""
    root = paths.checkout()
    if root is not None:
        lines = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    else:
        lines = [line for line in metadata.requires(OURS) or () if "extra ==" not in line]
    return [(match[1], match[2]) for line in lines if (match := _PINNED.match(line))]


def python(version: tuple[int, ...]) -> Iterator[Finding]:
    if version < _OLDEST:
        found = ".".join(map(str, version))
        yield Finding("python-old", "problem", f"this is Python {found}", "sudo apt install python3.11 python3.11-venv")


def packages(pinned: Iterable[tuple[str, str]], version_of: VersionOf) -> Iterator[Finding]:
    install = f"{shlex.quote(sys.executable)} -m pip install"
    for name, wanted in pinned:
        try:
            have = version_of(name)
        except (metadata.PackageNotFoundError, KeyError):  # KeyError: half of it is left on the disk
            yield Finding("package-missing", "problem", f"{name} is not installed", f"{install} {name}=={wanted}")
            continue
        if have != wanted:
            text = f"{name} is {have}; {wanted} is what was tested"
            yield Finding("package-version", "advice", text, f"{install} {name}=={wanted}")


def _kernel() -> str:
    kernel = os.uname()
    return f"{kernel.sysname} {kernel.release} {kernel.machine}"
