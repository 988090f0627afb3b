"""Who is heard, answered, interrupted: the voice over a scripted audio process and scripted answers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.audio.front_messages import (
    Attend,
    Beat,
    Cue,
    Device,
    FromFront,
    FrontSettings,
    GoOn,
    Mute,
    Played,
    PlayEnd,
    Ready,
    Release,
    Silence,
    Sound,
    Spoke,
    ToFront,
    Woke,
)
from assistant.errors import AssistantError, DeviceError, EngineFailed, NoSpeech, UsageError
from assistant.messages import Outcome
from assistant.query import Answer, Query
from assistant.voice import Voice
from assistant.voice_duck import Ducker
from assistant.voice_stop import LONGEST_S
from tests.api.backend import report_of

WOKE = Woke(word="hey_jarvis", phrase="hey jarvis", score=0.99, kind="wake", session=2)


class ScriptedFront:
    """Notes what it is sent, and plays at once whatever it is told to play."""

    pid, restarts = 1, 0

    def __init__(self, take: Callable[[FromFront], None]) -> None:
        self.take = take
        self.sent: list[ToFront] = []
        self.settings = FrontSettings()
        self.plays = True

    async def start(self) -> None:
        self.take(Ready(words=("hey_jarvis",), stop_words=("stop",)))
        self.take(Device(kind="input", state="ok", name="m", sample_rate=48_000, channels=1))

    async def close(self) -> None:
        pass

    def send(self, packet: ToFront) -> None:
        self.sent.append(packet)
        if isinstance(packet, PlayEnd) and self.plays:
            asyncio.get_running_loop().call_soon(self.take, Played(run=packet.run, seconds=1, ended=True))
        if isinstance(packet, Mute):
            self.settings = FrontSettings(muted=packet.on)

    def cues(self) -> list[str]:
        return [packet.name for packet in self.sent if isinstance(packet, Cue)]


class Scene:
    """A voice, its front, its events, and queries that do what `script` says."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.queries: list[Query] = []
        self.heard: list[bytes] = []
        self.cancelled: list[str] = []
        self.said = ""
        """What an utterance aside is recognised as."""
        self.error: AssistantError | Exception | None = None
        self.asks_back = 0
        """So many of the answers end with a question."""
        self.go = asyncio.Event()
        self.go.set()
        self.voice: Voice
        self.front: ScriptedFront

    def states(self) -> list[str]:
        return [data["state"] for name, data in self.events if name == "state"]

    async def answer(self, query: Query) -> Answer:
        self.queries.append(query)
        assert query.live is not None
        try:
            sound = b""
            async for event in query.live.events():
                sound += event.pcm
                if event.what == "end":
                    break
            self.heard.append(sound)
            if isinstance(self.error, AssistantError):
                return Answer(report_of(query, Outcome.FAILED, self.error), self.error)
            if self.error is not None:
                raise self.error
            self.voice.follow("stt-end", {"query_id": query.id})
            await self.go.wait()
            self.voice.follow("tts-start", {"query_id": query.id})
            assert query.sink is not None
            query.sink.write(bytes(2000), 22_050)
            await query.sink.finished()  # type: ignore[attr-defined]
        except asyncio.CancelledError:
            self.cancelled.append(query.id)
            raise
        except DeviceError as error:
            return Answer(report_of(query, Outcome.FAILED, error), error)
        return Answer(report_of(query, Outcome.ANSWERED, None), None, len(self.queries) <= self.asks_back)

    async def transcribe(self, pcm: bytes) -> str:
        return self.said

    def speak(self, session: int = 2, *, seconds: float = 1.0) -> None:
        self.front.take(Sound(session=session, pcm=b"pre"))
        self.front.take(Spoke(session=session, what="speech"))
        self.front.take(Sound(session=session, pcm=b"roll"))
        self.front.take(Spoke(session=session, what="end", speech_s=seconds, silence_s=0.7))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.001)

    async def idle(self) -> None:
        await self.until(lambda: self.voice.state == "idle")


S = TypeVar("S", bound=Scene)


