"""The states of a worker and the rungs of its shutdown ladder. Imports nothing of ours."""

from __future__ import annotations

from enum import IntEnum, StrEnum


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
