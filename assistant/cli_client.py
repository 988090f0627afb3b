"""The way to the running daemon for all verbs. Imports zmq only where a daemon may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assistant import paths
from assistant.errors import NotRunning

if TYPE_CHECKING:
    from assistant.api.client import Client


def found() -> Client | None:
    """None when no daemon runs; costs nothing where there is none.

    Raises `NotRunning` for one that does not answer: a pipeline beside it would take the memory that it still has.
    """
    if not paths.control_socket().exists():
        return None
    from assistant.api import client

    try:
        return client.found()
    except NotRunning as error:
        raise NotRunning(
            f"{error.message}, or say --standalone for a pipeline of its own beside it", code=error.code
        ) from None


def needed() -> Client:
    """Raises `NotRunning`."""
    from assistant.api import sockets

    sockets.folder()  # a path that no socket can have is the better message
    if not paths.control_socket().exists():
        raise NotRunning(f"no daemon runs (there is no {paths.control_socket()}); start one with 'assistant run'")
    from assistant.api.client import Client

    return Client()
