"""What the skills of a daemon are given: its timers, its lists, its speaker. Part of the composition root."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assistant import paths
from assistant.daemon_timers import Timers
from assistant.messages import Emit
from assistant.skills import Context
from assistant.skills.shopping import FileList
from assistant.voice import Voice
from assistant.voice_ring import Ring

UNMUTED = 50.0
"""Percent, where nobody knows how loud it was."""


class Loudness:
    """A `skills.Speaker`: the volume of a voice, which others may set as well."""

    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self._before: float | None = None

    @property
    def percent(self) -> float:
        return self._voice.status().volume_percent

    @property
    def muted(self) -> bool:
        return self._before is not None and not self.percent

    def set(self, percent: float) -> None:
        self._before = None
        self._voice.volume(percent)

    def mute(self) -> None:
        if not self.muted:
            self._before = self.percent or None
            self._voice.volume(0)

    def unmute(self) -> float:
        if not self.percent:
            self.set(self._before or UNMUTED)
        return self.percent


class SkillRoom:
    """`context(**what the query has)` is what a skill gets."""

    def __init__(self, *, emit: Emit, voice: Callable[[], Voice | None], daemon: bool, language: str) -> None:
        """`voice`: None = without a speaker. A process that is no daemon has no timers: it would not live to ring."""
        self._voice, self._language = voice, language
        self._loudness: Loudness | None = None
        self.timers = Timers(paths.state_dir() / "timers.json", emit=emit, bell=self._bell) if daemon else None
        self._shopping = FileList(paths.state_dir() / "shopping.json")

    def context(self, **of_query: Any) -> Context:
        return Context(
            timers=self.timers,
            shopping=self._shopping,
            speaker=self._speaker(),
            language=self._language,
            **of_query,
        )

    def _speaker(self) -> Loudness | None:
        voice = self._voice()
        if voice is not None and self._loudness is None:
            self._loudness = Loudness(voice)
        return self._loudness

    def _bell(self) -> SkillRoom | None:
        return self if self._voice() is not None else None

    # --- a bell for the timers --------------------------------------------------------------------------------------
    def ring(self, id: str, ring: Ring) -> None:
        """A timer was asked for, so it is heard where the sound was turned off."""
        speaker, voice = self._speaker(), self._voice()
        if speaker is not None and speaker.muted:
            speaker.unmute()
        if voice is not None:
            voice.ring(id, ring)

    def unring(self, id: str) -> None:
        if (voice := self._voice()) is not None:
            voice.unring(id)

    async def open(self) -> None:
        if self.timers is not None:
            await self.timers.open()

    async def close(self) -> None:
        if self.timers is not None:
            await self.timers.close()
