"""Rest between pieces of work, so that the machine cools down or somebody else gets a turn. Imports `messages`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from assistant.messages import Progress

_NAP_S = 0.05
"""A rest is taken in naps, so that a cancel is heard."""
_LEAST_DUTY = 0.05


def rest(
    worked_s: float, duty: float, told: Progress, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Progress]:
    """As long a rest after `worked_s` of work that work is `duty` (0..1) of the time. Yields `told` after each nap."""
    left = worked_s * (1 / min(1.0, max(_LEAST_DUTY, duty)) - 1)
    while left > 0:
        nap = min(left, _NAP_S)
        sleep(nap)
        left -= nap
        yield told
