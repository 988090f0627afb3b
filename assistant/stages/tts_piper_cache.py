"""The prepared files of a voice: which folder, and how they are made. Imports `model_store`.

`model_store.cut_voice` makes them, in a process of its own; `model_store.derived` says when they may be believed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from assistant.model_store import derived_command
from assistant.model_store.cut_voice import FORMAT
from assistant.model_store.derived import Derived, Found, Free
from assistant.model_store.manifest import sha256_of
from assistant.stages.base import EngineConfig

BUILD_TIMEOUT_S = 120
GAIN = "gain.json"
"""Beside the files; not one of them, for it is measured by a user of them."""


def cache_of(config: EngineConfig, onnx: Path, onnxruntime_version: str, free: Free | None = None) -> Derived:
    """The folder for this voice, this onnxruntime and this kind of CPU."""
    digest = config.digest or sha256_of(onnx)
    settings = {"format": FORMAT, "onnxruntime": onnxruntime_version}
    return Derived(config.cache_dir, "cut", digest, settings, free=free)


def build(onnx: Path, cache: Derived, timeout_s: float = BUILD_TIMEOUT_S) -> Found:
    """Makes the files, about 1 s. Raises what `cut_voice` raises, and what `derived_command.make` does."""
    command = [sys.executable, "-m", "assistant.model_store.cut_voice", str(onnx.resolve()), str(cache.path.resolve())]
    return derived_command.make(cache, onnx.stat().st_size * 11 // 10, command, timeout_s)
