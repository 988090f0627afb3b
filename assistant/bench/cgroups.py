"""A memory cgroup (version 1 or 2) for a benchmark: made, read, and always removed again. Imports `errors` alone."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from assistant.errors import UsageError

_REMOVE_TRIES, _REMOVE_WAIT_S = 200, 0.02


NO_CGROUPS = "no-memory-cgroups"
"""Code of the `UsageError` where none can be made."""


class MemoryCgroup:
    """`with MemoryCgroup(name, limit) as group:`; whoever still lives in it at the end is killed."""

    def __init__(self, name: str, limit: int, root: Path = Path("/sys/fs/cgroup")) -> None:
        """`limit` in bytes."""
        self._v1 = (root / "memory/memory.limit_in_bytes").exists()
        self._parent = root / "memory" if self._v1 else root
        self.path = self._parent / name
        self.limit = limit

    def __enter__(self) -> Self:
        """Raises `UsageError` code "no-memory-cgroups" with the reason where none can be made."""
        why = self._why_not()
        if why:
            raise UsageError(f"a memory cgroup is needed, and {why}", code=NO_CGROUPS)
        try:
            self.path.mkdir()
        except OSError as error:
            raise UsageError(
                f"a memory cgroup is needed, and {self.path} cannot be made: {error.strerror}", code=NO_CGROUPS
            ) from None
        try:
            self._restrict()
        except OSError as error:
            self._remove()
            raise UsageError(
                f"a memory cgroup is needed, and {self.path} takes no limit: {error.strerror}", code=NO_CGROUPS
            ) from None
        return self

    def _why_not(self) -> str:
        if os.geteuid() != 0:
            return "only root can make one; run this as root"
        if self._v1:
            return ""
        try:
            enabled = (self._parent / "cgroup.subtree_control").read_text("ascii").split()
        except OSError:
            return f"this system has none below {self._parent}"
        return "" if "memory" in enabled else "the memory controller is not enabled (cgroup.subtree_control)"

    def limit_to(self, limit: int) -> None:
        """Another limit, in bytes, while it lives."""
        (self.path / ("memory.limit_in_bytes" if self._v1 else "memory.max")).write_text(str(limit))
        self.limit = limit

    def _restrict(self) -> None:
        self.limit_to(self.limit)
        # what does not fit shall show, and not hide in swap
        swap, none = ("memory.swappiness", "0") if self._v1 else ("memory.swap.max", "0")
        with contextlib.suppress(OSError):  # kernels without swap have no such file
            (self.path / swap).write_text(none)

    @property
    def procs(self) -> Path:
        """Whoever writes its process id into this file moves in."""
        return self.path / "cgroup.procs"

    def oom_kills(self) -> int:
        lines = (self.path / ("memory.oom_control" if self._v1 else "memory.events")).read_text("ascii").splitlines()
        return int(next(line for line in lines if line.startswith("oom_kill ")).split()[1])

    def anon(self) -> int:
        """Bytes of anonymous memory that are charged to it now."""
        return self._stat("total_rss" if self._v1 else "anon")

    def cached(self) -> int:
        """Bytes of page cache that are charged to it now."""
        return self._stat("total_cache" if self._v1 else "file")

    def max_usage(self) -> int:
        """The most that was ever charged, page cache included, in bytes; 0 where the kernel does not keep it."""
        try:
            return int((self.path / ("memory.max_usage_in_bytes" if self._v1 else "memory.peak")).read_text("ascii"))
        except OSError:
            return 0

    def _stat(self, name: str) -> int:
        for line in (self.path / "memory.stat").read_text("ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
        return 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        """The kernel keeps a cgroup until the last process in it is reaped."""
        for _ in range(_REMOVE_TRIES):
            for pid in self._members():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(_REMOVE_WAIT_S)
            else:
                return

    def _members(self) -> list[int]:
        try:
            # 0 is one in another PID namespace, and to `kill` our own whole group
            return [int(line) for line in self.procs.read_text("ascii").split() if line != "0"]
        except OSError:
            return []
