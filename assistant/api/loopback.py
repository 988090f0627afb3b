"""Where this machine alone may connect: addresses of its own, and sockets of the file system. Imports `errors`.

For protocols without passwords: what is not ours alone is refused, with the reason.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path

from assistant.api.sockets import somebody_listens
from assistant.errors import ConfigError

_BACKLOG = 32


def checked_loopback(address: str, key: str, why: str) -> str:
    """The address, "localhost" as a number. Raises `ConfigError` that names `key` for one that others can reach."""
    if address == "localhost":
        return "127.0.0.1"
    try:
        own = ipaddress.ip_address(address).is_loopback
    except ValueError:
        raise ConfigError(f"{key}: {address[:80]!r} is no address; write 127.0.0.1 or ::1") from None
    if not own:
        raise ConfigError(f"{key}: {address} can be reached from other machines, and {why}; write 127.0.0.1 or ::1")
    return address


def tcp_listener(address: str, port: int, key: str) -> socket.socket:
    """Raises `ConfigError` when it cannot be had."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{key}: {address} port {port} cannot be had: {reason}") from None
    listener.setblocking(False)
    return listener


def unix_listener(path: Path, key: str) -> socket.socket:
    """A socket that this user alone may open (0600). One that a killed process left behind is replaced. Raises
    `ConfigError` for a path that is taken, or is no socket of ours."""
    _make_way(path, key)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # before it has a name: nobody can be faster
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"{key}: {path} cannot be had: {error.strerror or error}") from None
    listener.setblocking(False)
    return listener


async def closed(server: asyncio.Server, clients: Iterable[asyncio.Task[object]]) -> None:
    """Nobody connects to it any more, and what it does for its clients has ended."""
    server.close()
    tasks = list(clients)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await server.wait_closed()


def _make_way(path: Path, key: str) -> None:
    if "\0" in str(path):  # the kernel would end the name there
        raise ConfigError(f"{key}: the path contains a NUL character")
    try:
        found = path.lstat()
    except OSError:
        return  # nothing there; what else is wrong is said when it is made
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        raise ConfigError(f"{key}: {path} is there, and is no socket of this user; choose another path")
    if somebody_listens(path):
        raise ConfigError(f"{key}: another process listens at {path}; choose another path")
    path.unlink(missing_ok=True)