def scene(**options: Any) -> AbstractAsyncContextManager[Scene]:
    return playing(Scene(), **options)


@contextlib.asynccontextmanager
async def playing(one: S, **options: Any) -> AsyncIterator[S]:
    """`options`: of its voice."""

    def front(take: Callable[[FromFront], None]) -> Any:
        one.front = ScriptedFront(take)
        return one.front

    one.voice = Voice(
        front=front,
        answer=one.answer,
        transcribe=one.transcribe,
        emit=lambda name, data: one.events.append((name, data)),
        **{"ducker": Ducker((), ()), **options},
    )
    await one.voice.start()
    try:
        yield one
    finally:
        one.go.set()
        await one.voice.close()


def test_a_question_goes_through_all_states_and_back_to_idle() -> None:
    async def test() -> None:
        async with scene() as one:
            one.front.take(WOKE)
            assert one.voice.state == "listening"
            one.speak()
            await one.until(lambda: bool(one.queries))
            await one.idle()
            assert one.states() == ["listening", "processing", "responding", "idle"]
            assert one.heard == [b"preroll"], "every sample, in order"
            assert one.queries[0].conversation == "voice"
            assert one.queries[0].live is not None
            assert one.queries[0].live.wake_phrase == "hey jarvis"
            assert one.front.cues() == [], "who goes on in one breath and is answered at once needs no sound"
            assert Release(session=2) in one.front.sent
            assert one.voice.status().wakes == 1

    asyncio.run(test())


def test_who_is_asked_back_answers_without_a_wake_word() -> None:
    async def test() -> None:
        async with scene() as one:
            one.asks_back = 1
            one.front.take(WOKE)
            one.speak()
            await one.until(lambda: len(one.queries) == 2)
            asked = [packet.session for packet in one.front.sent if isinstance(packet, Attend)]
            one.speak(asked[-1])
            await one.until(lambda: len(one.heard) == 2)
            await one.idle()
            assert len(one.queries) == 2, "it asked once"
            assert one.voice.status().wakes == 1
            assert one.states().count("listening") == 2

    asyncio.run(test())


def test_nobody_is_listened_to_after_a_question_while_it_is_muted() -> None:
    async def test() -> None:
        async with scene() as one:
            one.asks_back = 1
            one.front.take(WOKE)
            one.voice.mute(True)
            one.speak()
            await one.until(lambda: len(one.heard) == 1)
            await one.idle()
            await asyncio.sleep(0.05)
            assert len(one.queries) == 1

    asyncio.run(test())


def test_who_waits_after_the_wake_word_hears_that_it_listens() -> None:
    async def test() -> None:
        async with scene() as one:
            one.front.take(WOKE)
            await one.until(lambda: one.front.cues() == ["awake"])
            one.speak()
            await one.idle()
            assert one.front.cues() == ["awake"]

    asyncio.run(test())


def test_who_waits_for_the_answer_hears_that_it_thinks() -> None:
    async def test() -> None:
        async with scene(thinking_after_s=0.02) as one:
            one.go.clear()
            one.front.take(WOKE)
            one.speak()
            await one.until(lambda: one.front.cues() == ["thinking"])
            one.go.set()
            await one.idle()
            assert one.front.cues() == ["thinking"]

    asyncio.run(test())


def test_a_second_wake_word_ends_the_answer_and_begins_anew() -> None:
    async def test() -> None:
        async with scene() as one:
            one.front.plays = False  # it speaks on and on
            one.front.take(WOKE)
            one.speak()
            await one.until(lambda: one.voice.state == "responding")
            first = one.queries[0].id
            one.front.take(Woke(word="okay_nabu", phrase="okay nabu", score=1, kind="wake", session=4))
            assert one.voice.state == "listening"
            assert Silence(run=first) in one.front.sent, "at once, not when the old query has been put away"
            one.speak(4)
            await one.until(lambda: len(one.queries) == 2)
            assert one.cancelled == [first]
            one.front.plays = True
            one.front.take(Played(run=one.queries[1].id, seconds=1, ended=True))
            await one.idle()
            assert one.heard == [b"preroll", b"preroll"]
            assert one.voice.status().interruptions == 1

    asyncio.run(test())


