"""What the systemd unit is made of: this installation, this machine, the settings. Imports `config`, `paths`,
`service_unit`; writes nothing.

The settings are read as the service will read them: without the variables of the shell that asks.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from assistant import config as settings
from assistant import paths
from assistant.config import Config
from assistant.errors import UsageError
from assistant.memory_orchestrator.probe import Probe
from assistant.service_unit import Facts, reach_of

_STATE = Path("/var/lib")
"""Of the system's service: state, settings of its own, models."""
_CUES = ("awake", "done", "error", "thinking", "timer")


def gather(system: bool, sets: Sequence[str], account: str, root: Path = Path("/")) -> Facts:
    """`root`: of the /proc that is read. Raises `ConfigError` for wrong settings, `UsageError` for a path that no unit
    can hold."""
    files = [paths.config_files()[0], _STATE / "assistant/config.toml"] if system else None
    config = settings.load(sets, files=files, environ={})
    facts = Facts(
        system=system,
        python=Path(sys.executable),
        code=_code(),
        sets=tuple(sets),
        account=account,
        total=Probe(root).machine().total,
        budget_mib=config.memory.budget_mib,
        margin_mib=config.memory.margin_mib,
        sound=config.audio.enabled,
        reach=reach_of(config),
        reads=tuple(_reads(config)),
        writes=tuple(_writes(config)),
        homes={} if system else homes(),
        environment=(config.stages.llm.api_key_env,) if config.stages.llm.api_key_env else (),
    )
    for path in (facts.python, *facts.reads, *facts.writes, *facts.homes.values()):
        if not str(path).isprintable():
            raise UsageError(f"{str(path)!r} has characters that no systemd unit can hold; move it")
    return facts


def homes() -> dict[str, Path]:
    """Of the user, as `paths` sees them in this shell."""
    return {
        "XDG_CONFIG_HOME": paths.config_files()[-1].parents[1],
        "XDG_DATA_HOME": paths.data_dir().parent,
        "XDG_STATE_HOME": paths.state_dir().parent,
    }


def unit_path(system: bool, root: Path = Path("/")) -> Path:
    """`root`: of the system that gets it, when that is not the one that runs."""
    folder = Path("/etc/systemd/system") if system else paths.config_files()[-1].parents[1] / "systemd/user"
    return root / folder.relative_to("/") / paths.UNIT


def account_exists(account: str) -> bool:
    try:
        pwd.getpwnam(account)
    except KeyError:
        return False
    return True


def _code() -> Path | None:
    """None when the interpreter finds the package by itself, as after `pip install`."""
    package = Path(__file__).parent.parent
    return None if package.is_relative_to(sys.prefix) else package


def _reads(config: Config) -> Iterator[Path]:
    yield from map(Path, dict.fromkeys((sys.prefix, sys.base_prefix)))
    yield Path(__file__).resolve().parents[1]
    if (checkout := paths.checkout()) is not None:
        yield checkout
        # a model may be a link to where there is room
        yield from (one.resolve() for one in sorted((checkout / "models").iterdir()) if one.is_symlink())
    named = [getattr(config.cues, name) for name in _CUES]
    named += [config.wake.models_dir, config.api.keys_dir, config.stages.llm.api_key_file, config.stages.llm.ca_file]
    yield from (Path(os.path.abspath(Path(one).expanduser())) for one in named if "/" in one)


def _writes(config: Config) -> Iterator[Path]:
    kind, _, place = config.wyoming.uri.partition("://")
    if config.wyoming.enabled and kind == "unix":
        yield Path(place).parent
