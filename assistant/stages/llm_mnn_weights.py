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
from assistant.stages.llm_slot import Slot
from assistant.stages.mnn_cache import CACHE_LAYOUT

_ABSURD = 1e30
"""Logits of language models stay below a hundred or so."""


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """The report."""

    folder: str


def open_model(model_dir: Path, folder: Path | None, threads: int, **settings: Any) -> Any:
    """MNN's inner object, loaded. Raises `ModelDamaged`.

    `folder`: where the mapped weights lie, which must be writable, or are made; without one all weights go into memory.
    `settings`: more of MNN's, over ours.
    """
    llm = mnn_llm.create(str(model_dir / "config.json"))
    llm.set_config(
        {
            **CACHE_LAYOUT,
            "use_mmap": folder is not None,
            "tmp_path": str(folder or ""),
            "thread_num": threads,
            "chunk": 0,  # prompts come in pieces already
            "reuse_kv": True,  # or each piece would begin anew
            "sampler_type": "greedy",
            "all_logits": False,
            **settings,
        }
    )
    # the inner object: the wrapper's load() drops the only sign of failure
    if not llm._c_obj.load():
        raise ModelDamaged(f"MNN cannot load the model in {model_dir}; run 'assistant models verify'")
    return llm._c_obj


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
        slot = Slot(open_model(model_dir, work, threads))
        # MNN marks its own cache complete at the first forward
        if not makes_sense(slot.forward([0], prompt=True)):
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
