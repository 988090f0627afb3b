"""Where a daemon is: this user's sockets, or another machine's by TCP with keys. Imports `sockets` and zmq.

Knows how a socket is connected and whether somebody is there; says and hears nothing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

import zmq

from assistant.api import sockets
from assistant.errors import ConfigError, NotRunning

SEND_S = 5.0
NOT_ANSWERING = "not-answering"
"""The code of a `NotRunning` when somebody has the socket open and says nothing, or may have."""


class Address(Protocol):
    def connect(self, socket: zmq.Socket[Any], name: str) -> None:
        """`name` of `sockets`: command.sock, control.sock, events.sock."""

    def check(self) -> None:
        """Before anything is connected. Raises `NotRunning`, `ConfigError`."""

    def check_there(self) -> None:
        """After a silence. Raises `NotRunning`."""

    def silent(self, what: str) -> NotRunning:
        """Nobody says or takes anything: the error that tells why that may be. `what`: what did not happen."""


class Local:
    """The sockets in a folder (default: this user's)."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or sockets.folder()

    def __str__(self) -> str:
        return str(self._folder)

    def connect(self, socket: zmq.Socket[Any], name: str) -> None:
        socket.connect(sockets.ipc(self._folder / name))

    def check(self) -> None:
        """Raises `NotRunning` when nobody listens, `ConfigError` when it may be somebody else who does."""
        path = self._folder / sockets.CONTROL
        if not sockets.somebody_listens(path):
            raise NotRunning(f"no daemon listens at {path}; start one with 'assistant run'")
        sockets.trusted(self._folder)

    def check_there(self) -> None:
        if not sockets.somebody_listens(self._folder / sockets.CONTROL):
            raise NotRunning("the daemon has gone; start one with 'assistant run'")

    def silent(self, what: str) -> NotRunning:
        return NotRunning(
            f"the daemon at {self} has its socket open, but {what}: it was stopped, or the machine swaps; try again"
            " later, or end that process",
            code=NOT_ANSWERING,
        )


@dataclass(frozen=True, slots=True)
class Remote:
    """A daemon on another machine. Whoever has no right to speak to it hears nothing, as if nobody were there."""

    urls: Mapping[str, str]
    """`tcp://host:port` of each socket, by its name in `sockets`."""
    server_key: str
    """The daemon's public key, Z85 (as all keys here)."""
    public_key: str
    secret_key: str = field(repr=False)

    @classmethod
    def of(cls, key_file: Path, host: str, port: int) -> Self:
        """The daemon at tcp://HOST:PORT (its `api.tcp`), with the file that `assistant config keys --client` has made.

        Raises `ConfigError`."""
        try:
            found = tomllib.loads(key_file.read_text("utf-8"))
            keys = [str(found[name]) for name in ("server_public_key", "public_key", "secret_key")]
        except (OSError, ValueError) as error:
            raise ConfigError(f"{key_file}: {error}") from None
        except KeyError as error:
            raise ConfigError(f"{key_file} holds no {error}") from None
        names = (sockets.COMMAND, sockets.CONTROL, sockets.EVENTS)
        return cls({name: f"tcp://{host}:{port + at}" for at, name in enumerate(names)}, *keys)

    def __str__(self) -> str:
        return self.urls[sockets.CONTROL]

    def connect(self, socket: zmq.Socket[Any], name: str) -> None:
        socket.setsockopt_string(zmq.CURVE_SERVERKEY, self.server_key)
        socket.setsockopt_string(zmq.CURVE_PUBLICKEY, self.public_key)
        socket.setsockopt_string(zmq.CURVE_SECRETKEY, self.secret_key)
        socket.connect(self.urls[name])

    def check(self) -> None:
        """Only an answer tells whether somebody is there."""

    def check_there(self) -> None:
        pass

    def silent(self, what: str) -> NotRunning:
        places = ", ".join(url.rpartition(":")[2] for url in self.urls.values())
        return NotRunning(
            f"nobody answers at {self} ({what}): no daemon listens there (its `api.tcp` names the first of the ports"
            f" {places}), a firewall lets none of them through, or the daemon does not let us in: it says nothing to a"
            f" client whose public key ({self.public_key}) is not in its list any more or never was, or who expects"
            f" another server than it is (server_public_key {self.server_key}); its log tells who was refused",
            code=NOT_ANSWERING,
        )
