"""Where files live (XDG base directories). Imports nothing of ours; creates nothing.

In a checkout, models live in its `models/` folder, so that everything stands in one place and `rm -r` undoes it.
"""

from __future__ import annotations

import os
import pwd
import zlib
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
UNIT = "assistant.service"
"""The systemd unit's file."""


def _xdg(variable: str, fallback: str) -> Path:
    """The base directory; a relative or empty value is ignored, as the XDG specification demands."""
    value = os.environ.get(variable, "")
    base = Path(value) if value.startswith("/") else _home() / fallback
    return base / "assistant"


def _home() -> Path:
    """Where $HOME is not set, as in many a service, the user's own entry says; never the root of the file system for
    somebody who has a home."""
    try:
        return Path(os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir or "/")
    except KeyError:  # a container's user without a name
        return Path("/")


def checkout(package: Path = _PACKAGE) -> Path | None:
    """The root of the source checkout that this package runs from, or None when it was installed.

    Looks at names alone: `models` may be a disk of its own, which may not answer, or not be mounted now.
    """
    root = package.parent
    try:
        names = os.listdir(root)
    except OSError:  # one that may be passed through, and not read
        return None
    return root if {"pyproject.toml", "models"} <= {*names} else None


def environment_of_ours() -> dict[str, str]:
    """In which another Python process runs this very code, wherever this one found it."""
    code = filter(None, [str(_PACKAGE.parent), os.environ.get("PYTHONPATH")])
    # UTF-8 whatever the locale: engines take paths in it, and our processes tell each other paths
    return {**os.environ, "PYTHONPATH": os.pathsep.join(code), "PYTHONUTF8": "1"}


def models_dir() -> Path:
    root = checkout()
    return root / "models" if root else data_dir() / "models"


def catalog_file() -> Path:
    root = checkout()
    return root / "models/catalog.toml" if root else _PACKAGE / "data/catalog.toml"


def data_dir() -> Path:
    """What is installed for this user and kept: models, where there is no checkout."""
    return _xdg("XDG_DATA_HOME", ".local/share")


def cache_dir() -> Path:
    """Verified downloads and MNN's mapped weights: needs a real disk, and may be deleted at any time."""
    return _xdg("XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    return _xdg("XDG_STATE_HOME", ".local/state")


def runtime_dir() -> Path:
    """Where a running daemon has its sockets; `api.sockets` makes it and checks whose it is.

    Without $XDG_RUNTIME_DIR (a service of root, a bare login) never in /tmp, where anybody may be first.
    """
    value = os.environ.get("XDG_RUNTIME_DIR", "")
    if value.startswith("/"):
        return Path(value) / "assistant"
    return Path("/run/assistant") if os.geteuid() == 0 else state_dir() / "run"


def daemon_owner(folder: Path | None = None) -> str:
    """The name under which the daemon of a runtime folder (default: ours) keeps its ledger: "daemon", or one of its own
    where somebody runs another daemon in another place."""
    usual = (Path(f"/run/user/{os.getuid()}/assistant"), Path("/run/assistant"), state_dir() / "run")
    real = (folder or runtime_dir()).resolve()
    return "daemon" if real in {one.resolve() for one in usual} else f"daemon-{zlib.crc32(os.fsencode(real)):08x}"


def control_socket() -> Path:
    """There while a daemon runs, and left behind by one that was killed."""
    return runtime_dir() / "control.sock"


def config_files() -> list[Path]:
    """Lowest precedence first."""
    return [Path("/etc/assistant/config.toml"), _xdg("XDG_CONFIG_HOME", ".config") / "config.toml"]


def keys_dir(configured: str = "") -> Path:
    """The keys of clients from the network, and ours; `configured`: `api.keys_dir`."""
    return Path(configured).expanduser() if configured else _xdg("XDG_CONFIG_HOME", ".config") / "keys"


def sentences_dirs() -> list[Path]:
    """Where the user keeps sentences of his own, in a folder for each language; lowest precedence first."""
    return [path.with_name("intents") for path in config_files()]


def data_file(name: str) -> Path:
    """A file that ships inside the package."""
    return _PACKAGE / "data" / name
