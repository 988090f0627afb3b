"""One visit: all checks, and `--fix`. Imports every check; what is heavy is imported within its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from assistant.config import Config
from assistant.doctor.examine import LIMIT_S, Check, Done, examine, mend
from assistant.doctor.findings import Finding
from assistant.doctor.scene import Places, Scene

Refused = Callable[[Config], Iterable[str]]
"""Why a daemon would not start with settings, each of which is one that there may be."""

_CHECKS: tuple[tuple[str, str, float], ...] = (
    ("memory", "memory.look_at_memory", LIMIT_S),
    ("swap", "memory.look_at_swap", LIMIT_S),
    ("huge pages", "memory.look_at_huge_pages", LIMIT_S),
    ("the governor", "processor.look_at_governor", LIMIT_S),
    ("the temperature", "processor.look_at_temperature", LIMIT_S),
    ("the supply", "processor.look_at_supply", LIMIT_S),
    ("PSI", "processor.look_at_pressure", LIMIT_S),
    ("open files", "processor.look_at_open_files", LIMIT_S),
    ("shared memory", "processor.look_at_shared_memory", LIMIT_S),
    ("sound", "sound.look_at_sound", LIMIT_S + 4),
    # models whose times have changed are read in full
    ("models", "models.look_at_models", 120.0),
    ("caches", "models.look_at_caches", 2 * LIMIT_S),
    ("the disk", "places.look_at_disk", LIMIT_S),
    ("folders", "places.look_at_folders", LIMIT_S),
    ("sentences of your own", "sentences.look_at_sentences", LIMIT_S),
    ("sockets", "daemons.look_at_sockets", LIMIT_S),
    ("versions", "versions.look_at_versions", LIMIT_S),
    ("the service", "unit.look_at_unit", LIMIT_S),
)


@dataclass(frozen=True, slots=True)
class Report:
    findings: tuple[Finding, ...]
    done: tuple[Done, ...] = ()
    """By `--fix`, before the findings were made."""

    @property
    def problems(self) -> int:
        return sum(finding.level == "problem" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {
            "ok": not self.problems,
            "findings": [finding.to_dict() for finding in self.findings],
            "done": [done._asdict() for done in self.done],
        }


def visit(
    sets: Iterable[str] = (),
    *,
    fix: bool = False,
    root: Path = Path("/"),
    environ: Mapping[str, str] | None = None,
    refused: Refused = lambda config: (),
) -> Report:
    """Looks at everything; with `fix`, mends what it can and looks again. Raises `ConfigError` for `sets` alone."""
    environ = os.environ if environ is None else environ
    found = _look([*sets], root, environ, refused)
    if not fix or not any(finding.mend for finding in found):
        return Report(tuple(found))
    done = mend(found)
    return Report(tuple(_look([*sets], root, environ, refused)), tuple(done))


def _look(sets: list[str], root: Path, environ: Mapping[str, str], refused: Refused) -> list[Finding]:
    from assistant import config as settings
    from assistant import paths
    from assistant.doctor.settings import readable

    settings.load(sets, files=(), environ={})  # what was just typed: raises
    configs: list[Config] = []

    def look_at_settings(scene: Scene) -> Iterable[Finding]:
        del scene
        config, found = readable(sets, paths.config_files(), environ)
        configs.append(config)
        return found

    places = Places()
    first = examine([Check("settings", look_at_settings)], Scene(root=root, places=places, environ=environ))
    config = configs[0] if configs else Config()
    scene = Scene(root=root, places=places, config=config, environ=environ)
    checks = [Check(name, _late(path), limit_s) for name, path, limit_s in _CHECKS]
    checks.append(Check("what a start needs", lambda scene: _refusals(scene, refused)))
    return first + examine(checks, scene)


def _late(path: str) -> Callable[[Scene], Iterable[Finding]]:
    """A module that cannot be imported is a finding, too."""
    module, _, name = path.partition(".")

    def look(scene: Scene) -> Iterable[Finding]:
        check: Callable[[Scene], Iterable[Finding]] = getattr(import_module(f"assistant.doctor.{module}"), name)
        return check(scene)

    return look


def _refusals(scene: Scene, refused: Refused) -> Iterator[Finding]:
    for why in refused(scene.config):
        yield Finding("settings-refused", "problem", why, "assistant config, and the key named in config.toml")