def test_two_wake_words_in_a_row_are_one_question() -> None:
    async def test() -> None:
        async with scene() as one:
            one.front.take(WOKE)
            one.front.take(Woke(word="hey_jarvis", phrase="hey jarvis", score=1, kind="wake", session=4))
            one.speak(2)  # what still comes of the old session is nobody's
            one.speak(4)
            await one.until(lambda: len(one.heard) == 1)
            await one.idle()
            assert one.queries[-1].live is not None
            assert one.heard == [b"preroll"]

    asyncio.run(test())


@pytest.mark.parametrize("while_", ["listening", "processing", "responding"])
def test_a_stop_word_ends_everything_in_silence(while_: str) -> None:
    async def test() -> None:
        async with scene() as one:
            one.front.plays = False
            if while_ == "processing":
                one.go.clear()
            one.front.take(WOKE)
            if while_ != "listening":
                one.speak()
            await one.until(lambda: one.voice.state == while_ and bool(one.queries))
            one.front.take(Woke(word="stop", phrase="stop", score=1, kind="stop"))
            assert one.voice.state == "idle"
            await one.until(lambda: bool(one.cancelled))
            await asyncio.sleep(0.01)
            assert one.states()[-1] == "idle"
            assert one.front.cues() == []
            assert len(one.queries) == 1

    asyncio.run(test())


@pytest.mark.parametrize(("said", "stops"), [("Stop!", True), ("stop the music later", False), ("", False)])
def test_stop_without_a_model_for_the_word_is_recognised_aside(said: str, stops: bool) -> None:
    async def test() -> None:
        async with scene() as one:
            one.front.plays = False
            one.said = said
            one.front.take(WOKE)
            one.speak()
            await one.until(lambda: one.voice.state == "responding")
            attends = [packet for packet in one.front.sent if isinstance(packet, Attend)]
            assert len(attends) == 1
            one.speak(attends[0].session, seconds=0.4)
            if stops:
                await one.idle()
            else:
                await asyncio.sleep(0.02)
                assert one.voice.state == "responding"

    asyncio.run(test())


def test_stop_is_heard_after_somebody_has_talked_for_long() -> None:
    async def test() -> None:
        async with scene() as one:
            one.front.plays = False
            one.said = "stop"
            one.front.take(WOKE)
            one.speak()
            await one.until(lambda: one.voice.state == "responding")
            (aside,) = [packet for packet in one.front.sent if isinstance(packet, Attend)]
            one.speak(aside.session, seconds=LONGEST_S + 1)  # nobody takes so long to say it
            await one.until(lambda: GoOn(session=aside.session) in one.front.sent)
            assert one.voice.state == "responding"
            one.speak(aside.session, seconds=0.4)
            await one.idle()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("error", "cue", "unheard"),
    [
        (NoSpeech("nothing"), "done", 1),
        (EngineFailed("broken"), "error", 0),
        (RuntimeError("a mistake of ours"), "error", 0),
    ],
)
def test_a_query_that_fails_is_heard_to_fail_and_the_next_one_works(error: Exception, cue: str, unheard: int) -> None:
    async def test() -> None:
        async with scene() as one:
            one.error = error
            one.front.take(WOKE)
            one.speak()
            await one.until(lambda: bool(one.front.cues()))
            await one.idle()
            assert one.front.cues() == [cue]
            assert one.voice.status().unheard == unheard
            one.error = None
            one.front.take(Woke(word="hey_jarvis", phrase="hey jarvis", score=1, kind="wake", session=4))
            one.speak(4)
            await one.until(lambda: one.states()[-2:] == ["responding", "idle"])

    asyncio.run(test())


