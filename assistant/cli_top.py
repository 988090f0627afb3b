"""The verb `top`: the ledger, live. Asks the daemon nothing, so it costs it nothing."""

from __future__ import annotations

import contextlib
import json
import select
import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from assistant.cli_memory import Frame, JsonFlag, opened_ledger
from assistant.cli_output import reported, show
from assistant.errors import UsageError

_LEAST_S = 0.1


def top(
    interval: Annotated[float, typer.Option(metavar="SECONDS", help="Between two readings.")] = 0.5,
    count: Annotated[int, typer.Option(metavar="N", help="Stop after so many; 0 = never.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """What is loaded, live; q or Ctrl-C ends it. Plain lines where stdout is no terminal; --json: an object a line."""
    with reported(as_json):
        if not _LEAST_S <= interval <= 3600 or count < 0:
            raise UsageError(f"--interval takes {_LEAST_S} to 3600 seconds, --count 0 or more")
        ledger = opened_ledger()
        with contextlib.suppress(KeyboardInterrupt), _screen(as_json) as draw, _key_q() as quit_within:
            shown = 0
            while True:
                draw(Frame.of(ledger))
                shown += 1
                if shown == count or quit_within(interval):
                    return


@contextlib.contextmanager
def _screen(as_json: bool) -> Iterator[Callable[[Frame], None]]:
    if as_json:
        yield lambda frame: show(json.dumps(frame.to_dict()))
    elif not sys.stdout.isatty():
        yield lambda frame: show("\n".join(frame.lines()))
    else:
        from rich.live import Live
        from rich.text import Text

        def text(frame: Frame) -> Text:
            return Text("\n".join(frame.lines()), no_wrap=True, overflow="crop")

        with Live(auto_refresh=False) as live:
            yield lambda frame: live.update(text(frame), refresh=True)


@contextlib.contextmanager
def _key_q() -> Iterator[Callable[[float], bool]]:
    """Waits so many seconds; True as soon as q is pressed at the terminal."""
    if sys.stdin is None or not sys.stdin.isatty():

        def sleep(seconds: float) -> bool:
            time.sleep(seconds)
            return False

        yield sleep
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield _pressed_q
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed_q(seconds: float) -> bool:
    give_up = time.monotonic() + seconds
    while (left := give_up - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0] and sys.stdin.read(1).lower() in ("q", ""):
            return True
    return False
