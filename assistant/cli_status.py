"""The verbs `status` and `cancel`: short questions at the daemon's control socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from assistant import cli_client, cli_voice
from assistant.cli_memory import Frame, JsonFlag
from assistant.cli_output import emit, reported, show

if TYPE_CHECKING:
    from assistant.messages_status import Status


def status(as_json: JsonFlag = False) -> None:
    """What the running daemon does, and what it holds."""
    with reported(as_json):
        with cli_client.needed() as client:
            told = client.status()
        if as_json:
            import msgspec

            emit(msgspec.to_builtins(told))
        else:
            show("\n".join(_lines(told)))


def _lines(told: Status) -> list[str]:
    memory = Frame(told.stages, told.memory, told.pressure.level).lines()
    if told.pressure.reasons:
        memory[-1] += f" ({', '.join(told.pressure.reasons)})"
    queries = "1 query" if told.queries == 1 else f"{told.queries} queries"
    return [
        f"{told.state}; {queries} since its start {_age(told.uptime_s)} ago",
        f"version {told.version}, process {told.pid}",
        *memory,
        *(cli_voice.lines(told.voice) if told.voice is not None else ["no microphone and no speaker (audio.enabled)"]),
    ]


def _age(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def cancel(
    query_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A query; without it, the one that is being answered.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Stop a query that is being answered or waits."""
    with reported(as_json):
        with cli_client.needed() as client:
            stopped = client.cancel(query_id)
        if as_json:
            emit({"query_ids": list(stopped)})
        else:
            show(f"cancelled {stopped[0]}" if stopped else "nothing is being answered")
