"""Prints the token ids that the LLM engine makes of one question: `python -m tests.stages.prompt_ids MODEL CACHE TEXT`.

A process of its own, because MNN leaves none as it was.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from assistant.messages import Turn
from assistant.stages.base import EngineConfig
from assistant.stages.llm_mnn import MnnLlm


def main(model: str, cache: str, text: str) -> None:
    folder = Path(model)
    config = EngineConfig(
        model="x",
        model_dir=folder,
        digest=str(folder),
        cache_dir=Path(cache),
        threads=1,
        options={"context_tokens": 128},
    )
    engine = MnnLlm(config)
    engine.load()
    ids = engine._prompts.encode(engine._llm, (Turn(role="user", content=text),))
    sys.stdout.write(f"ids {json.dumps(ids)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # with a live model, MNN crashes at the interpreter's exit
