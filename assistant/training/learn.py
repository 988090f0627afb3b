"""The loop: fine-tuning of the whole encoder with its head. Imports this room and the tokeniser.

AdamW, encoder 1.5e-4, head 2e-3, one cycle, batches of 32 of about one length, label smoothing 0.05. In the last part
the weights are seen through the 4 bits that they will have, so that the model learns to live with them.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from assistant.stages.wordpiece import WordPiece
from assistant.training import bits
from assistant.training.bert import Classifier
from assistant.training.corpora import Labelled
from assistant.training.samples import CLASSES, Share, Sources

BATCH, TOKENS = 32, 32
ENCODER_RATE, HEAD_RATE, SMOOTHING = 1.5e-4, 2e-3, 0.05
ROUNDED_FROM = 0.6
"""Share of the steps after which the weights are seen in 4 bits."""
TOPIC_SHARE = 0.5
_NO_TOPIC = -100
_CHUNK = 16
"""Batches that are sorted by length together."""


def tensors(lines: Sequence[Labelled], pieces: WordPiece) -> Tensor:
    """Token ids [n, longest], 0 behind the end."""
    ids = [pieces.encode(one.text, TOKENS) for one in lines]
    longest = max(map(len, ids))
    return torch.tensor([row + [0] * (longest - len(row)) for row in ids])


def batches(lines: Sequence[Labelled], rng: random.Random) -> Iterator[list[Labelled]]:
    for start in range(0, len(lines), BATCH * _CHUNK):
        chunk = sorted(lines[start : start + BATCH * _CHUNK], key=lambda one: len(one.text))
        starts = list(range(0, len(chunk), BATCH))
        rng.shuffle(starts)
        for at in starts:
            yield chunk[at : at + BATCH]


def learn(
    model: Classifier, sources: Sources, pieces: WordPiece, epochs: int, share: Share, seed: int, further: bool = False
) -> None:
    """Says on stderr how it goes. `further`: the model has learnt before, and its weights are rounded already."""
    torch.manual_seed(seed)
    most = [ENCODER_RATE / 2, HEAD_RATE / 2] if further else [ENCODER_RATE, HEAD_RATE]
    groups = [
        {"params": list(model.encoder.parameters()), "lr": ENCODER_RATE},
        {"params": [*model.head.parameters(), *model.topics.parameters()], "lr": HEAD_RATE},
    ]
    optimiser = torch.optim.AdamW(groups, weight_decay=0.01)
    steps_in_epoch = math.ceil(len(sources.epoch(0, share)) / BATCH)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, most, total_steps=steps_in_epoch * epochs + epochs + 50, pct_start=0.15
    )
    loss_of = nn.CrossEntropyLoss(label_smoothing=SMOOTHING)
    topic_loss = nn.CrossEntropyLoss(ignore_index=_NO_TOPIC, reduction="sum")
    topics = {name: number for number, name in enumerate(sources.topics)}
    began, step, sliding = time.monotonic(), 0, 0.0
    for epoch in range(epochs):
        lines = sources.epoch(epoch, share)
        model.train()
        for batch in batches(lines, random.Random(seed + epoch)):
            if not further and step == int(ROUNDED_FROM * steps_in_epoch * epochs):
                bits.begin(model.encoder)
            wanted = torch.tensor([CLASSES.index(one.intent) for one in batch])
            topic = torch.tensor([topics.get(one.topic, _NO_TOPIC) for one in batch])
            named, about = model(tensors(batch, pieces))
            loss = loss_of(named, wanted) + TOPIC_SHARE * topic_loss(about, topic) / len(batch)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            cycle.step()
            step += 1
            sliding += (float(loss.detach()) - sliding) / min(step, 50)
            if step % 50 == 0:
                print(f"epoch {epoch + 1} step {step} of {steps_in_epoch * epochs} loss {sliding:.3f} "
                      f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)  # fmt: skip


def logits(model: Classifier, lines: Sequence[Labelled], pieces: WordPiece) -> NDArray[np.float32]:
    """float32 [n, classes], in the order of `lines`."""
    model.eval()
    order = sorted(range(len(lines)), key=lambda at: len(lines[at].text))
    out = np.zeros((len(lines), len(CLASSES)), np.float32)
    with torch.inference_mode():
        for start in range(0, len(order), 128):
            part = order[start : start + 128]
            out[part] = model(tensors([lines[at] for at in part], pieces))[0].numpy()
    return out
