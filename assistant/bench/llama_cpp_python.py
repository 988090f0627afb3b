"""The Python that has llama-cpp-python: given, or an environment of our own in the cache, made once. Imports `paths`.

Never our own environment: the package compiles for about ten minutes, and nothing but a benchmark wants it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from assistant import paths
from assistant.bench.output import say_aside
from assistant.errors import FetchFailed, UsageError

VERSION = "0.3.36"
"""Of llama-cpp-python, which holds the source of llama.cpp of its day."""
_ASK = "import importlib.metadata; print(importlib.metadata.version('llama_cpp_python'))"


class Python(msgspec.Struct, frozen=True):
    path: Path
    version: str
    """Of llama-cpp-python."""


def python_of(given: Path | None, folder: Path | None = None) -> Python:
    """The Python given, or that of `folder` (default: in the cache), which is made when it is not there.

    Raises `UsageError` when the one given has no llama-cpp-python, `FetchFailed` when pip cannot install it.
    """
    if given is not None:
        version = _version(given)
        if not version:
            raise UsageError(f"{given} has no llama-cpp-python; install it there, or leave the option out")
        return Python(given, version)
    folder = folder or paths.cache_dir() / f"bench-llama-cpp-{VERSION}"
    python = folder / "bin/python"
    if _version(python) != VERSION:
        _make(folder, python)
    return Python(python, VERSION)


def _version(python: Path) -> str:
    """Empty when there is none."""
    try:
        done = subprocess.run([str(python), "-c", _ASK], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""


def _make(folder: Path, python: Path) -> None:
    say_aside(f"llama-cpp-python {VERSION} is compiled into {folder}: about ten minutes, once (needs a C++ compiler)")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"llama-cpp-python=={VERSION}"],
    ):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            raise FetchFailed(
                f"llama-cpp-python {VERSION} could not be installed (see above); name a Python that has it with"
                " --llama-cpp-python"
            )
    if _version(python) != VERSION:
        raise FetchFailed(f"pip has installed another llama-cpp-python than {VERSION} into {folder}; remove the folder")
