"""Which stages running queries will still need, in which order. Pure bookkeeping."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from assistant.memory_orchestrator.policy import NOT_NEEDED


class Journey:
    """The stages of one query that are still to come."""

    def __init__(self, stages: Sequence[str]) -> None:
        self._left = list(stages)

    def reached(self, stage: str) -> None:
        """The query works with `stage` now: what came before it is not needed again, nor is itself once it is done."""
        if stage in self._left:
            del self._left[: self._left.index(stage) + 1]

    @property
    def left(self) -> list[str]:
        return list(self._left)

    def again(self, left: Sequence[str]) -> None:
        """It is back where it was when these were `left`."""
        self._left = list(left)

    def steps_to(self, stage: str) -> int:
        return self._left.index(stage) if stage in self._left else NOT_NEEDED


class Journeys:
    """Those of all running queries."""

    def __init__(self) -> None:
        self._running: list[Journey] = []

    @contextmanager
    def of(self, stages: Sequence[str]) -> Iterator[Journey]:
        journey = Journey(stages)
        self._running.append(journey)
        try:
            yield journey
        finally:
            self._running.remove(journey)

    def next_use(self, stage: str) -> int:
        """In how many steps the first of them needs `stage`."""
        return min((journey.steps_to(stage) for journey in self._running), default=NOT_NEEDED)
