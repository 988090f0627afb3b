"""Snapshots of a ledger in MiB, for the tests of the policy."""

from __future__ import annotations

from assistant.memory_orchestrator.policy import (
    NOT_NEEDED,
    Held,
    Need,
    Snapshot,
)
from assistant.memory_orchestrator.probe import MIB, Usage


def snapshot(*held: Held, usable: int = 1000, base: int = 50, others: int = 0) -> Snapshot:
    """950 MiB of room."""
    return Snapshot(
        usable=usable * MIB,
        budget=(usable + 300) * MIB,
        margin=300 * MIB,
        base=base * MIB,
        held=held,
        others=others * MIB,
    )


def held(
    stage: str,
    mib: int,
    *,
    in_use: bool = False,
    used: int = 0,
    until: int = 0,
    next_use: int = NOT_NEEDED,
    measured: int = 0,
    file: int = 0,
) -> Held:
    return Held(
        stage,
        Usage(mib * MIB, file * MIB),
        Usage(measured * MIB),
        in_use=in_use,
        last_used_ns=used,
        until_ns=until,
        next_use=next_use,
    )


def need(stage: str, mib: int, file: int = 0) -> Need:
    return Need(stage=stage, anon=mib * MIB, file=file * MIB)
