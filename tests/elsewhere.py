"""Processes in a PID namespace of their own, as in a container that shares our files: here they have other numbers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENTER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def needs_namespaces() -> None:
    if subprocess.run([*ENTER, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no PID namespace can be made here")


@contextmanager
def elsewhere(code: str, *arguments: object) -> Iterator[tuple[str, Callable[[], None]]]:
    """The first line that the code prints there, and what ends it as SIGKILL does."""
    needs_namespaces()
    command = [*ENTER, sys.executable, "-c", f"import os, sys, time; {code}", *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = process.stdout.readline().strip()

        def end() -> None:
            process.kill()
            assert process.stdout is not None
            process.stdout.read()  # its end: the kernel has closed what it had open

        try:
            yield told, end
        finally:
            process.kill()
