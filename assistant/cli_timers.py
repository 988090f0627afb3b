"""The verb `timers`: those of the running daemon. They are set by voice, or by `assistant ask`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from assistant import cli_client
from assistant.cli_memory import JsonFlag
from assistant.cli_output import emit, reported, show
from assistant.errors import UsageError

if TYPE_CHECKING:
    from assistant.messages_timers import TimerAction, TimerStatus

_ACTIONS: tuple[TimerAction, ...] = ("list", "cancel", "pause", "resume")


def timers(
    what: Annotated[str, typer.Argument(metavar="[list|cancel|pause|resume]", help="What to do.")] = "list",
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Of the timer, as the list shows it.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """The running daemon's timers: list them, or cancel, pause or resume one."""
    with reported(as_json):
        action = next((one for one in _ACTIONS if one == what), None)
        if action is None:
            raise UsageError(f"timers takes {', '.join(_ACTIONS)}, not {what!r}")
        if (action == "list") != (id is None):
            raise UsageError("'timers list' takes no ID" if id else f"'timers {action}' needs the ID of a timer")
        with cli_client.needed() as client:
            found = client.timers(action, id)
        if as_json:
            import msgspec

            emit({"timers": msgspec.to_builtins(found)})
        else:
            show("\n".join(lines(found)))


def lines(timers: Sequence[TimerStatus]) -> list[str]:
    if not timers:
        return ["no timers"]
    rows = [(timer.id, _clock(timer.left_s), _clock(timer.total_s), timer.state, timer.name) for timer in timers]
    wide = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        f"{id:>{wide[0]}}  {left:>{wide[1]}} of {total:>{wide[2]}}  {state:<{wide[3]}}  {name}".rstrip()
        for id, left, total, state, name in rows
    ]


def _clock(seconds: float) -> str:
    """ "1:02:05"; "-0:12" for what ended that long ago."""
    left = abs(round(seconds))
    hours, minutes = divmod(left // 60, 60)
    text = f"{hours}:{minutes:02}:{left % 60:02}" if hours else f"{minutes}:{left % 60:02}"
    return f"-{text}" if round(seconds) < 0 else text
