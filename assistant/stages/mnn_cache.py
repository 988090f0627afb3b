"""MNN's cache of mapped weights, which MNN itself trusts blindly (a wrong one crashes or talks nonsense).

One folder per (model, MNN version, CPU, memory mode, dynamic option); `model_store.derived` says when it may be
believed. A process of its own makes it (`llm_mnn_weights`), with a first forward pass that must give numbers. MNN
writes its constants into the mapped file at each load, always the same ones, and nothing after that. Imports no MNN.
"""

from __future__ import annotations

import sys
from pathlib import Path

from assistant.messages import LlmVariant
from assistant.model_store.choices import EMERGENCY_GRAPH
from assistant.model_store.derived import Derived, Found, Free
from assistant.model_store.versions import mnn_version
from assistant.stages.base import EngineConfig

CACHE_LAYOUT = {"memory": "low", "dynamic_option": 2}
"""The settings that the cache's layout depends on. `low` computes with 4-bit weights and int8 activations;
dynamic_option 2 scales activations per weight block, ten times closer to the exact model."""
BUILD_TIMEOUT_S = 900
"""The supervisor's own deadline for a start comes first; this one is for an engine without a supervisor."""
_ROOM = 1.6
"""Free disk needed per byte of weights: the runtime's layout widens scales to fp32 (measured: 1.1 to 1.4)."""


GRAPHS: dict[LlmVariant, str] = {"full": "llm.mnn", "emergency": EMERGENCY_GRAPH}

Stamps = tuple[tuple[int, int, int], ...]


def stamps(model_dir: Path) -> Stamps:
    """Inode, size and time of change of the model's files that MNN reads at work (rows of the word table, a graph)."""
    found = []
    for name in ("llm.mnn.weight", GRAPHS["emergency"]):
        try:
            stat = (model_dir / name).stat()
            found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
        except OSError:
            found.append((0, 0, 0))
    return tuple(found)


def cache_of(config: EngineConfig, free: Free | None = None) -> Derived:
    return Derived(config.cache_dir, "mnn", config.digest, {**CACHE_LAYOUT, "mnn": mnn_version()}, free=free)


def build(model_dir: Path, cache: Derived, threads: int) -> Found:
    """Takes seconds per GB. Raises `ModelDamaged`, and what `derived_command.make` raises."""
    from assistant.model_store import derived_command  # late: a worker that finds its cache starts sooner without it

    needed = int((model_dir / "llm.mnn.weight").stat().st_size * _ROOM)
    module = "assistant.stages.llm_mnn_weights"
    command = [sys.executable, "-m", module, str(model_dir.resolve()), str(cache.path.resolve()), str(threads)]
    return derived_command.make(cache, needed, command, BUILD_TIMEOUT_S)
