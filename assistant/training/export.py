"""From the learnt model to the files that ship. Imports this room, the encoder's file formats and MNN's converter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from assistant.model_store.manifest import sha256_of
from assistant.model_store.mnn_tools import onnx_to_mnn
from assistant.stages.intent_encoder import (
    ENCODER,
    FORMAT,
    HEAD,
    META,
    VOCABULARY,
    WORDS,
    FileMark,
    Meta,
    SentenceClassifier,
)
from assistant.stages.word_table import write_table
from assistant.stages.wordpiece import write_vocabulary
from assistant.training import bits, graph
from assistant.training.bert import Classifier
from assistant.training.samples import CLASSES

MAX_TOKENS = 64


def write_words(tokenizer: Path, table: NDArray[np.float32], folder: Path) -> None:
    """The vocabulary of `tokenizer` (tokenizer.json) and the word table, both in our own formats."""
    folder.mkdir(parents=True, exist_ok=True)
    write_vocabulary(json.loads(tokenizer.read_text("utf-8"))["model"]["vocab"], folder / VOCABULARY)
    write_table(table, folder / WORDS)


def write_model(model: Classifier, folder: Path) -> None:
    """encoder.mnn in 4 bits and head.npz. The model's matrices must have been rounded: see `bits.end`."""
    import onnx

    source = folder / "encoder.onnx"
    onnx.save(graph.build(model.encoder), str(source))
    onnx_to_mnn(source, folder / ENCODER, bits.BITS, bits.BLOCK)
    source.unlink()
    head = {
        "weight": model.head.weight.detach().numpy().astype(np.float32),
        "bias": model.head.bias.detach().numpy().astype(np.float32),
        "positions": model.encoder.positions.detach().numpy()[:MAX_TOKENS].astype(np.float16),
    }
    with (folder / HEAD).open("wb") as file:
        np.savez(file, **head)


def write_meta(folder: Path, threshold: float, temperature: float, nearness: float, figures: dict[str, Any]) -> None:
    """Last of all: with the size and sha256 of the others."""
    meta = Meta(
        format=FORMAT,
        language="en",
        names=CLASSES,
        threshold=threshold,
        temperature=temperature,
        max_tokens=MAX_TOKENS,
        nearness=nearness,
        files={name: _mark(folder / name) for name in (ENCODER, HEAD, VOCABULARY, WORDS)},
        figures=figures,
    )
    (folder / META).write_bytes(msgspec.json.format(msgspec.json.encode(meta), indent=2) + b"\n")


def logits_of(folder: Path, texts: Sequence[str]) -> NDArray[np.float32]:
    """float32 [n, classes], as the files on disk give them."""
    encoder = SentenceClassifier.load(folder, threads=2)
    return np.stack([encoder.logits(text) for text in texts])


def _mark(path: Path) -> FileMark:
    return FileMark(path.stat().st_size, sha256_of(path))
