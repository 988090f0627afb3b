"""The way to the running daemon for all verbs. Imports zmq only where a daemon may be."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from assistant import paths
from assistant.errors import ConfigError, NotRunning

if TYPE_CHECKING:
    from assistant.api.client import Client


def found() -> Client | None:
    """None when no daemon runs; costs nothing where there is none, or where we may not look.

    Raises `NotRunning` for one that does not answer: a pipeline beside it would take the memory that it still has.
    """
    if not os.path.exists(paths.control_socket()):
        return None
    from assistant.api import client

    try:
        return client.found()
    except NotRunning as error:
        raise NotRunning(
            f"{error.message}, or say --standalone for a pipeline of its own beside it", code=error.code
        ) from None


def needed() -> Client:
    """Raises `NotRunning`, `ConfigError` where we may not look."""
    from assistant.api import sockets

    sockets.folder()  # a path that no socket can have is the better message
    try:
        os.stat(paths.control_socket())
    except PermissionError:
        raise ConfigError(
            f"{paths.runtime_dir()} may not be entered; whose is XDG_RUNTIME_DIR? ('su' and 'sudo' can keep another"
            " user's: unset it, or set it to a folder of your own)",
            code="runtime-dir",
        ) from None
    except OSError:
        raise NotRunning(
            f"no daemon runs (there is no {paths.control_socket()}); start one with 'assistant run'"
        ) from None
    from assistant.api.client import Client

    return Client()
