"""The allow-list: a folder with one file for each client that may come from the network. Imports `keys`, `rights`.

    phone.toml:   public_key = "…"
                  rights = ["observe", "speak"]

It is looked at whenever somebody's rights are asked for, so that a file that is deleted counts from that moment on.
What cannot be read or understood lets nobody in.
"""

from __future__ import annotations

import logging
import os
import time
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from assistant.api import sockets
from assistant.api.keys import checked_key, checked_name, private_text
from assistant.api.rights import Right
from assistant.errors import AssistantError, ConfigError

log = logging.getLogger(__name__)

_ENDING = ".toml"
_MOST = 256
"""Clients."""
_SETTLED_NS = 200_000_000
"""A file that was written later than this before it was read may be written again within the same tick of its clock."""

_Seen = tuple[tuple[str, int, int, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Allowed:
    name: str
    key: str
    rights: frozenset[Right]


class AllowList:
    def __init__(self, folder: Path, warn: Callable[[str], object] = log.warning) -> None:
        """`warn` is told once of each file that counts for nothing."""
        self._folder, self._warn = folder, warn
        self._seen: _Seen | None = None
        self._settled = False
        self._by_key: dict[str, Allowed] = {}
        self._warned: set[str] = set()

    def of(self, key: str) -> Allowed | None:
        """The client that has this public key, as of now."""
        self.look()
        return self._by_key.get(key)

    def look(self) -> dict[str, Allowed]:
        """All clients by their keys, as of now."""
        try:
            # also when nothing has changed inside: others may have been let in
            sockets.checked_private(self._folder, "the list of clients", "api.keys_dir")
            seen = self._glance()
        except (OSError, ConfigError) as error:
            self._tell({str(self._folder): str(error)})
            self._seen, self._by_key = None, {}
            return {}
        if seen == self._seen and self._settled:
            return self._by_key
        newest = max((max(row[2], row[3]) for row in seen), default=0)
        self._seen, self._settled = seen, newest + _SETTLED_NS < time.time_ns()
        self._by_key = self._read([row[0] for row in seen])
        return self._by_key

    def _glance(self) -> _Seen:
        rows = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(_ENDING) and not entry.name.startswith("."):
                    found = entry.stat(follow_symlinks=False)
                    rows.append(
                        (entry.name, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_mode)
                    )
        return tuple(sorted(rows))

    def _read(self, names: list[str]) -> dict[str, Allowed]:
        found: list[Allowed] = []
        wrong: dict[str, str] = {}
        for name in names[:_MOST]:
            try:
                found.append(_client(self._folder / name))
            except (OSError, ValueError, RecursionError, AssistantError) as error:
                wrong[name] = str(error)
        if len(names) > _MOST:
            wrong[str(self._folder)] = f"it holds more than {_MOST} clients; the last ones are left out"
        times = Counter(client.key for client in found)
        for client in found:
            if times[client.key] > 1:  # whose rights would it have?
                wrong[f"{client.name}{_ENDING}"] = "another client has the same key"
        self._tell(wrong)
        return {client.key: client for client in found if times[client.key] == 1}

    def _tell(self, wrong: dict[str, str]) -> None:
        for name, why in wrong.items():
            if name not in self._warned:
                self._warn(f"the list of clients: {name} counts for nothing: {why}")
        self._warned = set(wrong)


def _client(path: Path) -> Allowed:
    """Raises `OSError`, `ValueError`, `UsageError`."""
    name = checked_name(path.name.removesuffix(_ENDING))
    found = tomllib.loads(private_text(path, 0o022))
    if unknown := set(found) - {"public_key", "rights"}:
        raise ValueError(f"unknown key {min(unknown)!r}")
    rights = found.get("rights", [])
    if not isinstance(rights, list):
        raise ValueError("`rights` is no list")
    known = [right.value for right in Right]
    for right in rights:
        if right not in known:
            raise ValueError(f"{right!r} is no right; there are {', '.join(Right)}")
    return Allowed(name, checked_key(found.get("public_key")), frozenset(map(Right, rights)))
