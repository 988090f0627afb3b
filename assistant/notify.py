"""Tells systemd how the service is: ready, stopping, and that its event loop still turns. Imports nothing of ours.

The protocol is one datagram of `KEY=value` lines to the socket that $NOTIFY_SOCKET names (sd_notify(3)). Where nothing
started us that wants to know, nothing is sent. Never raises for what happens at the other end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Self

log = logging.getLogger(__name__)

_LEAST_S, _MOST_DIGITS = 0.1, 18
_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """Takes what it needs out of the environment, so that no child believes itself to be the service."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        where, microseconds, pid = (environ.pop(name, "") for name in _VARIABLES)
        # "@" stands for the zero byte that begins the name of an abstract socket; anything else is not of this machine
        self._address = "\0" + where[1:] if where.startswith("@") else where if where.startswith("/") else ""
        self._complained = False
        ours = pid in ("", str(os.getpid()))
        valid = self._address and ours and microseconds.isascii() and microseconds.isdigit()
        valid = valid and len(microseconds) < _MOST_DIGITS
        self.watchdog_s = max(_LEAST_S, int(microseconds) / 1e6) if valid else 0.0
        """Seconds within which systemd wants to hear of us; 0 = it does not."""

    def ready(self, status: str = "") -> None:
        """What was started before may be used. `status`: one line for `systemctl status`."""
        self._send("READY=1", *_status(status))

    def status(self, text: str) -> None:
        self._send(*_status(text))

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def ping(self) -> None:
        """Of the watchdog."""
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if not self._address or not lines:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sock:
                sock.sendto("\n".join(lines).encode("utf-8", "replace"), self._address)
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
            if not self._complained:
                log.warning("systemd cannot be told how we are (%s): %s", lines[0], error)
            self._complained = True
        else:
            self._complained = False


def _status(text: str) -> list[str]:
    line = " ".join(text.split())
    return [f"STATUS={line}"] if line else []


class Watchdog:
    """`async with Watchdog(notifier):` pings from the event loop, twice in the time that systemd allows.

    A loop that stands still does not ping, which is the point: systemd then kills and restarts the service.
    """

    def __init__(
        self,
        notifier: Notifier,
        *,
        healthy: Callable[[], bool] = lambda: True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`healthy`: asked before each ping; False holds it back. `sleep` is a seam for tests."""
        self._notifier = notifier
        self._healthy = healthy
        self._sleep = sleep
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._notifier.watchdog_s:
            self._task = asyncio.create_task(self._ping())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _ping(self) -> None:
        while True:
            if self._healthy():
                self._notifier.ping()
            await self._sleep(self._notifier.watchdog_s / 2)
