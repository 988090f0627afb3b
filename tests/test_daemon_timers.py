"""The timers of a daemon: what is kept, what rings and when, what a restart or a bad disk makes of it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assistant.api import wire_events
from assistant.daemon_timers import Timers
from assistant.errors import UsageError
from assistant.skills import Kept
from assistant.voice_ring import Ring
from tests.skills.world import Time

TICK_S = 0.002


class Bell:
    """Rings without a sound."""

    def __init__(self) -> None:
        self.rings: dict[str, Ring] = {}

    def ring(self, id: str, ring: Ring) -> None:
        self.rings[id] = ring

    def unring(self, id: str) -> None:
        if (ring := self.rings.pop(id, None)) is not None:
            ring.over()

    def words(self) -> list[str]:
        return [ring.words() for ring in self.rings.values()]


class Daemon:
    """What a test sees of one."""

    def __init__(self, path: Path, time: Time, *, rings: bool = True) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.bell = Bell()
        self.time = time
        self.timers = Timers(
            path, emit=self._emit, bell=lambda: self.bell if rings else None, clocks=time.clocks, tick_s=TICK_S
        )

    def _emit(self, name: str, data: dict[str, Any]) -> None:
        msgspec.convert(data, wire_events.EVENTS[name], strict=True)
        self.events.append((name, data))

    def told(self) -> list[tuple[str, str]]:
        return [(name.removeprefix("timer-"), data["name"]) for name, data in self.events]

    async def pass_(self, seconds: float) -> None:
        """Time goes by, and the daemon sees it at its next look."""
        self.time.sleep(seconds)
        await asyncio.sleep(10 * TICK_S)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


@asynccontextmanager
async def daemon(path: Path, time: Time, **more: Any) -> AsyncIterator[Daemon]:
    one = Daemon(path, time, **more)
    await one.timers.open()
    try:
        yield one
    finally:
        await one.timers.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "timers.json"


def written(path: Path) -> list[tuple[str, str]]:
    return [(row["name"], row["state"]) for row in json.loads(path.read_text())["timers"]]


def test_what_is_said_to_be_set_is_on_the_disk(path: Path) -> None:
    async def test() -> None:
        async with daemon(path, Time()) as one:
            timer, kept = await one.timers.start("pasta", 600)
            assert kept
            assert written(path) == [("pasta", "running")]
            assert (await one.timers.add(timer.id, 60)).timer.left_s == 660
            await one.timers.pause(timer.id)
            assert written(path) == [("pasta", "paused")]
            await one.timers.resume(timer.id)
            assert [gone.id for gone in await one.timers.cancel(timer.id, "77")] == [timer.id]
            assert written(path) == []
            assert one.told() == [
                ("started", "pasta"), ("updated", "pasta"), ("updated", "pasta"), ("updated", "pasta"),
                ("cancelled", "pasta"),
            ]  # fmt: skip

    run(test)


def test_one_that_ends_rings_until_somebody_wants_no_more(path: Path) -> None:
    async def test() -> None:
        async with daemon(path, Time()) as one:
            await one.timers.start("pasta", 60)
            await one.timers.start("", 120)
            await one.pass_(59)
            assert not one.bell.rings
            await one.pass_(1)
            assert one.bell.words() == ["Your pasta timer is done."]
            await one.pass_(30)
            assert one.bell.words() == ["Your pasta timer ended 30 seconds ago."]
            assert written(path) == [("pasta", "ringing"), ("", "running")]
            one.bell.unring("1")
            await one.pass_(0)
            assert written(path) == [("", "running")]
            await one.pass_(30)
            assert one.bell.words() == ["Your 2 minute timer is done."]
            assert one.told()[2:] == [("finished", "pasta"), ("finished", "")]

    run(test)


def test_more_time_ends_the_ringing(path: Path) -> None:
    async def test() -> None:
        async with daemon(path, Time()) as one:
            id = (await one.timers.start("pasta", 60)).timer.id
            await one.pass_(61)
            assert (await one.timers.add(id, 300)).timer.state == "running"
            assert not one.bell.rings
            assert [(timer.id, timer.left_s) for timer in one.timers.all()] == [(id, 300)]

    run(test)


def test_without_a_speaker_there_is_the_event_and_that_is_all(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with daemon(path, Time(), rings=False) as one:
            await one.timers.start("secret", 60)
            await one.pass_(61)
            assert one.told() == [("started", "secret"), ("finished", "secret")]
            assert one.timers.all() == ()
            await one.pass_(0)
            assert written(path) == []

    run(test)
    assert "timer 1 has ended" in caplog.text
    assert "secret" not in caplog.text  # what people say is in no log


def test_a_restart_goes_on_and_what_is_late_rings_and_says_so(path: Path) -> None:
    async def test() -> None:
        time = Time()
        async with daemon(path, time) as one:
            await one.timers.start("pasta", 60)
            await one.timers.start("roast", 3600)
        time.sleep(780)
        async with daemon(path, time) as one:
            await one.pass_(0)
            assert one.bell.words() == ["Your pasta timer ended 12 minutes ago."]
            assert one.timers.all()[1].left_s == 2820
            assert one.told() == [("finished", "pasta")]
        # nobody has heard it: it rings again, also after a reboot
        time.reboot(0)
        async with daemon(path, time) as one:
            await one.pass_(0)
            assert one.bell.words() == ["Your pasta timer ended 12 minutes ago."]

    run(test)


def test_a_clock_that_is_set_is_noted_for_a_later_reboot(path: Path) -> None:
    async def test() -> None:
        time = Time()
        async with daemon(path, time) as one:
            await one.timers.start("pasta", 600)
            time.wall += 5 * 3600
            await one.pass_(60)
            assert not one.bell.rings
            assert one.timers.all()[0].left_s == 540
            await one.pass_(0)
            data = path.read_bytes()
        path.write_bytes(data)  # as a power cut would leave it
        time.reboot(120)
        async with daemon(path, time) as one:
            assert one.timers.all()[0].left_s == pytest.approx(420)

    run(test)


def test_a_damaged_file_is_put_aside_and_timers_go_on(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.write_text('{"version": 1, "timers": [{"id"')

    async def test() -> None:
        async with daemon(path, Time()) as one:
            assert one.timers.all() == ()
            assert (await one.timers.start("pasta", 60)).kept

    run(test)
    assert "damaged" in caplog.text
    assert path.with_name("timers.json.damaged-1").exists()


def test_a_disk_that_takes_nothing_costs_no_timer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "a-file"
    blocked.write_text("")

    async def test() -> None:
        async with daemon(blocked / "timers.json", Time()) as one:
            kept: Kept = await one.timers.start("pasta", 60)
            assert not kept.kept
            await one.pass_(61)
            assert one.bell.words() == ["Your pasta timer is done."]

    run(test)
    assert "cannot be written" in caplog.text


def test_what_a_disk_gives_that_takes_nothing_any_more_goes_on(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder in the place of the lock: not even root can open it for writing. A card that fails is read-only, too."""

    async def test() -> None:
        time = Time()
        async with daemon(path, time) as one:
            await one.timers.start("pasta", 60)
        lock = path.with_name(".timers.json.lock")
        lock.unlink()
        lock.mkdir()
        async with daemon(path, time) as one:
            assert [timer.name for timer in one.timers.all()] == ["pasta"]
            assert not (await one.timers.start("tea", 60)).kept
            lock.rmdir()
            assert (await one.timers.start("eggs", 60)).kept
            assert written(path) == [("pasta", "running"), ("tea", "running"), ("eggs", "running")]

    run(test)
    assert "timers will not survive a restart" in caplog.text


