"""`assistant events`, at a real daemon: what happens, from a restart to the next."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from tests.api.daemon_process import Place, until


@pytest.fixture
def place() -> Iterator[Place]:
    with Place() as one:
        yield one


def test_without_a_daemon_and_with_wrong_words_it_ends_at_once(place: Place) -> None:
    assert place.json("events", code=3)["error"]["code"] == "not-running"
    assert "no event begins with 'foo'" in place.json("events", "--topic", "foo", code=2)["error"]["message"]
    assert "--count" in place.json("events", "--count", "-1", code=2)["error"]["message"]


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_it_follows_what_happens_beyond_a_restart(place: Place) -> None:
    told = place.folder / "told"
    daemon = place.daemon()
    with told.open("w") as err:
        following = place.start("events", "--json", "--count", "3", "--topic", "run-", "--topic", "stt", stderr=err)
    assert until(lambda: "following" in told.read_text())
    place.run("ask", "what time is it", "--no-speech")
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(5) == 0
    assert until(lambda: "waiting for it" in told.read_text())
    place.daemon()
    assert until(lambda: told.read_text().count("following") == 2, 10)
    place.run("ask", "what time is it", "--no-speech")
    lines = [json.loads(line) for line in following.communicate(timeout=10)[0].splitlines()]
    assert [line.get("name", "restarted") for line in lines] == ["run-start", "run-end", "restarted", "run-start"]
    assert lines[1]["data"]["report"]["transcript"] == "what time is it"
    assert lines[3]["seq"] < lines[1]["seq"]
    assert "what time" not in place.log()


@pytest.mark.engine
def test_lines_for_people_and_the_end_by_ctrl_c(place: Place) -> None:
    place.daemon()
    told = place.folder / "told"
    with told.open("w") as err:
        following = place.start("events", stderr=err)
    assert until(lambda: "following" in told.read_text())
    place.run("ask", "what time is it", "--no-speech")
    assert following.stdout is not None
    lines: list[str] = []
    while sum(" state " in line for line in lines) < 2:
        lines.append(following.stdout.readline())
    # an LED that follows the states sees a query that comes by the socket, too
    assert [" state " in lines[0], "processing" in lines[0], "run-start" in lines[1]] == [True] * 3
    assert ["run-end" in lines[-2], " state " in lines[-1]] == [True] * 2
    following.send_signal(signal.SIGINT)
    assert following.wait(5) == 0
