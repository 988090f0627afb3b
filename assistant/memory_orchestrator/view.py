"""The ledger in words: its rows and sums as `assistant ps`, `top` and `status` show them. Pure."""

from __future__ import annotations

from assistant.memory_orchestrator.ledger import LedgerView, Row, RowState
from assistant.memory_orchestrator.probe import MIB
from assistant.messages_status import MemoryStatus, StageStatus

_STATES = {
    RowState.RESERVED: "reserved",
    RowState.PREPARED: "prepared",
    RowState.LOADING: "loading",
    RowState.IDLE: "idle",
    RowState.IN_USE: "in-use",
    RowState.LEAVING: "leaving",
}


def stage_rows(view: LedgerView, now_ns: int) -> tuple[StageStatus, ...]:
    """`now_ns`: CLOCK_MONOTONIC, which is the same for all processes."""
    return tuple(_row(row, now_ns) for row in view.rows)


def _row(row: Row, now_ns: int) -> StageStatus:
    return StageStatus(
        name=row.stage,
        engine=row.engine,
        model=row.model,
        state=_STATES[row.state],  # type: ignore[arg-type]
        pid=row.pid,
        reserved_mib=_mib(row.reserved),
        anon_mib=_mib(row.anon),
        file_mib=_mib(row.file),
        kv_mib=_mib(row.kv),
        until_s=round(max(0, row.keep_alive_until_ns - now_ns) / 1e9, 1) if row.keep_alive_until_ns else None,
    )


def memory_sums(view: LedgerView) -> MemoryStatus:
    base = view.base_anon + view.base_file
    return MemoryStatus(
        budget_mib=_mib(view.budget),
        margin_mib=_mib(view.margin),
        base_mib=_mib(base),
        used_mib=_mib(base + sum(row.anon + row.file for row in view.rows)),
        peak_mib=_mib(view.peak_total),
        peak_anon_mib=_mib(view.peak_anon),
        mode=view.mode,
    )


def _mib(size: int) -> float:
    return round(size / MIB, 1)
