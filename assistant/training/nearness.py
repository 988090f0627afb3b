"""How near a sentence must be to the user's examples to mean the same. Imports the encoder and this room.

Measured as a user would use it: five examples of an intent that the encoder was not made for are given, and other
sentences of it are looked for among sentences of everything else. CLINC150's test part has such intents; the encoder
has learnt them as no command, which is the harder case.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from assistant.stages.intent_encoder import Prototypes, SentenceClassifier
from assistant.training.samples import STRANGERS, Sources

EXAMPLES, OF_EACH = 5, 12
ACCEPTED = 0.01


def nearness(folder: Path, sources: Sources) -> tuple[float, dict[str, Any]]:
    """The least cosine at which 1 % of the others are taken for an example's intent, and what is found with it."""
    encoder = SentenceClassifier.load(folder, threads=2)
    rng = random.Random(sources.seed)
    corpus = json.loads((sources.corpora / "clinc150_full.json").read_text("utf-8"))["test"]
    by_label: dict[str, list[str]] = {}
    for text, label in corpus:
        by_label.setdefault(label, []).append(text)
    own = Prototypes(encoder, threshold=-1.0)
    wanted: list[tuple[str, str]] = []
    for label in STRANGERS:
        texts = rng.sample(by_label[label], EXAMPLES + OF_EACH)
        own.add(label, texts[:EXAMPLES])
        wanted += [(text, label) for text in texts[EXAMPLES:]]
    others = [text for label, texts in sorted(by_label.items()) if label not in STRANGERS for text in texts[:3]]
    kept = [one.text for name in sources.written for one in sources.kept[name]]
    others += rng.sample(kept, min(200, len(kept)))
    far = np.sort([own.nearest(text)[1] for text in others])[::-1]
    threshold = round(float(far[int(ACCEPTED * len(far))]) + 0.005, 3)
    found = [own.nearest(text) for text, _ in wanted]
    right = sum(name == label and near >= threshold for (name, near), (_, label) in zip(found, wanted, strict=True))
    return threshold, {
        "examples": EXAMPLES,
        "intents": len(STRANGERS),
        "found": round(right / len(wanted), 4),
        "false_accept": round(float((far >= threshold).mean()), 4),
    }
