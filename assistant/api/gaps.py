"""Which events a subscriber missed, told from their numbers. Imports `wire_events`; pure."""

from __future__ import annotations

from collections.abc import Mapping

from assistant.api.wire_events import Published


class Gaps:
    """Of one daemon. Counts by name, so that it is right whatever one has subscribed to."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        """`counts`: what a `welcome` or a `snapshot` said, no earlier than all subscriptions counted."""
        self._counts = dict(counts)

    def before(self, event: Published) -> int:
        """How many events of its name were missed just before it."""
        known = self._counts.get(event.name, 0)
        self._counts[event.name] = max(known, event.nth)
        return max(0, event.nth - known - 1)
