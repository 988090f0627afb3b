"""How good it is: accuracy by source, and the threshold that keeps questions from being taken for commands. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assistant.training.corpora import NONE, Labelled

Floats = NDArray[np.float32]


def probabilities(logits: Floats, temperature: float) -> Floats:
    odds = np.exp((logits - logits.max(1, keepdims=True)) / temperature)
    return np.asarray(odds / odds.sum(1, keepdims=True), np.float32)


def best_temperature(logits: Floats, wanted: NDArray[np.int64]) -> float:
    """With the least cross-entropy, among 0.3 ... 2."""

    def cost(temperature: float) -> float:
        found = probabilities(logits, temperature)[np.arange(len(wanted)), wanted]
        return float(-np.log(np.maximum(found, 1e-9)).mean())

    return round(min(np.arange(0.3, 2.0, 0.05), key=cost).item(), 2)


def decided(odds: Floats, classes: Sequence[str], threshold: float) -> list[str]:
    """The names, as the classifier gives them."""
    best = odds.argmax(1)
    return [classes[at] if row[at] >= threshold else NONE for row, at in zip(odds, best.tolist(), strict=True)]


def figures(lines: Sequence[Labelled], odds: Floats, classes: Sequence[str], threshold: float) -> dict[str, Any]:
    found = decided(odds, classes, threshold)
    pairs = list(zip(lines, found, strict=True))
    commands = [(one.intent, name) for one, name in pairs if one.intent != NONE]
    others = [name for one, name in pairs if one.intent == NONE]
    return {
        "commands": len(commands),
        "intent_acc": round(sum(wanted == name for wanted, name in commands) / max(len(commands), 1), 4),
        "others": len(others),
        "false_accept": round(sum(name != NONE for name in others) / max(len(others), 1), 4),
    }


def threshold_for(lines: Sequence[Labelled], odds: Floats, classes: Sequence[str], accepted: float) -> float:
    """The least with which at most the share `accepted` of the lines that are no commands is taken for one."""
    none = classes.index(NONE)
    scores = [
        float(row.max())
        for one, row in zip(lines, odds, strict=True)
        if one.intent == NONE and int(row.argmax()) != none
    ]
    allowed = int(accepted * sum(one.intent == NONE for one in lines))
    worst = sorted(scores, reverse=True)[allowed : allowed + 1]
    return round(worst[0] + 0.005, 3) if worst else 0.3


def confusions(lines: Sequence[Labelled], odds: Floats, classes: Sequence[str], threshold: float) -> list[str]:
    found = decided(odds, classes, threshold)
    wrong = Counter(f"{one.intent} -> {name}" for one, name in zip(lines, found, strict=True) if one.intent != name)
    return [f"{count} x {what}" for what, count in wrong.most_common(25)]
