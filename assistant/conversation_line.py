"""Who may speak: one query of a conversation at a time, and as many with the LLM as it has slots. Imports `errors`.

Whoever has to wait does so in the order of arrival, until a deadline, and is then told that it is busy. Pure asyncio;
knows no query.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from assistant.errors import BusyNow

RETRY_MS = 1000
"""About as long as a short answer takes."""


@dataclass(slots=True)
class _Place:
    free: asyncio.Semaphore
    users: int = field(default=0)
    """Those inside and those who wait."""


class Line:
    """`async with line.turn("kitchen", 30):`; of one name `at_once` are inside at a time."""

    def __init__(self, at_once: int = 1) -> None:
        self._at_once = at_once
        self._places: dict[str, _Place] = {}

    def __len__(self) -> int:
        """Names that somebody uses or waits for."""
        return len(self._places)

    def is_free(self, name: str) -> bool:
        """Whether nobody would have to wait."""
        return name not in self._places or not self._places[name].free.locked()

    @asynccontextmanager
    async def turn(self, name: str, deadline_s: float, *, what: str) -> AsyncIterator[None]:
        """Raises `BusyNow` that says that `what` is in use, when no place is free within `deadline_s`."""
        place = self._places.setdefault(name, _Place(asyncio.Semaphore(self._at_once)))
        place.users += 1
        try:
            await _entered(place.free, deadline_s, what)
            try:
                yield
            finally:
                place.free.release()
        finally:
            place.users -= 1
            if not place.users:
                del self._places[name]


async def _entered(free: asyncio.Semaphore, deadline_s: float, what: str) -> None:
    try:
        async with asyncio.timeout(deadline_s):
            await free.acquire()
    except TimeoutError:
        raise BusyNow(
            f"{what} is answering somebody; this query waited for {deadline_s:g} s", retry_after_ms=RETRY_MS
        ) from None
