"""What a stage is made of: from the configuration and the model store. Imports no engine, and asks no disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assistant.messages import KvHome, Stage
from assistant.stages.base import EngineConfig
from assistant.stages.placement import Placement

_SLOWEST_DISK = 5e6
"""Bytes per second of reading and writing in turns that a start must be able to live with."""


@dataclass(frozen=True, slots=True)
class StageSpec:
    stage: Stage
    engine: str
    model: str
    model_dir: Path
    digest: str
    weight_bytes: int
    cache_dir: Path
    threads: int
    start_timeout_s: float
    """Grows with the weights: see `start_deadline_s`."""
    step_timeout_s: float
    kv_bytes: int = 0
    """Of all key-value slots, full."""
    kv_token_bytes: int = 0
    """Of one token."""
    kv_home: KvHome = "memory"
    options: Mapping[str, Any] | None = None
    language: str = ""
    """Of a voice, as configured; empty = as its file or its name says."""
    emergency: bool = False
    """Whether an LLM has a graph that leaves layers out."""
    placement: Placement = field(default_factory=Placement)

    def engine_config(self, threads: int, *, distrust_cache: bool = False) -> EngineConfig:
        return EngineConfig(
            model=self.model,
            model_dir=self.model_dir,
            digest=self.digest,
            cache_dir=self.cache_dir,
            threads=threads,
            options=dict(self.options or {}),
            distrust_cache=distrust_cache,
        )

    @property
    def start_deadline_s(self) -> float:
        """A first start reads all weights and writes them anew, on a disk that may be an SD card."""
        return self.start_timeout_s + self.weight_bytes / _SLOWEST_DISK

    def calibration_key(self, threads: int) -> str:
        """Everything that changes what a stage holds by much: the names in a house do not."""
        options = ",".join(f"{key}={value}" for key, value in sorted((self.options or {}).items()) if key != "names")
        return f"{self.calibration_model}t{threads}/{options}"

    @property
    def calibration_model(self) -> str:
        """How its keys begin, with whatever settings."""
        return f"{self.engine}/{self.model}/{self.digest[:16]}/"
