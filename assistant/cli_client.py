"""The way to the running daemon for all verbs. Imports zmq only where a daemon may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assistant import paths
from assistant.errors import NotRunning

if TYPE_CHECKING:
    from assistant.api.client import Client

_PING_S = 1.0
"""A daemon answers within milliseconds; a page that comes from a slow card may take longer."""


def found() -> Client | None:
    """None when no daemon answers; costs nothing where there is none."""
    if not paths.control_socket().exists():
        return None
    from assistant.api import client

    return client.found(timeout_s=_PING_S)


def needed() -> Client:
    """Raises `NotRunning`."""
    from assistant.api import sockets

    sockets.folder()  # a path that no socket can have is the better message
    if not paths.control_socket().exists():
        raise NotRunning(f"no daemon runs (there is no {paths.control_socket()}); start one with 'assistant run'")
    from assistant.api.client import Client

    return Client()
