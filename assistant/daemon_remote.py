"""Stages whose work servers do: what they are made of, and when one that failed is tried again.

Part of the composition root: see `daemon_stages`. Connects to nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from assistant import paths
from assistant.config import Config
from assistant.disk import Alive
from assistant.errors import ConfigError, StageError
from assistant.messages import Stage
from assistant.model_store.store import ModelStore
from assistant.stages.registry import REMOTE
from assistant.stages.remote import HTTP_PORTS, WYOMING_PORTS, address_of
from assistant.stages.spec import StageSpec

PAUSE_S = 30.0
"""From a failure to the next try."""


class Pauses:
    """Which servers are left alone for a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[Stage, float] = {}
        self.why: dict[Stage, StageError] = {}
        """The last failure of each that ever failed."""

    def begin(self, stage: Stage, error: StageError) -> None:
        self._until[stage] = self._clock() + PAUSE_S
        # a copy: with the error itself its traceback would stay, and everything that the failed query held
        self.why[stage] = StageError(error.message, code=error.code, stage=error.stage)

    def __contains__(self, stage: Stage) -> bool:
        return self._clock() < self._until.get(stage, 0)


def is_remote(stage: Stage, config: Config) -> bool:
    return config.stage(stage).engine in REMOTE


def local_config(stage: Stage, config: Config, store: ModelStore, alive: Alive = lambda: None) -> Config:
    """The same with the engine that the stage's model is made for, if a server was to do its work. Raises
    `ModelError`, `UsageError`."""
    settings: Any = config.stage(stage)
    if settings.engine not in REMOTE:
        return config
    settings = msgspec.structs.replace(settings, engine=store.open(settings.model, alive).engine)
    return msgspec.structs.replace(config, stages=msgspec.structs.replace(config.stages, **{stage.value: settings}))


def remote_spec(stage: Stage, settings: Any, common: dict[str, Any]) -> StageSpec:
    """`settings`: of the stage; `common`: what all specs have. Needs no model. Raises `ConfigError` for an address
    that is none."""
    options: dict[str, Any] = {"deadline_s": settings.deadline_s}
    if stage is Stage.LLM:
        where = address_of(settings.url, "stages.llm.url", HTTP_PORTS)
        options |= {"url": settings.url, "name": settings.remote_model}
        options |= {key: getattr(settings, key) for key in ("api_key_file", "api_key_env", "ca_file")}
    else:
        where = address_of(settings.uri, f"stages.{stage}.uri", WYOMING_PORTS)
        options |= {"uri": settings.uri}
        if stage is Stage.TTS:
            options |= {"voice": settings.remote_model}
        else:
            options |= {"name": settings.remote_model, "language": settings.language}
    return StageSpec(
        **common, model=settings.remote_model or where.name, model_dir=paths.data_file(""), digest="", weight_bytes=0,
        threads=1, options=options,
    )  # fmt: skip


def check_api_key(config: Config) -> None:
    """Before anybody asks: the key of the LLM's server is there, and nobody else can read it. Raises `ConfigError`,
    never with the key in it."""
    llm = config.stages.llm
    if llm.engine not in REMOTE:
        return
    if llm.api_key_file:
        from assistant.api.keys import private_text

        path = Path(llm.api_key_file).expanduser()
        try:
            key = private_text(path.resolve(), 0o077)  # a link may lead there; what it leads to is what counts
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise ConfigError(f"stages.llm.api_key_file: {path}: {reason}") from None
        if not key.strip():
            raise ConfigError(f"stages.llm.api_key_file: {path} is empty")
    elif llm.api_key_env and not os.environ.get(llm.api_key_env, "").strip():
        raise ConfigError(f"stages.llm.api_key_env: there is no {llm.api_key_env} in the environment, or it is empty")
