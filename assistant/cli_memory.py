"""The verbs `ps`, `load`, `unload`. `ps` reads the ledger alone and asks nobody."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant import cli_client, paths
from assistant.cli_output import emit, reported, show
from assistant.errors import AssistantError, NotRunning, UsageError

if TYPE_CHECKING:
    from assistant.memory_orchestrator.ledger import LedgerReader
    from assistant.messages import Stage
    from assistant.messages_status import MemoryStatus, StageStatus

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON alone on stdout.")]
StageName = Annotated[str, typer.Argument(metavar="STAGE", help="asr, intent, llm or tts.")]


def ps(as_json: JsonFlag = False) -> None:
    """What the running daemon has loaded, what it promised and what was measured."""
    with reported(as_json):
        frame = Frame.of(opened_ledger())
        if as_json:
            emit(frame.to_dict())
        else:
            show("\n".join(frame.lines()))


def load(
    stage: StageName,
    keep_alive: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long it stays when idle: 90, 30s, 5m, 1h; 0 = unloaded again at once; -1 = for ever.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Load a stage ahead of its first use."""
    with reported(as_json):
        wanted, keep_alive_s = _stage(stage), seconds(keep_alive) if keep_alive is not None else None
        with cli_client.needed() as client:
            loaded = client.load(wanted, keep_alive_s)
        if as_json:
            import msgspec

            emit(msgspec.to_builtins(loaded))
        elif loaded.status is None or keep_alive_s == 0:
            show(f"{wanted} was loaded, and is unloaded again")
        else:
            row = loaded.status
            show(f"{wanted} is loaded: {row.anon_mib:.0f} MiB anonymous, {row.file_mib:.0f} file; {_until(row)}")


def unload(stage: StageName, as_json: JsonFlag = False) -> None:
    """Unload a stage now; its memory is free when this returns."""
    with reported(as_json):
        wanted = _stage(stage)
        with cli_client.needed() as client:
            done = client.unload(wanted)
        if as_json:
            import msgspec

            emit(msgspec.to_builtins(done))
        else:
            show(f"{wanted} is unloaded" if done.unloaded else f"{wanted} was not loaded")


# --- words that users type ------------------------------------------------------------------------------------------
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h)", re.ASCII)
_PLAIN = re.compile(r"-?\d{1,9}(?:\.\d{1,9})?", re.ASCII)


def seconds(text: str) -> float:
    """`90`, `30s`, `5m`, `1h30m`, `250ms`; any negative number is -1, for ever. Raises `UsageError`."""
    word = text.strip().lower()
    sign = -1 if word.startswith("-") else 1
    if _PLAIN.fullmatch(word):
        return max(-1.0, float(word)) if sign > 0 else -1.0
    parts = _PART.findall(word)
    if not parts or "".join(number + unit for number, unit in parts) != word.removeprefix("-"):
        raise UsageError(f"{text!r} is no length of time; write 90, 30s, 5m, 1h, 0 or -1")
    return sum(float(number) * _UNITS[unit] for number, unit in parts) if sign > 0 else -1.0


def _stage(name: str) -> Stage:
    from assistant.messages import STAGE_ORDER, Stage

    if name not in STAGE_ORDER:
        raise UsageError(f"{name!r} is no stage; there are {', '.join(STAGE_ORDER)}", code="unknown-stage")
    return Stage(name)


# --- the ledger, for people -----------------------------------------------------------------------------------------
def opened_ledger() -> LedgerReader:
    """Raises `NotRunning`, or `AssistantError` code "other-version" when a daemon runs whose ledger is another one."""
    from assistant.memory_orchestrator.ledger import LedgerReader, segment_name

    try:
        return LedgerReader(segment_name(paths.daemon_owner()))
    except NotRunning as error:
        _check_version()
        raise NotRunning(f"no daemon runs ({error.message}); start one with 'assistant run'") from None


def _check_version() -> None:
    """Raises `AssistantError` code "other-version" when a living process writes a ledger that is not of our version."""
    from assistant.memory_orchestrator.writers import VERSION, other_version, segment_name

    found = other_version(segment_name(paths.daemon_owner()))
    if found is None:
        return
    version, pid = found
    raise AssistantError(
        f"the running daemon (process {pid}) is of another version than this command: its ledger has version {version},"
        f" this one reads {VERSION}; stop it and start it anew with 'assistant run'",
        code="other-version",
    )


@dataclass(frozen=True, slots=True)
class Frame:
    """One reading of the ledger."""

    stages: tuple[StageStatus, ...]
    memory: MemoryStatus
    pressure: str

    @classmethod
    def of(cls, ledger: LedgerReader) -> Frame:
        """Raises `NotRunning` when the daemon has gone (a killed one leaves its ledger behind), and what
        `opened_ledger` raises for one of another version."""
        from assistant.memory_orchestrator.view import memory_sums, stage_rows

        try:
            view = ledger.read()
        except NotRunning as error:
            _check_version()
            raise NotRunning(f"the daemon has gone ({error.message}); start one with 'assistant run'") from None
        return cls(stage_rows(view, time.monotonic_ns()), memory_sums(view), view.level)

    def to_dict(self) -> dict[str, Any]:
        import msgspec

        return {
            "stages": msgspec.to_builtins(self.stages),
            "memory": msgspec.to_builtins(self.memory),
            "pressure": self.pressure,
        }

    def lines(self) -> list[str]:
        """MiB."""
        head = f"{'NAME':<8}{'ENGINE':<11}{'STATE':<10}{'RESERVED':>9}{'ANON':>7}{'FILE':>7} MiB  UNTIL"
        rows = [
            f"{one.name:<8}{one.engine:<11}{one.state:<10}{one.reserved_mib:>9.0f}{one.anon_mib:>7.0f}"
            f"{one.file_mib:>7.0f}      {_until(one)}"
            for one in self.stages
        ]
        memory = self.memory
        last = (
            f"budget {memory.budget_mib:.0f} MiB, margin {memory.margin_mib:.0f}, used {memory.used_mib:.0f};"
            f" {memory.mode}, pressure {self.pressure}"
        )
        return [head, *rows, last]


def _until(row: StageStatus) -> str:
    if row.state == "in-use":
        return "in use"
    if row.state != "idle":
        return "-"
    if row.until_s is None:
        return "forever"
    if row.until_s >= 5400:
        return f"{row.until_s / 3600:.1f} h"
    return f"{row.until_s / 60:.0f} min" if row.until_s >= 90 else f"{row.until_s:.0f} s"
