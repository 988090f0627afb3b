"""What only MNN itself can tell of a model: perplexity, and what split prompts do to logits. In a child process.

    python -m assistant.bench.llm_child ORDER.json OUT.json

A process of its own, because MNN keeps memory and ends a process that it does not like. The weights are mapped from the
product's own cache and opened by the product's own function.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from assistant.errors import ModelDamaged, StageDied
from assistant.model_store.derived import Found
from assistant.stages import mnn_cache
from assistant.stages.spec import StageSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

Told = TypeVar("Told")
Cut = Callable[[int, int], list[tuple[int, int]]]
"""Length of a prompt and of a piece to the pieces' begins and ends."""
_PIECE = 64
"""Tokens whose logits are held at a time: 10 to 40 MB, whatever the length of the text."""
_TIMEOUT_S = 900


class Model(msgspec.Struct, frozen=True, kw_only=True):
    folder: str
    weights: str
    """Where they are laid out."""
    threads: int
    graph: str = ""
    """Another graph on the same weights; empty = the model's own."""


class Reading(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Order: read a text."""

    model: Model
    text: str
    decode: int
    """Tokens to be timed one by one, after the first 64 of the text."""
    perplexity: bool = True


class Read(msgspec.Struct, frozen=True, kw_only=True):
    perplexity: float
    """exp of the mean of -log p over all tokens but the first; 0 when it was not asked for."""
    tokens: int
    decode_tps: float


class Splitting(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Order: give prompts in one piece and in several."""

    model: Model
    attention_mode: int
    prompts: list[str]
    pieces: list[int]
    steps: int
    """Tokens of each greedy answer."""


class Split(msgspec.Struct, frozen=True, kw_only=True):
    difference: float
    """The largest of any logit after the prompt, over all prompts."""
    same: int
    """Prompts with the same greedy answer."""


class Splits(msgspec.Struct, frozen=True, kw_only=True):
    """By tokens per piece."""

    as_we_cut: dict[int, Split]
    """By whole rows and a rest, as the stage does it."""
    evenly: dict[int, Split]
    """Into equal pieces, against the prompt in one piece."""


def model_of(spec: StageSpec, graph: str = "") -> Model:
    """With its weights laid out, which takes seconds per GB unless they are."""
    config = spec.engine_config(spec.threads)
    cache = mnn_cache.cache_of(config)
    found = cache.find() or mnn_cache.build(config.model_dir, cache, config.threads)
    _FOUND[str(found.path)] = found
    return Model(folder=str(spec.model_dir), weights=str(found.path), threads=spec.threads, graph=graph)


_FOUND: dict[str, Found] = {}


def ask(order: Reading | Splitting, answer: type[Told]) -> Told:
    """Raises `ModelDamaged` when MNN refuses the model, `StageDied` when the child ends without an answer."""
    with tempfile.TemporaryDirectory(prefix="assistant-llm-") as temp:
        given, out = Path(temp, "order.json"), Path(temp, "out.json")
        given.write_bytes(msgspec.json.encode(order))
        command = [sys.executable, "-m", "assistant.bench.llm_child", str(given), str(out)]
        found = _FOUND.get(order.model.weights)
        trusted = found if found is not None and not found.doubtful else None
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S)
        if done.returncode == ModelDamaged.exit_code:
            raise ModelDamaged(f"{order.model.folder}: MNN does not load it; run 'assistant models verify'")
        if done.returncode or not out.is_file():
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise StageDied(f"MNN ended with code {done.returncode} on {order.model.folder}: {' '.join(said)}")
        if trusted is not None:  # MNN has written its constants, and the user's next start need not compare for that
            trusted.note()
        return msgspec.json.decode(out.read_bytes(), type=answer)


# --- in the child -----------------------------------------------------------------------------------------------------
_OPEN: list[Any] = []
"""What stays until the process ends: MNN crashes when a model goes before one that shares its weights."""


def _opened(model: Model, **settings: Any) -> Any:
    from assistant.stages.llm_mnn_weights import open_model
    from assistant.stages.llm_slot import open_slot

    llm = open_model(Path(model.folder), Path(model.weights), model.threads, **settings)
    opened = (llm, open_slot(llm, model.graph)) if model.graph else (llm, llm)
    _OPEN.append(opened)
    return opened


