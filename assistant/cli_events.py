"""The verb `events`: what happens in the daemon, as it happens. Outlives the daemon: follows the next one as well."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant import cli_client
from assistant.cli_memory import JsonFlag
from assistant.cli_output import reported, say, show
from assistant.errors import NotRunning, UsageError

if TYPE_CHECKING:
    from assistant.api.wire_events import Published

_LOOK_AGAIN_S = 0.5


def events(
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="PREFIX", help="Only events whose name begins with it; may be repeated. Default: all."),
    ] = None,
    count: Annotated[int, typer.Option(metavar="N", help="Stop after so many; 0 = never.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Follow what happens, live; Ctrl-C ends it. --json: an object a line; one with "missed" tells of a gap."""
    with reported(as_json):
        if count < 0:
            raise UsageError("--count takes 0 or more")
        _check(topics := topic or [])
        with contextlib.suppress(KeyboardInterrupt):
            shown = 0
            for told in _followed(topics):
                show(json.dumps(told, ensure_ascii=True) if as_json else _line(told))
                shown += "seq" in told
                if shown == count > 0:
                    return


def _check(topics: Sequence[str]) -> None:
    from assistant.api.wire_events import EVENTS

    for topic in topics:
        if not any(name.startswith(topic) for name in EVENTS):
            raise UsageError(f"no event begins with {topic[:64]!r}; there are {', '.join(EVENTS)}")


def _followed(topics: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Events, `missed` and `restarted`. Raises `NotRunning` when there is no daemon to begin with."""
    from assistant.api.gaps import Gaps

    pid, lost = 0, False
    gaps = Gaps({})
    while True:
        try:
            with cli_client.needed() as client:
                feed = client.events(*topics)
                counts, now = client.snapshot().counts, client.ping().pid
                if now != pid:
                    say(f"following the events of process {now}")
                    gaps = Gaps(counts)
                    if pid:
                        yield {"restarted": now}
                pid, lost = now, False  # of the same daemon, the next event of each name tells what was missed
                for event in feed:
                    if missed := gaps.before(event):
                        yield {"missed": missed, "name": event.name}
                    yield _plain(event)
        except NotRunning as error:
            if not pid:
                raise
            if not lost:
                say(f"{error.message}; waiting for it")
            lost = True
            time.sleep(_LOOK_AGAIN_S)


def _plain(event: Published) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(event)
    return plain


def _line(told: dict[str, Any]) -> str:
    if "restarted" in told:
        return f"--- another daemon, process {told['restarted']}"
    if "missed" in told:
        return f"--- {told['missed']} missed ({told['name']})"
    at = time.strftime("%H:%M:%S", time.localtime(told["time"]))
    return (
        f"{at}.{int(told['time'] * 1000) % 1000:03} {told['name']:<18} {json.dumps(told['data'], ensure_ascii=False)}"
    )
