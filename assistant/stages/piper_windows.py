"""A sentence in windows: which, and a chain of network parts that each work in windows of their own. Imports numpy.

Each part sees some steps to each side (`reach`), gives so many steps for each (`rate`), and is asked for its results
from left to right; what it needs for them it asks of the part before it. What a window computes beyond what was asked
for is thrown away, so parts that see far shall take wide windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FIRST_WINDOW = 32
"""Frames (of 256 samples at 22,050 Hz: 0.37 s) that are made before the first sound."""

WINDOW = 48
"""Frames made at once from then on, at most; what bounds memory and the delay of a cancel."""

DECODER_WINDOW = 128
"""The same, of the decoder's first part, which sees far: narrow windows would waste much, and its frames are small."""

Floats = NDArray[np.float32]

Steps = Callable[[int, int], Floats]
"""Begin and end, of which neither is ever before an earlier one -> (1, channels, end - begin)."""


class Window(NamedTuple):
    """Of steps: `begin` to `end` are wanted, `left` to `right` are computed."""

    begin: int
    end: int
    left: int
    right: int


def windows(steps: int, first: int, most: int, reach: int) -> Iterator[Window]:
    """The whole of `steps`: a window of `first`, then as few as there can be when `most` are wanted at once.

    Those are alike in what they want and, where the steps suffice, in what is computed for it: a network that sees no
    new shape plans and allocates nothing, and nothing is computed for a last window that wants little. No crumb is left
    behind the first.
    """
    end = steps if steps < first + reach else first
    yield _window(0, end, steps, end, reach)
    if end < steps:
        wanted = -(-(steps - end) // -(-(steps - end) // most))
        for begin in range(end, steps, wanted):
            yield _window(begin, min(steps, begin + wanted), steps, wanted, reach)


def _window(begin: int, end: int, steps: int, wanted: int, reach: int) -> Window:
    right = min(steps, end + reach)
    return Window(begin, end, max(0, min(begin - reach, right - wanted - 2 * reach)), right)


class Stretch(NamedTuple):
    """Some steps, from `begin` on."""

    begin: int
    steps: Floats

    def then(self, more: Floats, keep_from: int) -> Stretch:
        """With more steps behind it, and without those before `keep_from`."""
        begin = min(keep_from, self.end)
        return Stretch(begin, np.concatenate([self.steps[:, :, begin - self.begin :], more], axis=2))

    def part(self, begin: int, end: int) -> Floats:
        return self.steps[:, :, begin - self.begin : end - self.begin]

    @property
    def end(self) -> int:
        return self.begin + int(self.steps.shape[2])


class Chained:
    """What one part of a network makes of what the one before it makes; `steps` is what the next one takes."""

    def __init__(self, compute: Callable[[Floats], Floats], take: Steps, wanted: Iterator[Window], rate: int) -> None:
        """`wanted`: in steps of what is taken."""
        self._compute = compute
        self._take = take
        self._wanted = wanted
        self._rate = rate
        self._made: Stretch | None = None

    def steps(self, begin: int, end: int) -> Floats:
        while self._made is None or self._made.end < end:
            made = self.next()
            self._made = Stretch(0, made) if self._made is None else self._made.then(made, begin)
        return self._made.part(begin, end)

    def next(self) -> Floats:
        """What comes of the next window. Raises `StopIteration` behind the last."""
        begin, end, left, right = next(self._wanted)
        found = self._compute(self._take(left, right))
        return found[:, :, (begin - left) * self._rate : (end - left) * self._rate]

    def __iter__(self) -> Iterator[Floats]:
        return self

    __next__ = next


class Link(NamedTuple):
    """A part of a network in a chain."""

    compute: Callable[[Floats], Floats]
    reach: int
    rate: int
    most: int
    """Frames that it makes at once, after those that the first sound needs."""


def chain(take: Steps, frames: int, links: Sequence[Link]) -> Chained:
    """What the last of the links makes of `frames`, which the first one takes. The first windows are as wide as the
    first one of the last link, of `FIRST_WINDOW` frames, needs them."""
    rates = [1, *accumulate((link.rate for link in links), mul)]
    firsts = [FIRST_WINDOW * rates[-2]]
    for link, following in reversed([*pairwise(links)]):
        firsts.insert(0, -(-(firsts[0] + following.reach) // link.rate))
    for link, first, rate in zip(links, firsts, rates, strict=False):
        chained = Chained(link.compute, take, windows(frames * rate, first, link.most * rate, link.reach), link.rate)
        take = chained.steps
    return chained
