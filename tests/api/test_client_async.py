"""The asynchronous client over real sockets: many things at a time, leaving early, daemons that go."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from assistant.api import sockets, wire
from assistant.api.async_client import AsyncClient
from assistant.api.client import NOT_ANSWERING, Client
from assistant.api.feed import Feed
from assistant.errors import BusyNow, ConfigError, EngineFailed, MemoryRefused, NotRunning, UsageError
from assistant.messages import Stage
from tests.api.backend import Backend, SpeakingVoice, served
from tests.api.talking import serve


async def report(client: AsyncClient, *args: Any, **more: Any) -> wire.Report:
    last = [reply async for reply, _ in client.ask(*args, **more)][-1]
    assert isinstance(last, wire.Report)
    return last


def test_replies_come_as_they_are_told(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        async with AsyncClient(folder) as client:
            kinds, sound = [], b""
            async for reply, pcm in client.ask("hello", speech=True):
                kinds.append(type(reply).__name__)
                sound += pcm
            assert kinds[0] == "Accepted"
            assert kinds[-1] == "Report"
            assert {"Started", "Event", "Audio"} <= set(kinds)
            assert sound == b"one " * 100 + b"two" * 100
            assert (await report(client, pcm=bytes(3200))).reply == "one two"
        assert backend.heard == [bytes(3200)]

    serve(folder, scenario)


def test_several_queries_and_questions_at_a_time_each_get_their_own(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        async with AsyncClient(folder) as client:
            asked = [asyncio.create_task(report(client, text)) for text in ("wait 1", "wait 2", "wait 3")]
            while (await client.status()).queries < 1:
                await asyncio.sleep(0.01)
            pongs = await asyncio.gather(*(client.ping() for _ in range(20)))
            assert len({pong.pid for pong in pongs}) == 1
            loaded = await asyncio.gather(client.load(Stage.LLM, -1), client.load(Stage.INTENT))
            assert [one.stage for one in loaded] == [Stage.LLM, Stage.INTENT]
            assert (await client.unload(Stage.LLM)).unloaded
            assert not any(task.done() for task in asked)
            backend.go.set()
            reports = await asyncio.gather(*asked)
            assert [one.transcript for one in reports] == ["wait 1", "wait 2", "wait 3"]

    serve(folder, scenario)


def test_orders_of_the_voice_and_looks_at_the_state(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        backend.speaking = SpeakingVoice()
        async with AsyncClient(folder) as client:
            assert (await client.listen()).words == ("hey_jarvis",)
            assert (await client.volume(30)).volume_percent == 30
            assert (await client.mute(True)).muted
            assert (await client.say("dinner")).outcome == "handled"
            with pytest.raises(BusyNow) as caught:
                await client.say("busy")
            assert caught.value.retry_after_ms == 5
            with pytest.raises(MemoryRefused, match="too large"):
                await client.load(Stage.TTS)
            assert (await client.ps()).memory.budget_mib == 9
            assert (await client.snapshot()).seq >= 0
            assert await client.cancel() == ()
        assert backend.speaking.orders == ["listen", "dinner"]

    serve(folder, scenario)


@pytest.mark.parametrize("after", ["Accepted", "Started"])
def test_whoever_stops_following_ends_the_query(folder: Path, after: str) -> None:
    async def scenario(backend: Backend) -> None:
        async with AsyncClient(folder) as client:
            replies = client.ask("wait")
            async for reply, _ in replies:
                if type(reply).__name__ == after:
                    break
            await replies.aclose()  # type: ignore[attr-defined]
            async with asyncio.timeout(3):
                while backend.cancelled != ["wait"]:
                    await asyncio.sleep(0.01)
            assert (await report(client, "and now")).reply == "one two"

    serve(folder, scenario)


def test_a_task_that_is_cancelled_before_the_query_is_accepted_ends_it_too(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        async with AsyncClient(folder) as client:
            await client.ping()
            for delay_s in (0, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.006, 0.01):
                asked = asyncio.create_task(report(client, "wait"))
                await asyncio.sleep(delay_s)
                asked.cancel()
                await asyncio.gather(asked, return_exceptions=True)
            async with asyncio.timeout(3):  # nothing is left in the line
                assert (await report(client, "and now")).reply == "one two"
        assert backend.order.count("wait") == len(backend.cancelled)

    serve(folder, scenario)


def test_what_is_refused_is_raised_as_it_was(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        async with AsyncClient(folder) as client:
            with pytest.raises(UsageError) as caught:
                await report(client, "hello", urgency="later")
            assert caught.value.code == "bad-urgency"
            with pytest.raises(UsageError):
                await report(client)
            assert backend.order == []

    serve(folder, scenario)


def test_sound_that_is_sent_while_it_is_spoken_reaches_the_query_and_its_end_too(folder: Path) -> None:
    async def speech() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield bytes(3200)
            await asyncio.sleep(0.01)

    async def scenario(backend: Backend) -> None:
        async with AsyncClient(folder) as client:
            assert (await report(client, sound=speech(), endpointing=False)).outcome == "answered"
            assert (await report(client, "and now")).outcome == "answered"
        assert backend.order == ["", "and now"]

    serve(folder, scenario)


def test_a_microphone_that_fails_is_told(folder: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield bytes(3200)
        raise OSError("unplugged")

    async def scenario(backend: Backend) -> None:
        async with AsyncClient(folder) as client:
            with pytest.raises(OSError, match="unplugged"):
                await report(client, sound=broken())
        assert backend.order == [""]

    serve(folder, scenario)


def test_events_are_those_after_the_call_under_the_names_that_were_asked_for(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        del backend
        async with AsyncClient(folder) as client:
            events = await client.events("run-", "reply-delta")
            await report(client, "hello")
            seen = [await asyncio.wait_for(anext(events), 3) for _ in range(4)]
            assert [event.name for event in seen] == ["run-start", "reply-delta", "reply-delta", "run-end"]
            assert [event.nth for event in seen] == [1, 1, 2, 1]

    serve(folder, scenario)


def test_the_blocking_client_hears_the_same_events(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        del backend

        def follow() -> list[str]:
            with Client(folder) as client:
                events = client.events("run-")
                list(client.replies(client.ask(wire.Ask(text="hello"))))
                return [next(events).name, next(events).name]

        assert await asyncio.to_thread(follow) == ["run-start", "run-end"]

    serve(folder, scenario)


def test_the_blocking_client_carries_out_intents(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        del backend

        def register() -> tuple[str, ...]:
            with Client(folder) as client:
                told = next(iter(client.handle(["HassTurnOn"], {"name": ["lamp"]})))
                with pytest.raises(UsageError):
                    client.answer_intent("nobody's", "Done")
                return tuple(told.intents)

        assert await asyncio.to_thread(register) == ("HassTurnOn",)

    serve(folder, scenario)


def test_without_a_daemon_nobody_is_found(folder: Path) -> None:
    async def test() -> None:
        with pytest.raises(NotRunning, match="assistant run"):
            async with AsyncClient(folder):
                pass
        async with served(folder):
            folder.chmod(0o777)
            with pytest.raises(ConfigError):
                async with AsyncClient(folder):
                    pass
            folder.chmod(0o700)

    asyncio.run(test())


def test_a_daemon_that_does_not_answer_is_told_from_none(folder: Path) -> None:
    folder.mkdir(mode=0o700)

    async def test() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mute:
            mute.bind(str(folder / sockets.CONTROL))
            mute.listen(5)
            started = time.monotonic()
            async with AsyncClient(folder) as client:
                with pytest.raises(NotRunning, match="did not answer") as caught:
                    await client.ping(0.2)
            assert caught.value.code == NOT_ANSWERING
            assert time.monotonic() - started < 2

    asyncio.run(test())


def test_a_daemon_that_goes_ends_what_waits_for_it_with_a_typed_error(folder: Path) -> None:
    async def test() -> None:
        async with AsyncClientAfterwards(folder) as client:
            with pytest.raises(NotRunning):
                await anext(client.events_of)
            with pytest.raises(NotRunning):
                await client.inner.ping(3)
            with pytest.raises(NotRunning):
                await anext(client.intents)

    asyncio.run(test())


class AsyncClientAfterwards:
    """A client that follows events and has registered an intent, of a daemon that has gone since."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def __aenter__(self) -> AsyncClientAfterwards:
        async with served(self._folder):
            self.inner = AsyncClient(self._folder)
            await self.inner.__aenter__()
            self.events_of = await self.inner.events("muted")
            self.intents = self.inner.handle(["HassTurnOn"])
            assert isinstance(await anext(self.intents), wire.Registered)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.inner.__aexit__(None, None, None)


