"""Timers of a real daemon: set by its queries, listed and changed by the command line, kept across its ends."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.api.client import Client
from assistant.cli_timers import lines
from assistant.messages_timers import TimerStatus
from assistant.model_store.store import ModelInfo
from tests.api.daemon_process import Place, until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def place() -> Iterator[Place]:
    with Place() as one:
        yield one


@pytest.fixture(scope="module")
def model(model: object) -> ModelInfo:
    """A query checks that its LLM is there, though a command does not need it."""
    found: ModelInfo = model("smollm2-135m-instruct")  # type: ignore[operator]
    return found


def ask(place: Place, text: str) -> str:
    report = place.json("ask", text, "--no-speech")
    assert report["outcome"] == "handled"
    reply: str = report["reply"]
    return reply


def listed(place: Place) -> list[tuple[str, str, str]]:
    return [(timer["id"], timer["name"], timer["state"]) for timer in place.json("timers")["timers"]]


def kill(process: object, number: int) -> None:
    process.send_signal(number)  # type: ignore[attr-defined]
    process.wait(10)  # type: ignore[attr-defined]


# --- without a daemon -------------------------------------------------------------------------------------------------
def test_without_a_daemon_there_are_none(place: Place) -> None:
    assert "no daemon runs" in place.run("timers", code=3).stderr
    assert place.json("timers", code=3)["error"]["code"] == "not-running"


@pytest.mark.parametrize(
    "args", [["explode"], ["cancel"], ["list", "1"], ["pause"], ["cancel", "1", "2"], ["--loud"]], ids=str
)
def test_a_wrong_command_line_is_one_line(place: Place, args: list[str]) -> None:
    told = place.run("timers", *args, code=2).stderr
    assert told.startswith("error: ")
    assert told.count("\n") == 1


def test_how_they_are_shown() -> None:
    assert lines([]) == ["no timers"]
    found = [
        TimerStatus(id="3", name="tea", total_s=60, left_s=-12.4, state="ringing"),
        TimerStatus(id="12", name="", total_s=7200, left_s=3725, state="running"),
        TimerStatus(id="4", name="eggs", total_s=300, left_s=59.6, state="paused"),
    ]
    assert lines(found) == [
        " 3    -0:12 of    1:00  ringing  tea",
        "12  1:02:05 of 2:00:00  running",
        " 4     1:00 of    5:00  paused   eggs",
    ]


# --- with a real one --------------------------------------------------------------------------------------------------
@pytest.mark.engine
def test_from_the_query_to_the_list_and_back(place: Place, model: ModelInfo) -> None:
    place.daemon()
    assert place.run("timers").stdout == "no timers\n"
    events: list[str] = []

    def follow() -> None:
        with Client(place.runtime) as client:
            for event in client.events("timer-"):
                events.append(f"{event.name} {event.data['id']} {event.data['total_s']:g} {event.data['state']}")
                if event.name == "timer-cancelled":
                    return

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    time.sleep(0.3)
    assert ask(place, "set a timer for 10 minutes") == "Timer set for 10 minutes."
    assert listed(place) == [("1", "", "running")]
    (row,) = place.json("timers", "pause", "1")["timers"]
    assert row["state"] == "paused"
    assert 590 < row["left_s"] <= 600
    assert "paused" in place.run("timers").stdout
    assert listed(place) == [("1", "", "paused")]
    assert place.json("timers", "resume", "1")["timers"][0]["state"] == "running"
    assert place.run("timers", "cancel", "1").stdout == "no timers\n"
    assert place.json("timers", "cancel", "1", code=2)["error"]["code"] == "timer-unknown"
    follower.join(5)
    assert events == [
        "timer-started 1 600 running",
        "timer-updated 1 600 paused",
        "timer-updated 1 600 running",
        "timer-cancelled 1 600 running",
    ]


@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_said_to_be_set_survives_the_daemon(place: Place, model: ModelInfo, number: int) -> None:
    process = place.daemon()
    ask(place, "set a timer for 10 minutes")
    kill(process, number)
    place.daemon()
    assert listed(place) == [("1", "", "running")]
    assert ask(place, "set a timer for 2 minutes") == "Timer set for 2 minutes."
    assert listed(place) == [("2", "", "running"), ("1", "", "running")]


@pytest.mark.engine
def test_one_that_ended_meanwhile_is_told_at_once(place: Place, model: ModelInfo) -> None:
    process = place.daemon()
    ask(place, "set a timer for 2 seconds")
    kill(process, signal.SIGKILL)
    time.sleep(2.1)
    place.daemon()
    with Client(place.runtime) as client:
        assert until(lambda: client.snapshot().counts.get("timer-finished") == 1)
    assert place.run("timers").stdout == "no timers\n"
    assert "timer 1 has ended" in place.log()


@pytest.mark.engine
def test_a_state_folder_that_cannot_be_written_is_told(place: Place, model: ModelInfo) -> None:
    state = Path(place.environ["XDG_STATE_HOME"]) / "assistant"
    place.daemon()
    (state / ".timers.json.new").mkdir(parents=True)
    assert ask(place, "set a timer for 10 minutes").endswith("because the disk cannot be written.")
    assert listed(place) == [("1", "", "running")]


@pytest.mark.engine
def test_a_damaged_file_does_not_keep_the_daemon_from_starting(place: Place, model: ModelInfo) -> None:
    state = Path(place.environ["XDG_STATE_HOME"]) / "assistant"
    state.mkdir(parents=True)
    (state / "timers.json").write_bytes(os.urandom(100))
    place.daemon()
    assert ask(place, "set a timer for 10 minutes") == "Timer set for 10 minutes."
    assert "timers.json is damaged" in place.log()
    assert json.loads((state / "timers.json").read_text())["timers"][0]["total_s"] == 600


@pytest.mark.engine
def test_a_query_without_a_daemon_sets_none_and_says_why(place: Place, model: ModelInfo) -> None:
    assert "assistant run" in ask(place, "set a timer for 10 minutes")
    assert ask(place, "add milk to my shopping list") == "Milk is on your shopping list."
    assert ask(place, "what is on my shopping list") == "On your shopping list: milk."
