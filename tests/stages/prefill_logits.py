"""Logits of prompts that are cut and kept in several ways.

    python -m tests.stages.prefill_logits MODEL CACHE WHAT MODE

A process of its own, because MNN leaves none as it was.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from assistant.memory_orchestrator.probe import MIB, Probe
from assistant.stages import llm_slot
from assistant.stages.llm_mnn_weights import open_model
from assistant.stages.llm_slot import Logits, Slot, Slots, open_slot, pieces

TEXT = (
    "The history of bread goes back many thousands of years. The first loaves were flat and hard, and were baked on hot"
    " stones next to an open fire. Later people learned that dough which is left to stand in a warm place begins to"
    " rise, and that the bread made from it is soft and light. In the towns bakers formed guilds, and the price and"
    " weight of a loaf were fixed by law. What is the best way to bake bread?"
)


def compute(slot: Slot, prompt: list[int], chunk: int, kept: int = 0) -> Logits:
    slot.keep(kept)
    logits = np.empty(0, np.float32)
    for begin, end in pieces(len(prompt), kept, chunk):
        logits = slot.forward(prompt[begin:end], prompt=True)
    return logits


def greedy(slot: Slot, logits: Logits, count: int) -> list[int]:
    found = []
    for _ in range(count):
        found.append(int(logits.argmax()))
        logits = slot.forward(found[-1:], prompt=False)
    return found


def cuts(llm: Any, ids: list[int], step: int = 7) -> dict[str, Any]:
    slot, cases, different, largest = Slot(llm), 0, [], 0.0
    for length in range(40, len(ids), step):
        whole = compute(slot, ids[:length], length)
        for chunk in (8, 24, 64):
            off = float(np.abs(compute(slot, ids[:length], chunk) - whole).max())
            cases, largest = cases + 1, max(largest, off)
            if off:
                different.append((length, chunk, off))
    return {"cases": cases, "different": different, "largest": largest}


def keeps(llm: Any, ids: list[int]) -> dict[str, Any]:
    slot = Slot(llm)
    fresh = compute(slot, ids, 128)
    answer = greedy(slot, fresh.copy(), 12)
    slot_after = compute(slot, ids, 128, slot.common(ids, exact=True))
    kept = slot.common(ids, exact=True)
    again = greedy(slot, slot_after.copy(), 12)
    # a second turn on top of what was decoded, against the same without a slot
    longer = [*ids, *answer, *ids[:9]]
    decoded = compute(slot, longer, 128, slot.common(longer, exact=False))
    anew = compute(slot, longer, 128)
    return {
        "kept": kept,
        "exact": float(np.abs(slot_after - fresh).max()),
        "after a decode": float(np.abs(decoded - anew).max()),
        "same greedy": answer == again and bool(decoded.argmax() == anew.argmax()),
    }


def reserved(llm: Any, ids: list[int]) -> dict[str, Any]:
    plain, made = Slot(llm), Slot(open_slot(llm, "llm.mnn"), context=512)
    fresh = compute(plain, ids, 64)
    taken = []
    for _ in range(2):
        made.keep(0)
        before = Probe().usage(os.getpid()).anon
        begun = made.begin(ids)
        taken.append((Probe().usage(os.getpid()).anon - before) / MIB)
        logits = np.empty(0, np.float32)
        for begin, end in pieces(len(ids), begun, 64):
            logits = made.forward(ids[begin:end], prompt=True)
    return {
        "begun": begun,
        "difference": float(np.abs(logits - fresh).max()),
        "same greedy": greedy(plain, fresh, 80) == greedy(made, logits, 80),
        "taken": taken,
    }


def slots(llm: Any, ids: list[int]) -> dict[str, Any]:
    first = Slot(llm)
    alone = compute(first, ids, 128)
    before = Probe().usage(os.getpid()).anon / MIB
    second = Slot(open_slot(llm, "llm.mnn"))
    more = Probe().usage(os.getpid()).anon / MIB - before
    both = Slots([first, second])
    taken = []

    def ask(conversation: str, prompt: list[int]) -> int:
        slot, kept = both.take(conversation, prompt)
        compute_from = pieces(len(prompt), kept, 128)
        for begin, end in compute_from:
            slot.forward(prompt[begin:end], prompt=True)
        return kept

    different = ids[::-1]
    first.keep(0)
    taken += ["a"] if ask("a", ids) == 0 else []
    taken += ["b"] if ask("b", different) == 0 else []
    taken += ["a"] if ask("a", [*ids, 5]) >= len(ids) - llm_slot.ROWS else []
    taken += ["b kept"] if ask("b", [*different, 5]) >= len(ids) - llm_slot.ROWS else []
    taken += ["c takes the oldest"] if ask("c", [9, *ids]) == 0 else []
    taken += ["a is new"] if ask("a", ids) == 0 else []
    second.keep(0)
    return {
        "difference": float(np.abs(compute(second, ids, 128) - alone).max()),
        "anon of one more": more,
        "taken": taken,
    }


def main(model: str, cache: str, what: str, mode: str) -> None:
    folder = Path(cache)
    llm = open_model(Path(model), folder, 2, attention_mode=int(mode))
    ids = [int(token) for token in llm.tokenizer_encode(TEXT)]
    found = {
        "cut": lambda llm, ids: cuts(llm, ids, len(ids)),
        "cuts": cuts,
        "keeps": keeps,
        "slots": slots,
        "reserved": reserved,
    }[what](llm, ids)
    sys.stdout.write("\n" + json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # with a live model, MNN crashes at the interpreter's exit
