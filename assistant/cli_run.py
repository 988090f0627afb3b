"""The verb `run`: becomes the daemon. The command line's own libraries do not stay in its memory."""

from __future__ import annotations

import os
import sys

from assistant import paths
from assistant.cli_config import Sets
from assistant.cli_output import reported
from assistant.errors import UsageError


def run(sets: Sets = None) -> None:
    """Run the assistant until Ctrl-C, SIGTERM or a client's `shutdown`; other verbs and programs then speak to it."""
    with reported():
        arguments = [part for one in sets or () for part in ("--set", one)]
        try:
            # -P: a module in the user's folder must not become ours
            command = [sys.executable, "-P", "-m", "assistant.service", *arguments]
            os.execve(sys.executable, command, paths.environment_of_ours())  # noqa: S606 - our own interpreter, no shell wanted
        except (OSError, ValueError) as error:
            raise UsageError(f"the daemon cannot be started: {error}") from None