def test_events_of_a_daemon_that_was_restarted_are_an_error() -> None:
    feed = Feed(["run-"])
    welcome = b'{"v":1,"id":"1","type":"welcome","data":{"version":"0","pid":%d,"seq":0,"counts":{}}}'
    assert feed.take([b"welcome", welcome % 7]) is None
    assert feed.take([b"welcome", welcome % 7]) is None
    assert feed.pid == 7
    with pytest.raises(NotRunning, match="restarted"):
        feed.take([b"welcome", welcome % 8])
    with pytest.raises(EngineFailed, match="another version"):
        feed.take([b"run-start", b"{}"])


def test_a_client_that_is_closed_says_so_also_to_those_who_wait(folder: Path) -> None:
    async def scenario(backend: Backend) -> None:
        async with AsyncClient(folder) as client:
            waiting = asyncio.create_task(report(client, "wait"))
            following = await client.events("mute")
            event = asyncio.ensure_future(anext(following))
            while not backend.order:
                await asyncio.sleep(0.01)
        for what in (waiting, event, client.status(), client.events(), report(client, "hello")):
            with pytest.raises(UsageError) as caught:
                await asyncio.wait_for(what, 3)
            assert caught.value.code == "client-closed"

    serve(folder, scenario)


def test_whoever_stops_waiting_for_events_leaves_no_socket_behind(folder: Path) -> None:
    """At a daemon that has its sockets open and says nothing."""
    with contextlib.ExitStack() as stack:
        sockets.prepared(folder)
        for name in (sockets.CONTROL, sockets.EVENTS):
            listening = stack.enter_context(socket.socket(socket.AF_UNIX))
            listening.bind(str(folder / name))
            listening.listen(100)

        async def run() -> None:
            async with AsyncClient(folder) as client:
                counts = []
                for _ in range(20):
                    waiting = asyncio.ensure_future(client.events())
                    await asyncio.sleep(0.02)
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting
                    await asyncio.sleep(0.02)
                    counts.append(len(os.listdir("/proc/self/fd")))
                assert counts[-1] - counts[4] < 8  # a socket has two of them

        asyncio.run(run())
