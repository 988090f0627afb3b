"""Opens a language model in MNN, with or without mapped weights; as a command, makes the cache of mapped weights.

    python -m assistant.stages.llm_mnn_weights MODEL_DIR FOLDER THREADS

The command is a process of its own (see `model_store.derived_command`). What it alone needs is imported late: a
worker imports this module at each start.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import MNN.llm as mnn_llm  # not `from MNN import llm`: that is the C module of the same name
import msgspec
import numpy as np
from numpy.typing import NDArray

from assistant.errors import ModelDamaged
from assistant.stages.mnn_cache import CACHE_LAYOUT

_ABSURD = 1e30
"""Logits of language models stay below a hundred or so."""


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """The report."""

    folder: str


def open_model(model_dir: Path, cache_folder: Path | None, threads: int, prefill_chunk: int) -> Any:
    """MNN's model. `cache_folder` must be writable; without one all weights go into memory. Raises `ModelDamaged`."""
    llm = mnn_llm.create(str(model_dir / "config.json"))
    mapped = {"use_mmap": True, "tmp_path": str(cache_folder)} if cache_folder else {"use_mmap": False}
    llm.set_config(
        {
            **CACHE_LAYOUT,
            **mapped,
            "thread_num": threads,
            "chunk": prefill_chunk,
            # keeps the cache of keys and values when a prompt comes in several pieces
            "reuse_kv": True,
            "sampler_type": "greedy",
            "all_logits": False,
        }
    )
    # the inner object: the wrapper's load() drops the only sign of failure
    if not llm._c_obj.load():
        raise ModelDamaged(f"MNN cannot load the model in {model_dir}; run 'assistant models verify'")
    return llm


def forward(llm: Any, ids: list[int], *, first: bool) -> NDArray[np.float32]:
    """Logits of the last position, float32 [vocabulary]. `first`: a piece of a prompt, not one token more."""
    if first:
        # without it MNN takes several tokens for decoding and clones a module for each new length
        llm.generate_init()
    return np.array(llm.forward(ids).read(), dtype=np.float32).reshape(-1)


def makes_sense(logits: NDArray[np.float32]) -> bool:
    """Whether they can be an opinion on words: MNN gives zeros alone when it could not map its weights, and turns what
    is no number into the largest float."""
    least, most = float(logits.min()), float(logits.max())  # both are NaN when one logit is
    return -_ABSURD < least < most < _ABSURD


def make_cache(model_dir: Path, folder: Path, threads: int) -> Made:
    """Raises `ModelDamaged` and `OSError`; a full disk ends the process with SIGBUS."""
    from assistant.model_store.derived_make import publish
    from assistant.model_store.workspace import workspace

    with workspace(folder.parent) as work:
        llm = open_model(model_dir, work, threads, 128)
        # MNN marks its own cache complete at the first forward
        if not makes_sense(forward(llm, [0], first=True)):
            raise ModelDamaged(f"the model in {model_dir} computes no numbers; run 'assistant models verify'")
        publish(work, folder)
    return Made(folder=str(folder))


def main(argv: list[str]) -> int:
    if len(argv) != 3:
        sys.stderr.write("usage: python -m assistant.stages.llm_mnn_weights MODEL_DIR FOLDER THREADS\n")
        return 2
    from assistant.model_store import json_command

    return json_command.run(lambda update: make_cache(Path(argv[0]), Path(argv[1]), int(argv[2])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
