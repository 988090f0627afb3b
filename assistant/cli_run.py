"""The verb `run`: becomes the daemon. The command line's own libraries do not stay in its memory."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from assistant import paths
from assistant.cli_output import reported
from assistant.errors import UsageError


def run(
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; repeatable.")
    ] = None,
) -> None:
    """Run the assistant until Ctrl-C, SIGTERM or a client's `shutdown`; other verbs and programs then speak to it."""
    with reported():
        arguments = [part for one in sets or () for part in ("--set", one)]
        environment = {
            **os.environ,
            # the same code as ours, wherever this process found it
            "PYTHONPATH": os.pathsep.join(filter(None, [str(paths.package_root()), os.environ.get("PYTHONPATH")])),
            # one heap arena: what a thread frees can be used by the others
            "MALLOC_ARENA_MAX": "1",
        }
        try:
            # -P: a module in the user's folder must not become ours
            command = [sys.executable, "-P", "-m", "assistant.service", *arguments]
            os.execve(sys.executable, command, environment)  # noqa: S606 - our own interpreter, no shell wanted
        except (OSError, ValueError) as error:
            raise UsageError(f"the daemon cannot be started: {error}") from None
