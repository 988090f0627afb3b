"""Ledgers of others: of other containers, of other versions, with and without a lock; their processes are real."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assistant.doctor.daemons import look_at_sockets
from assistant.doctor.scene import Places, Scene
from assistant.errors import AssistantError, NotRunning
from assistant.memory_orchestrator import writers
from assistant.memory_orchestrator.ledger import LedgerReader, LedgerWriter
from assistant.memory_orchestrator.writers import SHM, segment_name
from tests.api.daemon_process import Place
from tests.elsewhere import ENTER, elsewhere, needs_namespaces

ROOT = Path(__file__).parents[2]
IMPORTS = (
    "from pathlib import Path; from assistant.memory_orchestrator import writers; "
    "from assistant.memory_orchestrator.ledger import *; "
    "from assistant.memory_orchestrator.ledger import LedgerReader, LedgerWriter; folder = Path(sys.argv[1]); "
)
WRITE = IMPORTS + "writer = LedgerWriter(segment_name('daemon'), folder); print(segment_name('daemon'), flush=True); "
STAY = "time.sleep(60)"


@contextmanager
def here(code: str, *arguments: object) -> Iterator[tuple[str, Callable[[], None]]]:
    """As `elsewhere`, in our own namespace."""
    command = [sys.executable, "-c", f"import fcntl, os, sys, time; {code}", *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None

        def end() -> None:
            process.kill()
            process.wait()

        try:
            yield process.stdout.readline().strip(), end
        finally:
            process.kill()


# --- other containers -----------------------------------------------------------------------------------------------
@pytest.mark.root
def test_a_ledger_of_another_container_stays_as_long_as_its_writer_lives(tmp_path: Path) -> None:
    with elsewhere(WRITE + STAY, tmp_path) as (name, end):
        assert name != segment_name("daemon"), "both containers have a daemon in the usual place"
        LedgerWriter(segment_name("daemon"), tmp_path).close()
        writers.remove_stale(tmp_path)
        reader = LedgerReader(name, tmp_path)
        assert reader.read().writer_pid == 1, "which is somebody else's number here"
        (one,) = writers.writers(tmp_path)
        assert one.head.pid == 1
        assert one.pid > 1, "we see into it, by other numbers"
        assert one.usage.anon > 2**20
        with pytest.raises(AssistantError) as refused:
            LedgerWriter(name, tmp_path)
        assert refused.value.code == "ledger-in-use"
        assert "remove" not in refused.value.message
        end()
        with pytest.raises(NotRunning):
            reader.read()
        writers.remove_stale(tmp_path)
        assert not [*tmp_path.iterdir()]


@pytest.mark.root
def test_a_container_leaves_the_ledger_outside_of_it_alone(tmp_path: Path) -> None:
    """From inside, our number means nobody, or somebody else."""
    ours = LedgerWriter(segment_name("daemon"), tmp_path)
    look = (
        "writers.remove_stale(folder); (one,) = writers.writers(folder); "
        "print(LedgerReader(one.name, folder).read().writer_pid, one.pid, one.usage.total, one)"
    )
    with elsewhere(IMPORTS + look, tmp_path) as (told, _):
        assert told == f"{os.getpid()} 0 0 process {os.getpid()} of another container"
    assert [path.name for path in tmp_path.iterdir()] == [segment_name("daemon")]
    ours.close()


@pytest.mark.root
def test_a_segment_that_another_container_is_just_making_is_left_alone(tmp_path: Path) -> None:
    code = "from assistant.memory_orchestrator.segment import made_locked; fresh = folder / sys.argv[2]; "
    name = f".{segment_name('a')}.4194305"
    with elsewhere(IMPORTS + code + "made_locked(fresh); print(fresh, flush=True); " + STAY, tmp_path, name) as (
        fresh,
        end,
    ):
        writers.remove_stale(tmp_path)
        assert Path(fresh).exists()
        end()
        writers.remove_stale(tmp_path)
        assert not Path(fresh).exists()


@pytest.mark.root
@pytest.mark.engine
def test_daemons_of_two_containers_know_of_each_other() -> None:
    needs_namespaces()
    with Place() as theirs, Place() as mine:
        theirs.prefix = ENTER
        before = {path.name for path in SHM.iterdir()}
        container = theirs.daemon()
        (name,) = {path.name for path in SHM.glob("assistant-*@*")} - before
        mine.daemon()
        assert (SHM / name).exists()
        found = [*look_at_sockets(Scene(places=Places(runtime=mine.runtime)))]
        # of its processes, by their numbers here; other daemons of this machine may be told, too
        assert any(one.id == "daemon-other" and " MiB" in one.found and "kill" in one.fix for one in found)
        container.kill()
        give_up = time.monotonic() + 5
        while (SHM / name) not in writers.stale_segments() and time.monotonic() < give_up:
            time.sleep(0.01)
        writers.remove_stale()
        assert not (SHM / name).exists(), "it is dead now"
        assert mine.ledger_keeper()


# --- other versions -------------------------------------------------------------------------------------------------
UNLOCKED = "fcntl.flock(writer._fd, fcntl.LOCK_UN); "
VERSIONS = {
    "later": "writer._map[8:12] = (99).to_bytes(4, 'little'); ",
    "later, without a lock": UNLOCKED + "writer._map[8:12] = (99).to_bytes(4, 'little'); ",
    "earlier, without a lock": UNLOCKED
    + "writer._map[8:12] = (1).to_bytes(4, 'little'); writer._map[32:] = bytes(2144); ",
    "of the same layout, without a lock": UNLOCKED + "writer._map[112:124] = bytes(12); ",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_ledger_of_another_version_goes_with_its_writer_alone(
    tmp_path: Path, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    write = WRITE.replace("print(", VERSIONS[version] + "print(")
    with here(write + STAY, tmp_path) as (name, end):
        before = (tmp_path / name).read_bytes()
        writers.remove_stale(tmp_path)
        assert (tmp_path / name).read_bytes() == before
        with pytest.raises(AssistantError) as refused:
            LedgerWriter(name, tmp_path)
        assert refused.value.code == "ledger-in-use"
        (one,) = writers.writers(tmp_path)
        assert one.pid == one.head.pid
        assert one.usage.anon > 2**20
        with caplog.at_level(logging.WARNING):
            writers.tell_of_other_versions(tmp_path)
        told = [f"process {one.pid} writes the ledger {name} in version" in line for line in caplog.messages]
        assert told == ([] if version.startswith("of the same") else [True])
        end()
        assert writers.stale_segments(tmp_path) == [tmp_path / name]
        LedgerWriter(name, tmp_path).close()
        assert not [*tmp_path.iterdir()]


@pytest.mark.root
@pytest.mark.parametrize("version", [one for one in VERSIONS if "without" in one])
def test_a_container_leaves_ledgers_without_a_lock_to_those_who_see_their_writers(tmp_path: Path, version: str) -> None:
    write = WRITE.replace("print(", VERSIONS[version] + "print(")
    with here(write + STAY, tmp_path) as (name, end):
        with elsewhere(IMPORTS + "writers.remove_stale(folder); print('swept', flush=True)", tmp_path) as (told, _):
            assert told == "swept"
        assert (tmp_path / name).exists(), "its writer lives, unseen from there"
        end()
        writers.remove_stale(tmp_path)
        assert not (tmp_path / name).exists()


@pytest.mark.root
def test_a_container_sweeps_its_own_ledgers_without_a_lock(tmp_path: Path) -> None:
    left = "path = folder / segment_name('a'); writer = LedgerWriter(path.name, folder); "
    left += "writer._map[112:124] = bytes(12); data = path.read_bytes(); writer.close(); path.write_bytes(data); "
    sweep = "there = path.exists(); writers.remove_stale(folder); print(there, path.exists(), flush=True)"
    with elsewhere(IMPORTS + left + sweep, tmp_path) as (told, _):
        assert told == "True False"


def test_who_has_the_number_of_a_dead_writer_does_not_keep_his_ledger(tmp_path: Path) -> None:
    """Numbers are few in a container, and come again; of a later layout nobody knows when its writer began."""
    with here("print(os.getpid(), flush=True); time.sleep(60)") as (number, _):
        other = f"writer._map[24:28] = ({number}).to_bytes(4, 'little'); "
        write = WRITE.replace("print(", VERSIONS["later, without a lock"] + other + "print(")
        with here(write + STAY, tmp_path) as (name, end):
            assert writers.stale_segments(tmp_path) == []
            end()
            assert writers.stale_segments(tmp_path) == [tmp_path / name]


def test_a_writer_that_has_lost_its_name_leaves_the_next_ones_ledger(tmp_path: Path) -> None:
    first = LedgerWriter("a", tmp_path)
    (tmp_path / "a").unlink()
    second = LedgerWriter("a", tmp_path)
    first.close()
    assert LedgerReader("a", tmp_path).read().writer_pid == os.getpid()
    second.close()
    assert not [*tmp_path.iterdir()]


def test_a_look_at_a_ledger_takes_nothing_from_its_writer(tmp_path: Path) -> None:
    """The lock is asked for to see whether somebody has it; a reader must not stay with it."""
    writer = LedgerWriter(segment_name("a"), tmp_path)
    reader = LedgerReader(segment_name("a"), tmp_path)
    assert reader.read().writer_pid == os.getpid()
    writer.close()
    with pytest.raises(NotRunning):
        reader.read()
    LedgerWriter(segment_name("a"), tmp_path).close()
    reader.close()
