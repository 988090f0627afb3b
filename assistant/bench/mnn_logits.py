"""Logits of a converted model under given MNN settings, from a child process. Imports `errors`; MNN in the child alone.

A process per configuration, because MNN holds the GIL, keeps memory, and ends a process that it does not like. No
mapped weights: `memory: high` must never meet a weight cache, and every run starts from the same state.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from assistant.errors import ModelDamaged, StageDied

REFERENCE: Mapping[str, Any] = {"memory": "high", "attention_mode": 8}
"""Weights expanded to float32 and no quantised activations: exact, slow, four bytes per parameter."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation: a prompt, then tokens that are given (`forced`) or chosen greedily."""

    prompt: str | list[int]
    """Text, or token ids."""
    forced: list[int] | None = None
    """Tokens fed after the prompt whatever the model would say; None = choose the best `steps` times."""
    steps: int = 0
    stop: list[int] = []


class Run(msgspec.Struct, frozen=True):
    """`logits` [prompt + tokens - 1 (at least), vocab] float32: one row after each token fed."""

    prompt: list[int]
    tokens: list[int]
    """Forced or chosen, the stop token included."""
    logits: NDArray[np.float32]


class _Order(msgspec.Struct, frozen=True):
    model_dir: str
    settings: dict[str, Any]
    jobs: list[Job]


def run(model_dir: Path, settings: Mapping[str, Any], jobs: Sequence[Job], timeout_s: float = 600) -> list[Run]:
    """Runs all jobs in one child. Raises `ModelDamaged` when MNN refuses the model, `StageDied` when the child dies."""
    with tempfile.TemporaryDirectory(prefix="assistant-logits-") as temp:
        order, out = Path(temp, "order.json"), Path(temp, "out.npz")
        order.write_bytes(msgspec.json.encode(_Order(str(model_dir), dict(settings), list(jobs))))
        command = [sys.executable, "-m", "assistant.bench.mnn_logits", str(order), str(out)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s)
        if done.returncode == ModelDamaged.exit_code:
            raise ModelDamaged(f"{model_dir}: MNN does not load it; convert the model again")
        if done.returncode or not out.is_file():
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise StageDied(f"MNN ended with code {done.returncode} on {model_dir}: {' '.join(said)}")
        with np.load(out) as data:
            return [
                Run(data[f"prompt{i}"].tolist(), data[f"tokens{i}"].tolist(), data[f"logits{i}"])
                for i in range(len(jobs))
            ]


# --- in the child -----------------------------------------------------------------------------------------------------
def _one(llm: Any, job: Job) -> tuple[list[int], list[int], NDArray[np.float32]]:
    prompt = job.prompt if isinstance(job.prompt, list) else llm.tokenizer_encode(job.prompt)
    llm.generate_init(None, "\n")
    rows, feed, tokens = [], list(prompt), list(job.forced or [])
    for step in range(len(tokens) + 1 if job.forced is not None else job.steps + 1):
        output = llm.forward(feed)
        # A copy: MNN overwrites the memory behind `read` at the next forward.
        rows.append(output.read().reshape(-1, output.shape[-1]).copy())
        if job.forced is None:
            if step == job.steps or (tokens and tokens[-1] in job.stop):
                break
            tokens.append(int(rows[-1][-1].argmax()))
        elif step == len(tokens):
            break
        feed = [tokens[step]]
    return list(prompt), tokens, np.concatenate(rows)


def _child(order_file: str, out: str) -> int:
    import MNN.llm

    order = msgspec.json.decode(Path(order_file).read_bytes(), type=_Order)
    llm = MNN.llm.create(str(Path(order.model_dir) / "config.json"))
    llm.set_config({**order.settings, "all_logits": True, "thread_num": os.cpu_count() or 1, "use_mmap": False})
    if not llm._c_obj.load():
        return int(ModelDamaged.exit_code)
    arrays: dict[str, Any] = {}
    for i, job in enumerate(order.jobs):
        arrays[f"prompt{i}"], arrays[f"tokens{i}"], arrays[f"logits{i}"] = _one(llm, job)
    np.savez(out, **arrays)
    return 0


if __name__ == "__main__":
    code = _child(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # with a live model, MNN crashes at the interpreter's exit
