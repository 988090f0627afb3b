"""What a client from the network may do: one right for each command. Imports `errors` and `wire`; pure.

Clients at the sockets of this machine are our own user, and have all rights.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Any

from assistant.api import wire
from assistant.errors import UsageError


class Right(StrEnum):
    OBSERVE = "observe"
    """Sees what goes on, everybody's words included."""
    SPEAK = "speak"
    """Asks, with its own text and sound, and has texts spoken."""
    LISTEN = "listen"
    """Opens our microphone."""
    ADMIN = "admin"


NEEDED: dict[str, Right | None] = {
    "ask": Right.SPEAK,
    "ask-sound": Right.SPEAK,
    "say": Right.SPEAK,
    "load": Right.ADMIN,
    "unload": Right.ADMIN,
    "register": Right.ADMIN,  # a handler is told what people say, and answers for the house
    "answer": Right.ADMIN,
    "ping": None,  # of everybody who is let in
    "status": Right.OBSERVE,
    "ps": Right.OBSERVE,
    "snapshot": Right.OBSERVE,
    "cancel": Right.SPEAK,  # of its own queries; those of others are for admin (`may_cancel`)
    "shutdown": Right.ADMIN,
    "listen": Right.LISTEN,
    "mute": Right.ADMIN,
    "volume": Right.ADMIN,
    "timers": Right.OBSERVE,  # to look at; a change is for admin
}
"""By the command's `type`. A command that is not here is for admin."""


def check(rights: Collection[Right], command: Any) -> None:
    """`command`: a checked struct of `wire`. Raises `UsageError` code "forbidden"."""
    name = wire.NAMES[type(command)]
    needed = NEEDED.get(name, Right.ADMIN)
    if isinstance(command, wire.Timers) and command.action != "list":
        name, needed = f"timers {command.action}", Right.ADMIN
    if name == "cancel" and Right.ADMIN in rights:
        return
    if needed is not None and needed not in rights:
        raise forbidden(f"`{name}` needs the right `{needed}`, which this client does not have")


def may_cancel(rights: Collection[Right], query_id: str | None, owned: bool) -> None:
    """Raises `UsageError` code "forbidden" unless it is the client's own query, or the client is admin."""
    if Right.ADMIN not in rights and not (query_id is not None and owned):
        raise forbidden(
            "`cancel` of a query that this client did not ask needs the right `admin`; name your `query_id`"
        )


def forbidden(why: str) -> UsageError:
    return UsageError(f"{why} (docs/security.md)", code="forbidden")
