"""Folders: whether they are there, ours, closed to others, writable, and on a disk with room. Imports `api.sockets`."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from assistant.api.sockets import checked_length
from assistant.doctor.findings import Finding, Level
from assistant.doctor.models import store_of, wanted
from assistant.doctor.scene import MIB, Scene, mib
from assistant.errors import AssistantError, ConfigError

_XDG = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")
_FULL, _LOW = 64 * MIB, 512 * MIB
"""Bytes free. Below the first no cache is made; the second is what one more model with its cache takes."""


def user_name() -> str:
    """As `chown` understands it; a number where the system knows no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


# --- folders --------------------------------------------------------------------------------------------------------
def look_at_folders(scene: Scene) -> Iterator[Finding]:
    troubles = [*_homes(scene)]
    places = scene.places
    troubles += _folder(places.runtime, "runtime", private="problem", needed=True)
    troubles += _folder(places.state, "state", private="advice", needed=True)
    troubles += _folder(places.config, "settings", private="advice", needed=False)
    troubles += _folder(places.cache, "cache", private=None, needed=True)
    yield from troubles
    if not troubles:
        yield Finding("folders", "ok", f"{places.runtime}, {places.state}, {places.config}, {places.cache}")


def _homes(scene: Scene) -> Iterator[Finding]:
    unset = [name for name in _XDG if not scene.environ.get(name, "").startswith("/")]
    if not scene.environ.get("HOME") and unset:
        yield Finding(
            "home-unset", "advice", f"neither HOME nor {', '.join(unset)} is set; {scene.places.state} is used",
            f'export HOME="$(getent passwd {user_name()} | cut -d: -f6)"',
        )  # fmt: skip
    if not scene.environ.get("XDG_RUNTIME_DIR", "").startswith("/") and os.geteuid() != 0:
        yield Finding(
            "runtime-dir-unset", "advice", f"XDG_RUNTIME_DIR is not set; the sockets are in {scene.places.runtime}",
            'export XDG_RUNTIME_DIR="/run/user/$(id -u)"',
        )  # fmt: skip
    try:
        checked_length(scene.places.runtime)
    except ConfigError as error:
        yield Finding(
            "runtime-dir-long", "problem", error.message, 'export XDG_RUNTIME_DIR="/run/user/$(id -u)"'
        )  # fmt: skip


def _folder(path: Path, noun: str, *, private: Level | None, needed: bool) -> Iterator[Finding]:
    """`private`: how bad it is that others can enter it; None = they may."""
    quoted = shlex.quote(str(path))
    try:
        found = path.lstat()
    except FileNotFoundError:
        if needed:
            yield _missing(path, noun)
        return
    except OSError as error:  # a file on the way, a loop of links, no permission
        text = f"the {noun} folder {path} cannot be reached: {error.strerror}"
        yield Finding("folder-not-writable", "problem", text, f"ls -ld {quoted}")
        return
    if stat.S_ISLNK(found.st_mode) and noun != "runtime" and path.is_dir():
        found = path.stat()  # whoever moved it to another disk
    if not stat.S_ISDIR(found.st_mode):
        text = f"the {noun} folder {path} is no folder"
        yield Finding("folder-not-writable", "problem", text, f"mv {quoted} {quoted}.old")
        return
    if found.st_uid != os.geteuid():
        text = f"the {noun} folder {path} belongs to user {found.st_uid}, not to {user_name()}"
        yield Finding("folder-owner", "problem", text, f"sudo chown -R {user_name()} {quoted}")
        return
    mode = stat.S_IMODE(found.st_mode)
    if private and mode & 0o077:
        yield Finding(
            "folder-mode", "problem" if mode & 0o022 else private,
            f"the {noun} folder {path} is open to others (mode {mode:04o})", f"chmod 700 {quoted}",
            lambda: _closed(path),
        )  # fmt: skip
    if needed and not os.access(path, os.W_OK | os.X_OK):
        text = f"the {noun} folder {path} cannot be written"
        yield Finding("folder-not-writable", "problem", text, _writable(path, found))


def _writable(path: Path, found: os.stat_result) -> str:
    if found.st_mode & 0o300 != 0o300:
        return f"chmod u+rwx {shlex.quote(str(path))}"
    return f"sudo mount -o remount,rw {shlex.quote(str(_mount(path)))}"


def _missing(path: Path, noun: str) -> Finding:
    above = _there(path)
    quoted = shlex.quote(str(path))
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        text = f"the {noun} folder {path} is not there and cannot be made in {above}"
        fix = f"sudo install -d -m 700 -o {user_name()} {quoted}"
        return Finding("folder-not-writable", "problem", text, fix)

    def mend() -> str:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return f"made {path}"

    return Finding(
        "folder-missing", "ok", f"the {noun} folder {path} is not there yet", f"mkdir -pm 700 {quoted}", mend
    )


def _closed(path: Path) -> str:
    path.chmod(0o700)
    return f"{path} is closed to others now (mode 0700)"


def _there(path: Path) -> Path:
    """The nearest folder above (or at) it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _mount(path: Path) -> Path:
    while not path.is_mount() and path != path.parent:
        path = path.parent
    return path


# --- disk -----------------------------------------------------------------------------------------------------------
def look_at_disk(scene: Scene) -> Iterator[Finding]:
    places = scene.places
    missing = _to_fetch(scene)
    told, troubles = [], []
    for noun, path, more in (
        ("models", places.models, missing),
        ("cache", places.cache, 0),
        ("state", places.state, 0),
    ):
        there = _there(path)
        free = shutil.disk_usage(there).free
        told.append(f"{noun}: {mib(free)} free in {there}")
        if noun != "models" and free < _FULL:
            troubles.append(Finding("disk-full", "problem", told[-1], _room(there)))
        elif more and free < more + _FULL:
            text = f"{told[-1]}, and the models that are missing take {mib(more)}"
            troubles.append(Finding("disk-full", "problem", text, _room(there)))
        elif free < _LOW and noun != "state":
            troubles.append(Finding("disk-low", "advice", told[-1], _room(there)))
    yield from troubles
    if not troubles:
        yield Finding("disk", "ok", "; ".join(told))


def _room(folder: Path) -> str:
    return f"du -xh --max-depth=2 {shlex.quote(str(_mount(folder)))} | sort -h | tail; assistant doctor --fix"


def _to_fetch(scene: Scene) -> int:
    """Bytes of the models that are still to be fetched."""
    store = store_of(scene)
    try:
        missing = {one.model for one in wanted(scene.config)} - {*store.installed()}
        return sum(entry.download_bytes for name in missing if (entry := store.catalog.find(name)) is not None)
    except AssistantError:  # the catalog cannot be read, which `look_at_models` tells
        return 0
