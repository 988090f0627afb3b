"""Settings, source by source, so that one broken file hides nothing of the others. Imports `config`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from assistant import config as settings
from assistant.config import ENV_PREFIX, Config
from assistant.doctor.findings import Finding
from assistant.doctor.scene import edit
from assistant.errors import ConfigError


def readable(sets: Iterable[str], files: Iterable[Path], environ: Mapping[str, str]) -> tuple[Config, list[Finding]]:
    """The settings without what is broken, and a finding for each broken source.

    Raises `ConfigError` for `sets`, which the user has just typed.
    """
    settings.load(sets, files=(), environ={})
    troubles, good_files, good_environ = [], [], {}
    for file in files:
        try:
            settings.load((), files=[file], environ={})
            good_files.append(file)
        except ConfigError as error:
            troubles.append(Finding("settings-broken", "problem", error.message, edit(file)))
    for name, value in environ.items():
        if name.startswith(ENV_PREFIX):
            try:
                settings.load((), files=(), environ={name: value})
                good_environ[name] = value
            except ConfigError as error:
                troubles.append(Finding("settings-broken", "problem", error.message, f"unset {shlex.quote(name)}"))
    try:
        config = settings.load(sets, files=good_files, environ=good_environ)
    except ConfigError as error:  # each is fine, and together they are not
        text = f"files and environment do not go together: {error.message}"
        troubles.append(Finding("settings-broken", "problem", text, "assistant config"))
        config = Config()
    if not troubles:
        there = [str(file) for file in good_files if file.is_file()]
        troubles.append(Finding("settings", "ok", f"read from {', '.join(there)}" if there else "the defaults"))
    return config, troubles
