"""What a query does before it is certain that its speaker has finished: kept back until it is, or never done.

Pure; knows no query. Imports `query` for the sink's type.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from assistant.query import AudioSink

Step = Callable[[], None]


class Gate:
    """Whatever somebody outside would notice goes through it, in order."""

    def __init__(self, *, opened: bool = False) -> None:
        self._kept: list[Step] = []
        self._opened = asyncio.Event()
        if opened:
            self._opened.set()

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    def do(self, step: Step) -> None:
        """Now, or when it opens."""
        if self.is_open:
            step()
        else:
            self._kept.append(step)

    def open(self) -> None:
        """Does what was kept back. Raises what a step raises; the steps behind it are not done then."""
        self._opened.set()
        kept, self._kept = self._kept, []
        for step in kept:
            step()

    async def passed(self) -> None:
        """Returns once it is open."""
        await self._opened.wait()


class GatedSink:
    """An `AudioSink` behind a gate: counts what it is given, and hands it on when the gate is open."""

    def __init__(self, sink: AudioSink, gate: Gate) -> None:
        self._sink, self._gate = sink, gate
        self._bytes = 0
        self.sample_rate = sink.sample_rate

    @property
    def seconds(self) -> float:
        return self._bytes / 2 / self.sample_rate if self.sample_rate else 0.0

    def write(self, pcm: bytes, sample_rate: int) -> None:
        """s16le mono. Raises what the sink raises, once the gate is open."""
        self.sample_rate = sample_rate
        self._bytes += len(pcm)
        self._gate.do(lambda: self._sink.write(pcm, sample_rate))
