"""The command `timers`, with real sockets: what it lists and does, and who may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assistant.api import rights, wire
from assistant.api.async_client import AsyncClient
from assistant.api.client import Client
from assistant.api.rights import Right
from assistant.errors import UsageError
from assistant.messages_timers import TimerChange, TimerStatus
from tests.api.backend import served
from tests.skills.world import Book


class Kept(Book):
    """A book that the sockets may change."""

    def act(self, action: TimerChange, id: str) -> None:
        if id not in {timer.id for timer in self.all()}:
            raise UsageError(f"there is no timer {id!r}", code="timer-unknown")
        (self.book.remove if action == "cancel" else getattr(self.book, action))(id)


def with_client(tmp_path: Path, ask: Callable[[Client], Any], timers: Kept | None) -> Any:
    async def test() -> Any:
        async with served(tmp_path) as backend:
            backend.timers = timers

            def in_thread() -> Any:
                with Client(tmp_path) as client:
                    return ask(client)

            return await asyncio.to_thread(in_thread)

    return asyncio.run(test())


@pytest.fixture
def timers() -> Kept:
    one = Kept()
    one.book.start("pasta", 600)
    one.book.start("", 60)
    return one


def test_they_are_listed_the_nearest_first(tmp_path: Path, timers: Kept) -> None:
    assert with_client(tmp_path, lambda client: client.timers(), timers) == (
        TimerStatus(id="2", name="", total_s=60, left_s=60, state="running"),
        TimerStatus(id="1", name="pasta", total_s=600, left_s=600, state="running"),
    )
    assert with_client(tmp_path, lambda client: client.timers(), Kept()) == ()


def test_what_is_done_to_one_is_seen_in_the_reply(tmp_path: Path, timers: Kept) -> None:
    def ask(client: Client) -> list[list[tuple[str, str]]]:
        seen = [client.timers("pause", "1"), client.timers("resume", "1"), client.timers("cancel", "2")]
        return [[(timer.id, timer.state) for timer in reply] for reply in seen]

    assert with_client(tmp_path, ask, timers) == [
        [("2", "running"), ("1", "paused")],
        [("2", "running"), ("1", "running")],
        [("1", "running")],
    ]


def test_an_asynchronous_client_may_ask_as_well(tmp_path: Path, timers: Kept) -> None:
    async def test() -> None:
        async with served(tmp_path) as backend:
            backend.timers = timers
            async with AsyncClient(tmp_path) as client:
                assert [timer.id for timer in await client.timers("cancel", "1")] == ["2"]

    asyncio.run(test())


def test_what_cannot_be_done_is_told(tmp_path: Path, timers: Kept) -> None:
    def ask(client: Client) -> None:
        with pytest.raises(UsageError) as caught:
            client.timers("cancel", "77")
        assert (caught.value.code, caught.value.exit_code) == ("timer-unknown", 2)
        with pytest.raises(UsageError, match="needs the `id`"):
            client.timers("pause")
        with pytest.raises(UsageError):
            client.timers("explode", "1")  # type: ignore[arg-type]

    with_client(tmp_path, ask, timers)
    assert len(timers.all()) == 2


def test_a_backend_without_timers_says_so(tmp_path: Path) -> None:
    def ask(client: Client) -> None:
        with pytest.raises(UsageError) as caught:
            client.timers()
        assert caught.value.code == "no-timers"

    with_client(tmp_path, ask, None)


@pytest.mark.parametrize("action", ["cancel", "pause", "resume"])
def test_from_the_network_looking_is_for_observers_and_changing_for_admin(action: TimerChange) -> None:
    rights.check([Right.OBSERVE], wire.Timers())
    rights.check([Right.ADMIN], wire.Timers(action=action, id="1"))
    with pytest.raises(UsageError, match=f"`timers {action}` needs the right `admin`"):
        rights.check([Right.OBSERVE, Right.SPEAK, Right.LISTEN], wire.Timers(action=action, id="1"))
    with pytest.raises(UsageError, match="observe"):
        rights.check([Right.SPEAK], wire.Timers())
