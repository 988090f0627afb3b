"""Many restarts, and the power goes at any moment: what was told to be kept is there, and nothing is in the way."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant import paths
from assistant.api.client import Client
from assistant.errors import AssistantError
from assistant.memory_orchestrator.ledger import SHM, segment_name
from assistant.messages import Outcome
from tests.api.daemon_process import until
from tests.hostile.world import LOCAL, World, asked

pytestmark = [pytest.mark.engine, pytest.mark.timeout(60)]


@pytest.mark.parametrize("times", [5, pytest.param(200, marks=[pytest.mark.hostile, pytest.mark.timeout(900)])])
def test_restarts_in_a_row_leave_nothing_and_lose_nothing(times: int) -> None:
    with World() as world:
        segment = SHM / segment_name(paths.daemon_owner(world.runtime / "assistant"))
        files: list[int] = []
        for number in range(times):
            world.daemon()
            if number == 0:
                assert world.ask("set a timer for twenty hours").outcome == Outcome.HANDLED
            assert [timer.state for timer in world.timers()] == ["running"]
            assert segment.exists()
            world.ends()
            assert not segment.exists()
            assert not list((world.runtime / "assistant").glob("*.sock"))
            files.append(sum(1 for path in world.base.rglob("*") if path.is_file()))
        assert len(set(files[1:])) == 1, files


@pytest.mark.parametrize("times", [6, pytest.param(200, marks=[pytest.mark.hostile, pytest.mark.timeout(1800)])])
def test_power_cuts_at_any_moment_lose_nothing_that_was_told_to_be_kept(times: int) -> None:
    """Everything is killed at once, while the daemon starts, while a timer or the list is written, while it answers."""
    seed = int(os.environ.get("HOSTILE_SEED") or time.time_ns())
    dice = random.Random(seed)
    steps = itertools.count(1)
    promised: set[str] = set()
    items: set[str] = set()
    with World() as world:
        for number in range(times):
            started = time.monotonic()
            world.start()
            # half of them before it is ready, or a moment after; the others in the middle of its work
            ends = started + dice.uniform(0.02, 0.6) if number % 2 else 0.0
            if not ends:
                assert until(lambda: "ready: " in world.log, 15), (seed, world.log)
                ends = time.monotonic() + dice.uniform(0.0, 0.8)
            _work(world, ends, steps, promised, items)
            while number == 0 and not (promised and items):  # or a slow machine would prove nothing
                _work(world, time.monotonic() + 0.2, steps, promised, items)
            world.power_cut()
            assert "Traceback" not in world.log, (seed, world.log)
            _whole(world.state / "assistant", seed)
        world.daemon()
        assert "damaged" not in world.log, (seed, world.log)
        assert promised <= {timer.name for timer in world.timers()}, seed
        kept = json.loads((world.state / "assistant/shopping.json").read_text()) if items else {}
        assert all(item in json.dumps(kept) for item in items), (seed, kept)
        world.works(llm=False)
        world.ends()
        left = {path.name for path in SHM.glob(f"*{world.owner}*")}
        assert not left, (seed, left)


def _work(world: World, ends: float, steps: Iterator[int], promised: set[str], items: set[str]) -> None:
    """Asks until the power goes; notes what the daemon has promised to keep."""
    folder = world.runtime / "assistant"
    while time.monotonic() < ends:
        try:
            with Client(folder) as client:
                while time.monotonic() < ends:
                    count = next(steps)
                    name = _letters(count)
                    if not count % 4:
                        asked(client, LOCAL)
                    elif len(promised) < 45 and count % 2:
                        if asked(client, f"set a timer for ten hours called {name}").reply.endswith(
                            "set for 10 hours."
                        ):
                            promised.add(name)
                    elif asked(client, f"add {name} to my shopping list").reply.endswith("is on your shopping list."):
                        items.add(name)
        except AssistantError:
            time.sleep(0.01)  # it is not there yet


def _letters(number: int) -> str:
    return "".join("bdfgklmnpr"[int(digit)] + "a" for digit in str(number))


def _whole(state: Path, seed: int) -> None:
    """Every file of the state can be read whole, at every moment."""
    for path in state.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            assert isinstance(json.loads(path.read_text()), dict), (seed, path)
