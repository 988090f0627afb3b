"""A timer at the speaker: its sound, its words, and everything that ends it; over a scripted audio process."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from assistant.audio.front_messages import Attend, Device, Release, Silence, Woke
from assistant.errors import AssistantError, BusyNow, Cancelled, EngineFailed
from assistant.messages import Outcome
from assistant.query import Answer, Query
from assistant.voice_duck import Ducker
from assistant.voice_ring import WORDS_EVERY, Ring, Ringer
from tests.api.backend import report_of
from tests.voice.test_voice import WOKE, Scene, ScriptedFront, playing

BEAT_S = 0.01


class Ringing(Scene):
    """As its parent, with texts that are spoken."""

    def __init__(self) -> None:
        super().__init__()
        self.spoken: list[str] = []
        self.over: list[str] = []
        self.failing: AssistantError | None = None

    async def answer(self, query: Query) -> Answer:
        if not query.verbatim:
            return await super().answer(query)
        self.spoken.append(query.text or "")
        if self.failing is not None:
            return Answer(report_of(query, Outcome.FAILED, self.failing), self.failing)
        self.voice.follow("tts-start", {"query_id": query.id})
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(query.id)
            raise
        return Answer(report_of(query, Outcome.HANDLED, None), None)

    def ring(self, id: str, words: str = "Your pasta timer is done.") -> None:
        self.voice.ring(id, Ring(lambda: words, lambda: self.over.append(id)))

    def rings(self) -> int:
        """Times that the cue sounded."""
        return self.front.cues().count("timer")


def scene(**options: Any) -> AbstractAsyncContextManager[Ringing]:
    return playing(Ringing(), ring_beat_s=BEAT_S, **options)


async def silent(one: Ringing) -> None:
    """Nothing rings from here on."""
    before = one.rings()
    await asyncio.sleep(10 * BEAT_S)
    assert one.rings() == before


def test_it_rings_and_says_what_for_again_and_again() -> None:
    async def test() -> None:
        async with scene() as one:
            one.ring("1")
            await one.until(lambda: len(one.spoken) == 2)
            assert set(one.spoken) == {"Your pasta timer is done."}
            assert one.rings() >= WORDS_EVERY - 1
            assert not one.over

    asyncio.run(test())


def test_two_ring_together() -> None:
    async def test() -> None:
        async with scene() as one:
            one.ring("1", "Tea.")
            await one.until(lambda: one.spoken == ["Tea."])
            one.ring("2", "Eggs.")
            await one.until(lambda: one.spoken[-1] == "Tea. Eggs.")
            one.voice.unring("1")
            assert one.over == ["1"]
            rang = one.rings()
            await one.until(lambda: one.rings() > rang)
            one.voice.unring("2")
            assert one.over == ["1", "2"]
            await silent(one)

    asyncio.run(test())


def test_the_wake_word_ends_it_and_is_listened_to() -> None:
    async def test() -> None:
        async with scene() as one:
            one.ring("1")
            await one.until(lambda: one.rings() > 0)
            one.front.take(WOKE)
            assert one.over == ["1"]
            assert one.voice.state == "listening"
            one.speak()
            await one.idle()
            await silent(one)

    asyncio.run(test())


def test_a_stop_word_ends_it() -> None:
    async def test() -> None:
        async with scene() as one:
            one.ring("1")
            await one.until(lambda: one.rings() > 0)
            one.front.take(Woke(word="stop", phrase="stop", score=1, kind="stop"))
            assert one.over == ["1"]
            await silent(one)

    asyncio.run(test())


@pytest.mark.parametrize("words", ["Stop.", "Stop the timer!", "Turn it off.", "Okay, thanks."])
def test_somebody_who_says_so_ends_it(words: str) -> None:
    async def test() -> None:
        async with scene() as one:
            one.said = words
            one.ring("1")
            await one.until(lambda: any(isinstance(packet, Attend) for packet in one.front.sent))
            (order,) = [packet for packet in one.front.sent if isinstance(packet, Attend)]
            one.speak(order.session)
            await one.until(lambda: one.over == ["1"])
            await one.until(lambda: Release(session=order.session) in one.front.sent)
            await silent(one)

    asyncio.run(test())


def test_other_talk_in_the_room_does_not() -> None:
    async def test() -> None:
        async with scene() as one:
            one.said = "The pasta smells good."
            one.ring("1")
            await one.until(lambda: any(isinstance(packet, Attend) for packet in one.front.sent))
            (order,) = [packet for packet in one.front.sent if isinstance(packet, Attend)]
            one.speak(order.session)
            rang = one.rings()
            await one.until(lambda: one.rings() > rang + 3)
            assert not one.over

    asyncio.run(test())


def test_after_its_words_it_listens_again_and_at_its_end_no_more() -> None:
    async def test() -> None:
        async with scene() as one:
            one.ring("1")
            await one.until(lambda: len(one.spoken) == 1)
            await one.until(lambda: len([p for p in one.front.sent if isinstance(p, Attend)]) == 2)
            one.voice.stop()
            sessions = [packet.session for packet in one.front.sent if isinstance(packet, Attend)]
            async with asyncio.timeout(1):
                await one.until(lambda: all(Release(session=session) in one.front.sent for session in sessions))

    asyncio.run(test())


def test_a_cancel_ends_it_and_says_what_it_was() -> None:
    async def test() -> None:
        async with scene() as one:
            one.ring("7")
            await one.until(lambda: one.rings() > 0)
            assert one.voice.stop("another") == ()
            assert one.voice.stop() == ("timer-7",)
            assert isinstance(one.front.sent[-1], Silence) or Silence(run="ring") in one.front.sent
            assert one.over == ["7"]
            assert one.voice.stop() == ()
            await silent(one)

    asyncio.run(test())


def test_a_cancel_while_its_words_are_spoken_ends_both() -> None:
    async def test() -> None:
        async with scene() as one:
            one.go.clear()
            one.ring("7")
            await one.until(lambda: bool(one.spoken))
            ended = one.voice.stop()
            assert ended[1:] == ("timer-7",)
            await one.until(lambda: one.cancelled == [ended[0]])
            await silent(one)

    asyncio.run(test())


def test_it_waits_for_the_end_of_a_conversation() -> None:
    async def test() -> None:
        async with scene() as one:
            one.go.clear()
            one.front.take(WOKE)
            one.speak()
            await one.until(lambda: one.voice.state == "processing")
            one.ring("1")
            await silent(one)
            assert one.rings() == 0
            one.go.set()
            await one.until(lambda: one.rings() > 0)
            assert not one.over

    asyncio.run(test())


def test_an_announcement_goes_first_and_nothing_sounds_over_it() -> None:
    async def test() -> None:
        async with scene() as one:
            one.ring("1")
            await one.until(lambda: one.rings() > 0)
            one.go.clear()
            saying = asyncio.create_task(one.voice.say("Dinner is ready."))
            await one.until(lambda: "Dinner is ready." in one.spoken)
            await silent(one)
            one.go.set()
            await saying
            rang = one.rings()
            await one.until(lambda: one.rings() > rang)

    asyncio.run(test())


def test_without_words_it_rings_all_the_same() -> None:
    async def test() -> None:
        async with scene() as one:
            one.failing = EngineFailed("the voice is broken")
            one.ring("1")
            await one.until(lambda: one.rings() > 2 * WORDS_EVERY)
            assert len(one.spoken) == 1
            assert not one.over

    asyncio.run(test())


def test_a_speaker_that_is_lost_is_waited_for() -> None:
    async def test() -> None:
        async with scene() as one:
            one.front.take(Device(kind="output", state="lost", message="gone"))
            one.ring("1")
            await silent(one)
            assert (one.rings(), one.over) == (0, [])
            one.front.take(Device(kind="output", state="ok", name="s", sample_rate=48_000, channels=1))
            await one.until(lambda: one.rings() > 0)

    asyncio.run(test())


def test_the_end_of_the_daemon_is_no_end_of_the_ring() -> None:
    async def test() -> None:
        async with scene() as one:
            one.ring("1")
            await one.until(lambda: one.rings() > 0)
        assert one.over == []
        await silent(one)

    asyncio.run(test())


def test_others_are_quiet_from_the_first_sound_to_the_last(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ducker = Ducker(("sh", "-c", f"echo duck >> {log}"), ("sh", "-c", f"echo unduck >> {log}"))

    def ducked() -> list[str]:
        return log.read_text().split() if log.exists() else []

    async def test() -> None:
        async with scene(ducker=ducker) as one:
            one.ring("1")
            await one.until(lambda: len(one.spoken) == 2)
            assert ducked() == ["duck"]
            one.voice.stop()
            await one.until(lambda: ducked() == ["duck", "unduck"])

    asyncio.run(test())


# --- the ringer alone -----------------------------------------------------------------------------------------------
def test_it_ends_by_itself_when_nobody_does() -> None:
    async def test() -> None:
        async with scene(clock=lambda: now[0]) as one:
            one.ring("1")
            await one.until(lambda: one.rings() > 2)
            now[0] += 899
            rang = one.rings()
            await one.until(lambda: one.rings() > rang)
            now[0] += 2
            await one.until(lambda: one.over == ["1"])
            await silent(one)

    now = [100.0]
    asyncio.run(test())


@pytest.mark.parametrize(("error", "over"), [(BusyNow("busy"), False), (Cancelled("stopped"), True)])
def test_words_that_could_not_be_said(error: AssistantError, over: bool) -> None:
    async def test() -> None:
        one, ended = Ringing(), []

        async def say(text: str) -> Answer:
            raise error

        one.front = ScriptedFront(lambda packet: None)
        async with scene() as helper:
            ringer = Ringer(
                send=one.front.send, say=say, busy=lambda: False, lost=lambda: False, stops=helper.voice._stops,
                ducker=Ducker(), beat_s=BEAT_S,
            )  # fmt: skip
            ringer.ring("1", Ring(lambda: "words", lambda: ended.append("1")))
            await asyncio.sleep(6 * BEAT_S)
            assert ringer.ringing is not over
            assert ended == (["1"] if over else [])
            await ringer.close()

    asyncio.run(test())
