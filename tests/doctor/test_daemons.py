"""Sockets of daemons that run, that were killed, that hang, and that are somebody else's; all of them real."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from assistant.api.sockets import CONTROL, DaemonLock
from assistant.doctor.daemons import look_at_sockets
from assistant.doctor.examine import mend
from assistant.doctor.scene import Places, Scene
from assistant.memory_orchestrator.ledger import segment_name
from tests.api.daemon_process import Place
from tests.doctor.machines import Machine, look


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Its sockets lie in a folder with a short name."""
    machine = Machine(tmp_path)
    with tempfile.TemporaryDirectory(prefix="va-") as folder:
        machine.places = dataclasses.replace(machine.places, runtime=Path(folder))
        yield machine


def left_behind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def test_no_daemon_is_fine(machine: Machine) -> None:
    assert "no daemon runs" in look(look_at_sockets, machine.scene())["sockets"].found


def test_a_stale_socket_is_removed_by_fix(machine: Machine) -> None:
    path = machine.places.runtime / CONTROL
    left_behind(path)
    found = look(look_at_sockets, machine.scene())
    assert found["socket-stale"].level == "advice"
    assert found["socket-stale"].fix == f"rm {path}"
    (done,) = mend(found.values())
    assert (done.good, path.exists()) == (True, False)
    assert "sockets" in look(look_at_sockets, machine.scene())


def test_the_sockets_of_a_daemon_that_is_just_starting_are_left_alone(machine: Machine) -> None:
    path = machine.places.runtime / CONTROL
    left_behind(path)
    found = look(look_at_sockets, machine.scene())
    with DaemonLock(path.parent):
        (done,) = mend(found.values())
    assert not done.good
    assert "already runs" in done.text
    assert path.exists()


def test_what_is_no_socket_is_in_the_way(machine: Machine) -> None:
    (machine.places.runtime / CONTROL).mkdir()
    assert look(look_at_sockets, machine.scene())["socket-blocked"].fix.startswith("rm -r ")


def test_another_daemon_of_this_user_is_found_by_its_ledger(machine: Machine) -> None:
    shared = machine.root / "dev/shm"
    shared.mkdir(parents=True)
    code = f"""
from pathlib import Path
from assistant.memory_orchestrator.ledger import LedgerWriter
ledger = LedgerWriter({segment_name("daemon-0123abcd")!r}, Path({str(shared)!r}))
print(input("ready\\n"))
"""
    other = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "XDG_RUNTIME_DIR": "/run/somebody/else"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert other.stdout is not None
    pid, _ = other.pid, other.stdout.readline()
    try:
        found = look(look_at_sockets, machine.scene())["daemon-other"]
        assert f"process {pid} (XDG_RUNTIME_DIR=/run/somebody/else) is another daemon" in found.found
        assert found.fix == f"unless it is meant: kill {pid}"
        assert re.search(r"it holds [1-9]\d* MiB", found.found)
        with (shared / segment_name("daemon-0123abcd")).open("r+b") as file:
            file.seek(8)
            file.write((99).to_bytes(4, "little"))
        found = look(look_at_sockets, machine.scene())["ledger-other"]
        assert found.fix == f"unless it is meant: kill {pid}"
        assert re.search(r"in version 99, which is not ours; it holds [1-9]\d* MiB", found.found)
    finally:
        other.kill()
        other.communicate()
    assert "sockets" in look(look_at_sockets, machine.scene()), "it is dead, and its ledger says nothing"


def test_a_daemon_that_runs_that_hangs_and_that_was_killed(machine: Machine) -> None:
    with Place() as place:
        process = place.daemon()
        scene = Scene(root=machine.root, places=Places(runtime=place.runtime), config=machine.scene().config)
        assert f"a daemon answers (process {process.pid}, " in look(look_at_sockets, scene)["sockets"].found
        outdated = look(partial(look_at_sockets, version="99.0"), scene)["daemon-outdated"]
        assert outdated.fix.startswith(f"kill {process.pid}, then: assistant run")
        process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        assert look(look_at_sockets, scene)["daemon-silent"].fix.startswith(f"kill {process.pid};")
        assert time.monotonic() - begun < 5
        process.kill()
        process.wait()
        found = [*look_at_sockets(scene)]
        assert [one.id for one in found] == ["socket-stale"]
        assert len(shlex.split(found[0].fix)) == 4, "one command for all three sockets"
        assert all(done.good for done in mend(found))
        assert not [*place.runtime.glob("*.sock")]
