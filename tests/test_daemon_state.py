"""What the daemon says that it does: once for each change, whoever asks."""

from __future__ import annotations

from typing import Any

import pytest

from assistant.daemon_state import DaemonState
from assistant.messages import VoiceState


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.state = DaemonState(lambda name, data: self.events.append((name, data)))

    def voice(self, state: VoiceState) -> None:
        self.state.of_voice("state", {"state": state, "before": "idle"})

    @property
    def steps(self) -> list[tuple[str, str]]:
        return [(data["before"], data["state"]) for name, data in self.events if name == "state"]


def test_a_query_by_socket_is_told_from_its_start_to_its_end() -> None:
    told = Told()
    with told.state.asked(), told.state.asked():
        pass
    assert told.steps == [("idle", "processing"), ("processing", "idle")]


def test_the_voice_goes_before_and_nothing_is_told_twice() -> None:
    told = Told()
    told.voice("listening")
    with told.state.asked():
        for state in ("processing", "responding", "idle"):
            told.voice(state)  # the last one: the other query still runs
        assert told.state.state == "processing"
    seen = [after for _, after in told.steps]
    assert seen == ["listening", "processing", "responding", "processing", "idle"]
    assert [before for before, _ in told.steps] == ["idle", *seen[:-1]]


def test_other_events_of_the_voice_are_passed_on() -> None:
    told = Told()
    told.state.of_voice("muted", {"on": True})
    assert told.events == [("muted", {"on": True})]
    assert told.state.state == "idle"


def test_a_query_that_fails_leaves_no_state_behind() -> None:
    told = Told()
    with pytest.raises(ZeroDivisionError), told.state.asked():
        raise ZeroDivisionError
    assert told.steps[-1] == ("processing", "idle")
    assert told.state.state == "idle"
