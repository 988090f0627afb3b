"""Disks that take nothing, are full, slow or go away: real mounts, seen by the daemon alone."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assistant import paths
from assistant.api import wire
from assistant.messages import Outcome, Stage
from assistant.model_store.store import ModelStore
from tests.api.daemon_process import until
from tests.hostile import slow_disk
from tests.hostile.world import LOCAL, NEEDED, QUESTION, World, asked

pytestmark = [pytest.mark.engine, pytest.mark.root, pytest.mark.timeout(60)]

EVERYTHING_READ_ONLY = """
mount -t tmpfs -o mode=700 tmpfs "$W/run"
for m in $(awk '{print $5}' /proc/self/mountinfo | sort -u); do
    case $m in /proc*|/sys*|/dev*|"$W/run") ;; *) mount -o remount,bind,ro "$m" || true ;; esac
done
"""


def full(folder: str) -> str:
    """A disk of 64 KiB, all of it taken."""
    return f"""
mkdir -p "$W/{folder}" && mount -t tmpfs -o size=64k,mode=700 tmpfs "$W/{folder}"
head -c 1000000 /dev/zero > "$W/{folder}/taken" 2>/dev/null || true
"""


def test_a_file_system_that_is_read_only_answers_and_keeps_what_it_has() -> None:
    with World(EVERYTHING_READ_ONLY) as world:
        timers = world.state / "assistant/timers.json"
        timers.parent.mkdir()
        row = {"id": "1", "name": "pasta", "total_s": 600, "state": "paused", "left_s": 300}
        timers.write_text(json.dumps({"version": 1, "boot_id": "", "boot": 0, "wall": 0, "next": 2, "timers": [row]}))
        world.daemon()
        world.works()
        assert [timer.name for timer in world.timers()] == ["pasta"]
        assert "will not survive a restart" in world.ask("set a timer for ten minutes").reply
        world.ends()


@pytest.mark.hostile
def test_a_file_system_that_is_read_only_needs_no_caches() -> None:
    with World(EVERYTHING_READ_ONLY, own_cache=True) as world:
        world.daemon()
        world.works()
        world.ends()


def test_nowhere_to_put_sockets_is_told(long_form: bool) -> None:
    with World('mount --bind "$W" "$W" && mount -o remount,bind,ro "$W"') as world:
        assert "Read-only" in world.refused(2, "XDG_RUNTIME_DIR")
    for inodes in (3, 4, 5) if long_form else (4,):  # room for the lock, and for none, one, two sockets of three
        with World(f'mount -t tmpfs -o nr_inodes={inodes},mode=700 tmpfs "$W/run"') as world:
            world.refused(2, ".sock", "No space left on device")


def test_full_disks_everywhere_cost_what_needs_them_and_nothing_else() -> None:
    with World(full("run"), full("state"), full("cache"), own_cache=True) as world:
        world.daemon()
        world.works(llm=False)
        assert "will not survive a restart" in world.ask("set a timer for ten minutes called tea").reply
        failed = world.ask(QUESTION).error
        assert failed is not None
        assert failed.code == "cache-disk-full"
        assert "XDG_CACHE_HOME" in failed.message
        world.inside('rm "$W/state/taken" "$W/run/taken"')
        assert "will not survive" not in world.ask("set a timer for an hour").reply
        names = {row["name"] for row in json.loads(world.seen("state/assistant/timers.json").read_text())["timers"]}
        assert "tea" in names
        world.ends()


@pytest.mark.parametrize(
    "mounts",
    [
        'mount -t tmpfs tmpfs /dev; for n in "null 3" "zero 5" "urandom 9"; do mknod /dev/${n% *} c 1 ${n#* }; done',
        pytest.param("mount -o remount,bind,ro /dev/shm", marks=pytest.mark.hostile),
        pytest.param(
            "mount -t tmpfs -o size=16k tmpfs /dev/shm; head -c 99999 /dev/zero > /dev/shm/taken 2>/dev/null || true",
            marks=pytest.mark.hostile,
        ),
    ],
    ids=["missing", "read-only", "full"],
)
def test_without_shared_memory_there_is_no_ledger_and_the_daemon_says_what_to_mount(mounts: str) -> None:
    with World(mounts) as world:
        world.refused(1, "/dev/shm", "mount -t tmpfs", "--shm-size")


@pytest.mark.hostile
def test_little_shared_memory_is_enough() -> None:
    with World("mount -t tmpfs -o size=64k tmpfs /dev/shm") as world:
        world.daemon()
        world.works()
        world.ends()


# --- models -----------------------------------------------------------------------------------------------------------
def real_models() -> list[str]:
    """Shell lines that put them into a folder of the world, from where a slow disk has them."""
    store, catalog = ModelStore.default(), paths.catalog_file()
    lines = ['mkdir "$W/real"', f'cp {shlex.quote(str(catalog))} "$W/real/"']
    for name in NEEDED:
        lines.append(f'mkdir "$W/real/{name}" && mount --bind {shlex.quote(str(store.path(name)))} "$W/real/{name}"')
    return lines


@contextmanager
def slow_models(world: World) -> Iterator[Path]:
    """Puts a slow disk in the place of the daemon's models; yields the file that says how it is."""
    models, control = world.root / "models", world.base / "disk"
    control.write_text("0.001")
    if not os.path.exists("/dev/fuse"):
        pytest.skip("there is no /dev/fuse")
    inside = ["nsenter", "-t", str(world.process.pid), "-m", "--", sys.executable]
    disk = subprocess.Popen(
        [*inside, slow_disk.__file__, str(world.folder / "real"), str(models), str(control)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert disk.stdout is not None
    try:
        if disk.stdout.readline() != "mounted\n":
            pytest.skip("FUSE cannot be mounted here")
        yield control
    finally:
        disk.kill()
        disk.wait()
        disk.stdout.close()


def test_models_on_a_disk_that_is_slow_and_then_goes_away_and_comes_back(long_form: bool) -> None:
    with World(*real_models()) as world:
        world.daemon()
        with slow_models(world) as disk:
            disk.write_text("0.003" if long_form else "0")
            world.works()
            with world.client() as client:
                client.unload(Stage.LLM)
            disk.write_text("gone")
            failed = world.ask(QUESTION).error
            assert failed is not None
            assert failed.code in ("model-unreachable", "engine-failed", "stage-died"), failed
            assert world.process.poll() is None
            disk.write_text("0")
            assert until(lambda: world.ask(QUESTION).outcome == Outcome.ANSWERED, 20)
        world.ends()


def test_a_disk_of_models_that_hangs_keeps_nothing_but_the_questions_that_need_it(long_form: bool) -> None:
    with World(*real_models()) as world:
        world.daemon()
        with slow_models(world) as disk:
            disk.write_text("0")
            world.works()
            disk.write_text("hangs")
            with world.client() as asker, world.client() as other:
                question = asker.ask(wire.Ask(text=QUESTION, speech=False))
                begun = time.monotonic()
                assert until(lambda: other.status().state != "idle")
                time.sleep(0.3)  # it waits for the disk by now
                assert other.status().pid == world.process.pid
                other.cancel()
                answered = next(reply for reply, _ in asker.replies(question, 2) if isinstance(reply, wire.Report))
                assert wire.plain(answered).outcome == Outcome.CANCELLED
                assert asked(other, LOCAL).outcome == Outcome.HANDLED
                assert asked(other, "set a timer for ten minutes").outcome == Outcome.HANDLED
                assert time.monotonic() - begun < 4
            if long_form:  # takes as long as one waits for a disk
                failed = world.ask(QUESTION).error
                assert failed is not None
                assert (failed.code, failed.retryable) == ("model-unreachable", True)
                begun = time.monotonic()
                failed = world.ask(QUESTION).error  # nobody waits for it again
                assert failed is not None
                assert failed.code == "model-unreachable"
                assert time.monotonic() - begun < 2
            else:
                disk.write_text("0")
                world.works()
                disk.write_text("hangs")
                with world.client() as asker:
                    asker.ask(wire.Ask(text=QUESTION, speech=False))
                    asker.status()
            world.ends()  # though a thread of it waits for the disk


@pytest.mark.hostile
def test_verbs_and_a_start_with_a_disk_of_models_that_hangs() -> None:
    with World(*real_models()) as world:
        world.daemon()
        with slow_models(world) as disk:
            disk.write_text("hangs")
            other = world.folder / "other"  # a second daemon beside the first
            other.mkdir(mode=0o700)
            environ = {**world.environ, "XDG_RUNTIME_DIR": str(other), "XDG_STATE_HOME": str(other)}
            inside = ["nsenter", "-t", str(world.process.pid), "-m", "--", sys.executable, "-P", "-m"]

            def begun(words: str) -> subprocess.Popen[str]:
                return subprocess.Popen(
                    [*inside, *words.split()], cwd=world.folder, env=environ, text=True, stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                )  # fmt: skip

            # one after the other: of two that look up the same name, the kernel lets the second not even exit
            verbs = {"models list": 6, "ask --standalone --no-speech hello": 6, "doctor": 1}
            for words, code in verbs.items():
                with begun(f"assistant {words}") as verb:
                    told, _ = verb.communicate(timeout=15)
                assert verb.returncode == code, told
                assert "the disk has not answered for 8 s" in told
            assert "model-unreachable" in told
            with begun("assistant.service") as second:
                assert second.stdout is not None
                lines = [second.stdout.readline() for _ in range(4)]
                second.terminate()
                assert second.wait(10) == 0
            assert [one.partition(":")[0] for one in lines] == [*["warning"] * 3, "ready"], lines
        world.ends()


def test_a_folder_of_models_that_is_unmounted_and_mounted_again() -> None:
    with World("true") as world:
        models = world.root / "models"
        world.daemon()
        world.works()
        world.inside(f"mount -t tmpfs tmpfs '{models}'")
        for unloaded in (False, True):
            if unloaded:
                with world.client() as client:
                    client.unload(Stage.LLM)
            failed = world.ask(QUESTION).error
            assert failed is not None
            assert failed.code == "model-missing"
            assert "mount" in failed.message
        world.verb("ask", QUESTION, "--no-speech", code=6)
        world.inside(f"umount '{models}'")
        world.works()
        world.ends()


@pytest.mark.hostile
def test_a_model_whose_folder_is_renamed_while_it_is_loaded(tmp_path: Path) -> None:
    """Links, as people keep models on a second disk."""
    disk, tmp_path = tmp_path / "disk", tmp_path / "models"
    disk.mkdir()
    tmp_path.mkdir()
    with World(f'mount --bind {{models}} "{disk}"', f'mount --bind "{tmp_path}" {{models}}') as world:
        models = world.root / "models"
        (tmp_path / "catalog.toml").write_bytes((models / "catalog.toml").read_bytes())
        for name in NEEDED:
            (tmp_path / name).symlink_to(disk / name)
        world.daemon()
        world.works()
        llm = tmp_path / NEEDED[1]
        llm.rename(tmp_path / "away")
        failed = world.ask(QUESTION).error
        assert failed is not None
        assert failed.code == "model-missing"
        (tmp_path / "away").rename(llm)
        world.works()
        world.ends()
