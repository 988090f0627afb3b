"""Which versions are installed, of us and of what does the work. Imports none of it: what pip wrote down is read."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from importlib import metadata

from assistant import __version__

ENGINES = ("MNN", "ctranslate2", "onnxruntime", "piper-tts", "vosk", "pyzmq")
_LIBZMQ = re.compile(r"libzmq[-\w]*\.so\.([\d.]+)$")

Installed = Callable[[str], metadata.Distribution]
"""Raises `PackageNotFoundError`."""


def installed(of: Installed = metadata.distribution) -> dict[str, str | None]:
    """By name: our version first, Python's second; None for what is not installed. "libzmq.so" is the one in pyzmq's
    wheel, by the number of its interface, which its file carries; left out where pyzmq uses the system's."""
    found: dict[str, str | None] = {"assistant": __version__, "Python": platform.python_version()}
    for name in ENGINES:
        try:
            package = of(name)
            found[name] = package.version
        except (metadata.PackageNotFoundError, KeyError):  # KeyError: half of it is left on the disk
            found[name] = None
            continue
        if name == "pyzmq" and (inside := _libzmq(package)):
            found["libzmq.so"] = inside
    return found


def lines(found: dict[str, str | None]) -> list[str]:
    """For people: "MNN 3.2.0", "vosk is not installed"."""
    return [f"{name} {version or 'is not installed'}" for name, version in found.items()]


def _libzmq(package: metadata.Distribution) -> str | None:
    for file in package.files or ():
        if match := _LIBZMQ.match(file.name):
            return match[1]
    return None
