"""From logits to the next token: greedy, temperature, top-k, top-p, min-p, repetition penalty. numpy alone, pure.

Formulas: temperature and top-k as in Fan et al. 2018, top-p (nucleus) Holtzman et al. 2020, min-p Nguyen et al. 2024,
repetition penalty Keskar et al. 2019 (CTRL): a logit of a token already seen is divided by the penalty when positive,
multiplied when negative.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from assistant.messages import Sampling

_CANDIDATES = 256
"""Temperature, top-p and min-p look at no more than this many of the best logits: the tail of a 50 k vocabulary holds
next to nothing after the filters, and sorting all of it would cost more than a millisecond per token."""

_GREEDY_BELOW = 1e-3
"""Temperatures below differ from greedy in nothing but overflows."""


class Sampler:
    """Chooses tokens for one answer; the same seed gives the same choices."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        # its import takes as long as a token
        greedy = sampling.temperature < _GREEDY_BELOW
        self._random = None if greedy else np.random.default_rng(sampling.seed)

    def choose(self, logits: NDArray[np.float32], seen: Sequence[int]) -> int:
        """The next token id.

        `logits`: float32 [vocabulary]; changed in place at the ids in `seen`, the tokens of the answer so far.
        """
        sampling = self._sampling
        if seen and sampling.repetition_penalty != 1.0:
            ids = np.fromiter(set(seen), dtype=np.int64)
            values = logits[ids]
            penalty = np.float32(sampling.repetition_penalty)
            logits[ids] = np.where(values > 0, values / penalty, values * penalty)
        if self._random is None:
            return int(logits.argmax())
        candidates = self._best(logits)
        scaled = logits[candidates].astype(np.float64) / sampling.temperature
        weights = np.exp(scaled - scaled[0])
        probabilities = weights / weights.sum()
        keep = self._keep(probabilities)
        probabilities = probabilities[:keep] / probabilities[:keep].sum()
        return int(candidates[self._random.choice(keep, p=probabilities)])

    def _best(self, logits: NDArray[np.float32]) -> NDArray[np.int64]:
        """Ids of the best logits, best first."""
        count = min(self._sampling.top_k or _CANDIDATES, _CANDIDATES, logits.size)
        part = np.argpartition(logits, logits.size - count)[logits.size - count :]
        return part[np.argsort(-logits[part], kind="stable")].astype(np.int64)

    def _keep(self, probabilities: NDArray[np.float64]) -> int:
        """How many of the candidates (best first) survive top-p and min-p; at least one."""
        sampling = self._sampling
        keep = len(probabilities)
        if sampling.top_p < 1:
            # the first token that crosses the threshold stays
            keep = int(np.searchsorted(probabilities.cumsum(), sampling.top_p)) + 1
        if sampling.min_p > 0:
            keep = min(keep, int((probabilities >= sampling.min_p * probabilities[0]).sum()))
        return max(1, min(keep, len(probabilities)))