def test_a_microphone_that_is_lost_ends_the_listening_and_is_told_once() -> None:
    async def test() -> None:
        async with scene() as one:
            one.front.take(WOKE)
            for _ in range(2):
                one.front.take(Device(kind="input", state="lost", message="unplugged"))
            await one.idle()
            assert [name for name, _ in one.events if name.startswith("audio-device")] == ["audio-device-lost"]
            with pytest.raises(DeviceError, match="unplugged"):
                one.voice.listen()
            one.front.take(Device(kind="input", state="ok", name="m"))
            assert one.events[-1][0] == "audio-device-restored"
            one.voice.listen()
            assert one.voice.state == "listening"
            assert one.voice.status().devices_lost == 1

    asyncio.run(test())


def test_nobody_listens_while_it_is_muted() -> None:
    async def test() -> None:
        async with scene() as one:
            one.voice.mute(True)
            with pytest.raises(UsageError, match="muted"):
                one.voice.listen()
            one.voice.mute(False)
            one.voice.listen()
            (attend,) = [packet for packet in one.front.sent if isinstance(packet, Attend)]
            assert attend.session % 2 == 1
            one.speak(attend.session)
            await one.until(lambda: one.states()[-2:] == ["responding", "idle"])

    asyncio.run(test())


@pytest.mark.parametrize("stuck", ["listening", "processing", "responding"])
def test_what_is_lost_on_the_way_does_not_leave_it_stuck(stuck: str) -> None:
    async def test() -> None:
        deadlines = {state: 0.05 for state in ("listening", "processing", "responding")}
        async with scene(deadlines_s=deadlines) as one:
            one.front.plays = False
            if stuck == "processing":
                one.go.clear()
            one.front.take(WOKE)
            if stuck != "listening":
                one.speak()
            await one.until(lambda: stuck in one.states())
            await one.idle()
            await one.until(lambda: bool(one.cancelled))

    asyncio.run(test())


def test_a_cancel_names_the_query_that_it_means() -> None:
    async def test() -> None:
        async with scene() as one:
            assert one.voice.stop() == ()
            one.front.take(WOKE)
            await one.until(lambda: bool(one.queries))
            assert one.voice.stop("another") == ()
            assert one.voice.stop(one.queries[0].id) == (one.queries[0].id,)
            await one.idle()

    asyncio.run(test())


PACKETS: list[Callable[[], FromFront]] = [
    lambda: Woke(word="w", phrase="w w", score=1, kind="wake", session=2 * random.randint(1, 3)),
    lambda: Woke(word="s", phrase="s", score=1, kind="stop"),
    lambda: Sound(session=random.randint(1, 6), pcm=bytes(100)),
    lambda: Spoke(session=random.randint(1, 6), what="speech"),
    lambda: Spoke(session=random.randint(1, 6), what="pause"),
    lambda: Spoke(session=random.randint(1, 6), what="end", speech_s=random.choice([0, 0.3, 5]), silence_s=0.7),
    lambda: Device(kind="input", state=random.choice(["ok", "lost", "off"])),
    lambda: Device(kind="output", state=random.choice(["ok", "lost"])),
    lambda: Played(run="somebody else's", seconds=1, ended=True),
    lambda: Beat(captured_s=1, overflows=1, underruns=1, reopened=1),
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, len(PACKETS) - 1), max_size=40), st.randoms())
def test_whatever_comes_in_whatever_order_it_comes_back_to_idle(order: list[int], chance: random.Random) -> None:
    async def test() -> None:
        random.seed(chance.random())
        deadlines = {state: 0.02 for state in ("listening", "processing", "responding")}
        async with scene(deadlines_s=deadlines, thinking_after_s=0.001) as one:
            for index in order:
                one.front.take(PACKETS[index]())
                if chance.random() < 0.3:
                    await asyncio.sleep(0)
            await one.idle()
            await one.until(lambda: len([q for q in one.queries]) >= 0 and one.voice.stop() == ())
            one.front.take(Device(kind="input", state="ok"))
            before = len(one.heard)
            one.front.take(Woke(word="w", phrase="w w", score=1, kind="wake", session=100))
            one.speak(100)
            await one.until(lambda: len(one.heard) > before)

    asyncio.run(test())