def test_a_disk_that_becomes_full_and_free_again(path: Path) -> None:
    """A folder in the place of the new file: not even root can write there."""

    async def test() -> None:
        async with daemon(path, Time()) as one:
            assert (await one.timers.start("pasta", 60)).kept
            new = path.with_name(".timers.json.new")
            new.mkdir()
            assert not (await one.timers.start("tea", 60)).kept
            assert written(path) == [("pasta", "running")]
            new.rmdir()
            for _ in range(50):
                await one.pass_(0)
            assert written(path) == [("pasta", "running"), ("tea", "running")]

    run(test)


def test_a_second_daemon_keeps_its_hands_off_the_file(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        time = Time()
        async with daemon(path, time) as one, daemon(path, time) as other:
            await one.timers.start("pasta", 60)
            assert other.timers.all() == ()
            assert not (await other.timers.start("tea", 60)).kept
            assert written(path) == [("pasta", "running")]
        async with daemon(path, time) as one:
            assert [timer.name for timer in one.timers.all()] == ["pasta"]

    run(test)
    assert "another daemon" in caplog.text


def test_what_the_sockets_ask_for(path: Path) -> None:
    async def test() -> None:
        async with daemon(path, Time()) as one:
            id = (await one.timers.start("pasta", 60)).timer.id
            one.timers.act("pause", id)
            assert one.timers.all()[0].state == "paused"
            one.timers.act("resume", id)
            await one.pass_(61)
            for action in ("pause", "resume"):
                with pytest.raises(UsageError) as caught:
                    one.timers.act(action, id)
                assert caught.value.code == "timer-ended"
            one.timers.act("cancel", id)
            assert not one.bell.rings
            with pytest.raises(UsageError, match="there is no timer") as caught:
                one.timers.act("cancel", id)
            assert caught.value.code == "timer-unknown"
        assert written(path) == []

    run(test)


def test_the_files_belong_to_their_owner_alone(path: Path) -> None:
    async def test() -> None:
        async with daemon(path, Time()) as one:
            await one.timers.start("pasta", 60)
            for file in path.parent.iterdir():
                assert os.stat(file).st_mode & 0o077 == 0

    run(test)
