"""A check that fails or hangs is a finding, and keeps nobody."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from assistant.doctor.examine import Check, Done, examine, mend
from assistant.doctor.findings import Finding
from assistant.doctor.memory import look_at_memory, look_at_swap
from assistant.doctor.scene import Scene
from assistant.errors import DeviceError
from tests.doctor.machines import Machine


def fine(scene: Scene) -> Iterator[Finding]:
    yield Finding("swap", "ok", f"below {scene.root}")


def failing(scene: Scene) -> Iterator[Finding]:
    yield Finding("sound", "ok", "the microphone")
    raise DeviceError("the speaker is on fire")


def test_one_that_fails_spoils_nothing_and_keeps_what_it_found(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (machine.root / "proc/meminfo").unlink()
    checks = [Check("memory", look_at_memory), Check("sound", failing), Check("swap", fine)]
    found = examine(checks, machine.scene())
    assert [one.id for one in found] == ["not-looked-at", "sound", "not-looked-at", "swap"]
    assert found[0].found.startswith("memory could not be looked at: FileNotFoundError: ")
    assert found[2].found == "sound could not be looked at: the speaker is on fire"
    assert found[2].level == "problem"


def test_one_that_hangs_is_left_behind(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    pipe = machine.root / "proc/swaps"
    pipe.unlink()
    os.mkfifo(pipe)  # whoever opens it waits
    begun = time.monotonic()
    found = examine([Check("swap", look_at_swap, 0.2), Check("fine", fine, 0.2)], machine.scene())
    assert time.monotonic() - begun < 1
    assert [one.id for one in found] == ["looked-too-long", "swap"]
    assert found[0].found == "swap: no answer within 0.2 s"
    os.close(os.open(pipe, os.O_WRONLY))


def test_what_cannot_be_mended_is_told_and_the_rest_is_mended(tmp_path: Path) -> None:
    def broken() -> str:
        (tmp_path / "no/folder").mkdir()
        return "never said"

    def refused() -> str:
        raise DeviceError("it does not want to")

    done = mend(
        [
            Finding("folder-missing", "ok", "one", "x", broken),
            Finding("swap", "ok", "none"),
            Finding("socket-stale", "advice", "two", "x", refused),
            Finding("cache-stale", "advice", "three", "x", lambda: "removed three"),
        ]
    )
    assert [one.good for one in done] == [False, False, True]
    assert "No such file" in done[0].text
    assert done[1] == Done("socket-stale", "not mended: it does not want to", False)
    assert done[2].text == "removed three"
