"""Key files: the server's pair, and what is given to a client. Imports `errors`, `rights`, `sockets`; zmq makes keys.

    server.key              ours: 0600, never leaves this machine
    clients/NAME.toml       the allow-list: the public key of a client and its rights
    outgoing/NAME.key       the client's pair and our public key, to be carried to its machine

All are made whole and 0600 from the start, and nothing is ever overwritten. Keys are Z85 text of 40 characters.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import zmq
from zmq.utils import z85

from assistant.api import sockets
from assistant.api.rights import Right
from assistant.errors import ConfigError, UsageError

SERVER = "server.key"
CLIENTS = "clients"
OUTGOING = "outgoing"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,24}")
_KEY = re.compile(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
MOST_BYTES = 4096
"""Of a key file."""


@dataclass(frozen=True, slots=True)
class Keys:
    public: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class NewClient:
    """What `make_client` has made; `outgoing` is None when the client has made its own pair."""

    name: str
    rights: tuple[Right, ...]
    public: str
    listed: Path
    outgoing: Path | None


def read_server(folder: Path) -> Keys:
    """Raises `ConfigError` when there is none, others could read it, or it is damaged."""
    path = folder / SERVER
    try:
        read = private_text(path, 0o077)
        found = tomllib.loads(read)
        keys = Keys(checked_key(found["public_key"]), checked_key(found["secret_key"]))
        if zmq.curve_public(keys.secret.encode()).decode() != keys.public:
            raise ValueError("its two keys do not belong together")
    except FileNotFoundError:
        raise ConfigError(f"there is no server key at {path}; make one with 'assistant config keys'") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except KeyError as error:
        raise ConfigError(f"{path} holds no {error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    return keys


def make_server(folder: Path) -> tuple[Keys, bool]:
    """The server's keys, and whether they are new. Raises `ConfigError`."""
    _prepared(folder)
    if os.path.lexists(folder / SERVER):
        return read_server(folder), False
    keys = _pair()
    _write(folder / SERVER, f'public_key = "{keys.public}"\nsecret_key = "{keys.secret}"\n')
    return keys, True


def make_client(folder: Path, name: str, rights: Iterable[Right], public: str | None = None) -> NewClient:
    """Makes the client's pair, or lists the `public` key of one that it has made itself.

    Raises `UsageError` for a name or key that is none, a client that exists, or a key that another client has;
    `ConfigError`.
    """
    checked_name(name)
    keys = _pair() if public is None else None
    try:
        key = keys.public if keys is not None else checked_key(public)
    except ValueError as error:
        raise UsageError(str(error)) from None
    server, _ = make_server(folder)
    listed, outgoing = folder / CLIENTS / f"{name}.toml", folder / OUTGOING / f"{name}.key"
    for path in (listed, outgoing):
        _prepared(path.parent)
        if os.path.lexists(path):
            raise _exists(path)
    if (other := _listed_as(folder / CLIENTS, key)) is not None:
        raise UsageError(
            f"this key is listed already, as the client {other!r}; a key that is listed twice lets nobody in. Edit"
            f" {folder / CLIENTS / other}.toml to give it other rights, or remove that file first"
        )
    given = tuple(sorted(set(rights)))
    if keys is not None:
        _write(
            outgoing,
            f'server_public_key = "{server.public}"\npublic_key = "{keys.public}"\nsecret_key = "{keys.secret}"\n',
        )
    texts = ", ".join(f'"{right}"' for right in given)
    try:
        _write(listed, f'public_key = "{key}"\nrights = [{texts}]\n')
    except (ConfigError, UsageError):
        if keys is not None:
            outgoing.unlink()  # nobody is let in by it, and it would be in the way of the next try
        raise
    return NewClient(name, given, key, listed, outgoing if keys is not None else None)


def _listed_as(clients: Path, key: str) -> str | None:
    """The client that has this key in its file; files that cannot be read count for nothing anyhow."""
    for path in sorted(clients.glob("*.toml")):
        with contextlib.suppress(OSError, ValueError, RecursionError):
            if tomllib.loads(private_text(path, 0o022)).get("public_key") == key:
                return path.stem
    return None


def checked_name(name: str) -> str:
    """Raises `UsageError`."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a client: 1 to 24 of the characters A-Z a-z 0-9 _ -")
    return name


def checked_key(text: object) -> str:
    """Raises `ValueError`."""
    if not (isinstance(text, str) and _KEY.fullmatch(text)):
        raise ValueError("it holds no key: 40 characters of Z85 are expected")
    try:
        z85.decode(text.encode())
    except Exception:  # noqa: BLE001 - struct.error, KeyError: numbers that no key has
        raise ValueError("it holds no key: 40 characters of Z85 are expected") from None
    return text


def private_text(path: Path, forbidden_mode: int) -> str:
    """What a small file of our own says; through no link. Raises `OSError`, `ValueError` that says what is wrong."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        mode = stat.S_IMODE(found.st_mode)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no file")
        if found.st_uid not in (os.geteuid(), 0):
            raise ValueError(f"it belongs to user {found.st_uid}")
        if mode & forbidden_mode:
            raise ValueError(f"others may use it (mode {mode:o}); chmod 600 it")
        if found.st_size > MOST_BYTES:
            raise ValueError(f"it has {found.st_size} bytes; a key file has at most {MOST_BYTES}")
        return file.read(MOST_BYTES).decode("utf-8")


def _pair() -> Keys:
    public, secret = zmq.curve_keypair()
    return Keys(public.decode("ascii"), secret.decode("ascii"))


def _prepared(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the folder {folder} cannot be made: {error.strerror}") from None
    sockets.checked_private(folder, "keys", "api.keys_dir")


def _write(path: Path, text: str) -> None:
    """Whole or not at all: the daemon may be reading the folder. Raises `UsageError`, `ConfigError`."""
    made = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(fd)
            os.link(made, path, follow_symlinks=False)  # refuses what is there already; a rename would replace it
        finally:
            os.unlink(made)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def _exists(path: Path) -> UsageError:
    return UsageError(f"{path} exists, and no key is ever overwritten; remove it first, or choose another name")
