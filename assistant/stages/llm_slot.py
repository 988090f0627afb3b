"""One conversation's key-value cache in MNN, and which conversation gets which. Knows MNN's object, imports no MNN.

A slot is a model object of its own: the first one is the model, each further one shares the first one's weights
(`create_lora` with the very same graph, or with the one that leaves layers out) and has keys and values of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assistant.stages.mnn_reserve import Announce, announcer

ROWS = 4
"""Tokens that MNN computes together. As long as all but the last few tokens of a prompt go in by pieces of whole rows,
and the last few by themselves, the logits are the same to the bit however the prompt was cut. Otherwise the rounding of
8-bit activations differs, by up to 0.9 of a logit (measured)."""

Logits = NDArray[np.float32]


def pieces(length: int, kept: int, chunk: int) -> list[tuple[int, int]]:
    """Where a prompt of `length` tokens is cut, from token `kept` on, into at most `chunk` (in whole rows) at once.
    Nowhere when nothing is left of it."""
    if kept >= length:
        return []
    chunk = max(ROWS, chunk // ROWS * ROWS)
    body = length // ROWS * ROWS
    cuts = [*range(kept, body, chunk), *sorted({body, length})] if kept < body else [kept, length]
    return list(itertools.pairwise(cuts))


def open_slot(base: Any, graph: str) -> Any:
    """Another model object on the weights of `base`. `graph`: file name beside the model's, which must exist: MNN
    gives an object without a model otherwise, and ends the process when it is used."""
    return base.create_lora(graph)


class Slot:
    """Tokens whose keys and values are in the cache, in order."""

    def __init__(self, llm: Any, opened: Callable[[], None] = lambda: None, context: int = 0) -> None:
        """`llm`: MNN's inner object, loaded. `opened`: called when the cache was begun anew. `context`: tokens for
        which room is made as soon as a conversation begins; 0 = as they come."""
        self._llm = llm
        self._opened = opened
        self._context = context
        self._announce: Announce | None = None
        self.tokens: list[int] = []
        self.conversation = ""
        self.turn = 0
        """When it was last taken; larger is later."""
        self._exact = 0
        """How many of the tokens went in by whole rows of a prompt."""
        self._whole = True

    @property
    def room(self) -> int:
        """Tokens for which it has room."""
        return max(self._context, len(self.tokens)) if self.tokens else 0

    def common(self, prompt: Sequence[int], *, exact: bool) -> int:
        """How many tokens of `prompt` need not be computed: those in the cache, in whole rows, the last one never.

        `exact`: those alone with which the logits stay the same to the bit. Otherwise what was decoded counts as well.
        """
        if not self._whole:
            return 0
        known = self.tokens[: self._exact] if exact else self.tokens
        pairs = zip(known, prompt[:-1], strict=False)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)) // ROWS * ROWS

    def keep(self, count: int) -> None:
        """Forgets all but the first `count` tokens."""
        if count == 0:
            self._llm.reset()
        elif count < len(self.tokens):
            self._llm.erase_history(count, 0)
        del self.tokens[count:]
        self._exact = min(self._exact, count)
        self._whole = True

    def begin(self, prompt: list[int]) -> int:
        """Makes room for the whole context behind the first row of a prompt; how many of its tokens are done then.
        Does nothing for a slot that takes its room as tokens come, or that has begun already."""
        room = self._context - 2 * ROWS
        if self.tokens or room <= 0 or len(prompt) <= ROWS:
            return len(self.tokens)
        self.forward(prompt[:ROWS], prompt=True)
        self._announce = self._announce or announcer(self._llm)
        if self._announce is None:
            self._context = 0
            return ROWS
        self._announce(room)
        self.forward([0], prompt=True)
        self.keep(ROWS)
        return ROWS

    def shrink(self) -> None:
        """Forgets everything and gives its memory back; MNN does that when it begins anew, so that takes a token."""
        self.keep(0)
        self.forward([0], prompt=True)

    def forward(self, ids: list[int], *, prompt: bool) -> Logits:
        """Logits of the last position, float32 [vocabulary]. `prompt`: a piece of one, not one token more."""
        self._whole = False
        begun = not self.tokens
        if prompt:
            # without it MNN takes several tokens for decoding and clones a module for each new length; it also puts
            # right the state that a cancelled or failed request has left
            self._llm.generate_init(None, None)
        logits = np.array(self._llm.forward(ids).read(), dtype=np.float32).reshape(-1)
        if prompt and self._exact == len(self.tokens) and len(ids) % ROWS == 0:
            self._exact += len(ids)
        self.tokens += ids
        self._whole = True
        if begun:
            self._opened()
        return logits


class Slots:
    """All of one graph."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = list(slots)
        self._turns = itertools.count(1)

    @property
    def room(self) -> int:
        """Tokens for which they have room, all together."""
        return sum(slot.room for slot in self._slots)

    def shrink(self) -> None:
        for slot in self._slots:
            slot.conversation = ""
            if slot.tokens:
                slot.shrink()

    def take(self, conversation: str, prompt: Sequence[int]) -> tuple[Slot, int]:
        """The slot of this conversation, or the one whose loss costs least: nobody's before somebody's, the one that
        holds most of the prompt, the one that was taken longest ago. It holds no more than the beginning of the
        prompt; returns how much."""
        exact = not conversation
        own = next((slot for slot in self._slots if conversation and slot.conversation == conversation), None)
        slot = own or min(
            self._slots, key=lambda one: (bool(one.conversation), -one.common(prompt, exact=exact), one.turn)
        )
        kept = slot.common(prompt, exact=exact)
        slot.keep(kept)
        slot.conversation, slot.turn = conversation, next(self._turns)
        return slot, kept
