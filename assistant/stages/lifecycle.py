"""The states of a worker, the rungs of its shutdown ladder, and how its end is told. Imports `errors` alone."""

from __future__ import annotations

import signal
from enum import IntEnum, StrEnum

from assistant.errors import StageDied

OVER_MEMORY = "stage-over-memory"
"""Code of a worker that was stopped because it held too much."""
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)


class WorkerState(StrEnum):
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    BUSY = "busy"
    DRAINING = "draining"
    FAILED = "failed"


class Rung(IntEnum):
    """How far up the shutdown ladder a worker had to be pushed."""

    ALREADY_GONE = 0
    REQUEST = 1
    SIGTERM = 2
    SIGKILL = 3


def death(stage: str, status: int | None, killed_for: str) -> StageDied:
    """`status`: of its exit, negative = signal, None = not known. `killed_for`: why we ourselves have ended it."""
    if killed_for:
        return StageDied(f"the worker of {stage} {killed_for}", code=OVER_MEMORY, stage=stage)
    if status == -signal.SIGKILL:
        how = "was killed; the kernel may have been out of memory (see memory.budget_mib)"
    elif status is not None and status < 0:
        how = f"crashed with {signal.Signals(-status).name}"
    else:
        how = "went away" if status is None else f"ended with status {status}"
    error = StageDied(f"the worker of {stage} {how}", stage=stage)
    error.suspects_cache = status is not None and -status in _CRASHES
    return error