def _fed(llm: Any, ids: list[int]) -> NDArray[np.float32]:
    """Logits [rows, vocabulary], a row for each token with `all_logits`, else for the last one. A piece of a prompt."""
    llm.generate_init(None, None)
    out = llm.forward(ids)
    return np.array(out.read(), dtype=np.float32).reshape(-1, out.shape[-1])


def read(order: Reading) -> Read:
    base, llm = _opened(order.model, all_logits=order.perplexity)
    ids = [int(token) for token in base.tokenizer_encode(order.text)]
    perplexity = _perplexity(llm, ids) if order.perplexity else 0.0
    llm.reset()
    _fed(llm, ids[:_PIECE])
    began, given = time.perf_counter(), ids[: order.decode]
    for token in given:
        np.array(llm.forward([token]).read())
    tps = len(given) / (time.perf_counter() - began) if given else 0.0
    return Read(perplexity=perplexity, tokens=len(ids), decode_tps=tps)


def _perplexity(llm: Any, ids: list[int]) -> float:
    llm.reset()
    sums = 0.0
    for begin in range(0, len(ids) - 1, _PIECE):
        piece = ids[begin : begin + _PIECE]
        wanted = ids[begin + 1 : begin + len(piece) + 1]
        logits = _fed(llm, piece)[: len(wanted)].astype(np.float64)
        top = logits.max(axis=1)
        normal = np.log(np.exp(logits - top[:, None]).sum(axis=1)) + top
        sums += float((normal - logits[np.arange(len(wanted)), wanted]).sum())
    return float(np.exp(sums / (len(ids) - 1)))


def split(order: Splitting) -> Splits:
    from assistant.stages.llm_slot import pieces

    base, llm = _opened(order.model, attention_mode=order.attention_mode)
    prompts = [[int(token) for token in base.tokenizer_encode(prompt)] for prompt in order.prompts]
    return Splits(
        as_we_cut=_compared(llm, prompts, order, lambda length, piece: pieces(length, 0, piece)),
        evenly=_compared(llm, prompts, order, _evenly),
    )


def _evenly(length: int, piece: int) -> list[tuple[int, int]]:
    return [(begin, min(begin + piece, length)) for begin in range(0, length, piece)]


def _compared(llm: Any, prompts: list[list[int]], order: Splitting, cut: Cut) -> dict[int, Split]:
    whole = [_answered(llm, ids, cut(len(ids), len(ids)), order.steps) for ids in prompts]
    found = {}
    for piece in order.pieces:
        parts = [_answered(llm, ids, cut(len(ids), piece), order.steps) for ids in prompts]
        pairs = list(zip(whole, parts, strict=True))
        found[piece] = Split(
            difference=max(float(np.abs(one[0] - other[0]).max()) for one, other in pairs),
            same=sum(one[1] == other[1] for one, other in pairs),
        )
    return found


def _answered(
    llm: Any, ids: list[int], cuts: list[tuple[int, int]], steps: int
) -> tuple[NDArray[np.float32], list[int]]:
    """The logits after the prompt, and the greedy answer."""
    llm.reset()
    for begin, end in cuts:
        logits = _fed(llm, ids[begin:end])[-1]
    first, answer = logits, list[int]()
    for _ in range(steps):
        answer.append(int(logits.argmax()))
        logits = np.array(llm.forward(answer[-1:]).read(), dtype=np.float32).reshape(-1)
    return first, answer


def _child(given: str, out: str) -> int:
    order = msgspec.json.decode(Path(given).read_bytes(), type=Reading | Splitting)
    try:
        told: Read | Splits = read(order) if isinstance(order, Reading) else split(order)
    except ModelDamaged as error:
        sys.stderr.write(error.message + "\n")
        return int(ModelDamaged.exit_code)
    Path(out).write_bytes(msgspec.json.encode(told))
    return 0


if __name__ == "__main__":
    code = _child(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # with a live model, MNN crashes at the interpreter's exit
