"""What a daemon's skills are given: a speaker whose level comes back, and a bell that is heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest

from assistant.audio.front_messages import FrontSettings, ToFront, Volume
from assistant.daemon_skills import UNMUTED, Loudness, SkillRoom
from assistant.query import Answer, Query
from assistant.voice import Voice
from assistant.voice_duck import Ducker
from assistant.voice_ring import Ring
from tests.voice.test_voice import ScriptedFront


class Loud(ScriptedFront):
    """Keeps the volume that it is told, as the real one does."""

    def send(self, packet: ToFront) -> None:
        super().send(packet)
        if isinstance(packet, Volume):
            self.settings = FrontSettings(volume_percent=packet.percent)


@asynccontextmanager
async def voice(events: list[tuple[str, dict[str, Any]]] | None = None) -> AsyncIterator[tuple[Voice, Loud]]:
    fronts: list[Loud] = []

    def front(take: Callable[..., None]) -> Any:
        fronts.append(Loud(take))
        return fronts[0]

    async def answer(query: Query) -> Answer:
        raise AssertionError("nothing is asked here")

    async def transcribe(pcm: bytes) -> str:
        return ""

    told = [] if events is None else events
    one = Voice(
        front=front, answer=answer, transcribe=transcribe, emit=lambda *event: told.append(event), ducker=Ducker()
    )
    await one.start()
    try:
        yield one, fronts[0]
    finally:
        await one.close()


def test_the_level_before_comes_back() -> None:
    async def test() -> None:
        events: list[tuple[str, dict[str, Any]]] = []
        async with voice(events) as (one, _):
            speaker = Loudness(one)
            speaker.set(70)
            speaker.mute()
            speaker.mute()
            assert (speaker.percent, speaker.muted) == (0, True)
            assert speaker.unmute() == 70
            assert not speaker.muted
            assert speaker.unmute() == 70  # there was nothing to undo
            told = [data["percent"] for name, data in events if name == "volume"]
            assert told == [70, 0, 70]

    asyncio.run(test())


def test_a_level_that_others_set_counts() -> None:
    async def test() -> None:
        async with voice() as (one, _):
            speaker = Loudness(one)
            speaker.mute()
            one.volume(30)  # `assistant volume 30`
            assert (speaker.percent, speaker.muted) == (30, False)
            speaker.mute()
            assert speaker.unmute() == 30
            one.volume(0)
            speaker.mute()
            assert not speaker.muted  # it is silent because somebody wants it so
            assert speaker.unmute() == UNMUTED

    asyncio.run(test())


@pytest.mark.parametrize(("muted", "percent"), [(True, 60.0), (False, 0.0)])
def test_what_rings_is_heard_where_the_sound_was_turned_off(muted: bool, percent: float) -> None:
    """A timer was asked for; a volume of 0 was, too."""

    async def test() -> None:
        async with voice() as (one, front):
            room = SkillRoom(emit=lambda *event: None, voice=lambda: one, daemon=True, language="en")
            one.volume(60)
            speaker = room.context(now=datetime(2026, 1, 1)).speaker
            assert speaker is not None
            speaker.mute() if muted else speaker.set(0)
            room.ring("1", Ring(lambda: "words", lambda: None))
            assert speaker.percent == percent
            await asyncio.sleep(0.05)
            assert front.cues() == ["timer"]
            room.unring("1")

    asyncio.run(test())


def test_a_process_that_is_no_daemon_has_lists_and_neither_timers_nor_a_speaker() -> None:
    room = SkillRoom(emit=lambda *event: None, voice=lambda: None, daemon=False, language="de")
    context = room.context(now=datetime(2026, 1, 1), said="hello")
    assert (context.timers, context.speaker) == (None, None)
    assert context.shopping is not None
    assert (context.said, context.language) == ("hello", "de")
    asyncio.run(room.open())
    asyncio.run(room.close())
