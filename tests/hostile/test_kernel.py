"""A kernel that has less, allows less or tells another time: no PSI, no affinity, few files, clocks that jump."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from assistant.messages import Outcome
from tests.api.daemon_process import alive, children, until
from tests.hostile.world import LOCAL, QUESTION, World
from tests.lacking import lacks

pytestmark = [pytest.mark.engine, pytest.mark.timeout(60)]

NOTHING_IN_PROC = """
mount -t tmpfs tmpfs /proc/pressure
mount -t tmpfs tmpfs /sys
mount -o bind,ro /proc /proc
"""
"""No PSI, no cgroups, no topology, no frequencies; `oom_score_adj` and the session's niceness cannot be written."""

FORBIDS = Path(__file__).with_name("forbidding.py")

CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(id, at);
    if (id == CLOCK_REALTIME) {
        FILE *file = fopen(getenv("CLOCK_OFFSET"), "r");
        long offset = 0;
        if (file) { if (fscanf(file, "%ld", &offset) != 1) offset = 0; fclose(file); }
        at->tv_sec += offset;
    }
    return done;
}
"""
"""The wall clock of one process, set by a file; the machine's own is everybody's."""


@pytest.mark.root
def test_a_kernel_that_tells_nothing_and_takes_nothing() -> None:
    with World(NOTHING_IN_PROC) as world:
        world.daemon()
        world.works()
        with world.client() as client:
            assert client.status().pressure.level == "normal"
        world.ends()


def test_neither_affinity_nor_priority_may_be_changed(long_form: bool) -> None:
    with World(prefix=[sys.executable, str(FORBIDS)]) as world:
        world.daemon()
        if "not forbidden" in world.log:
            pytest.skip(f"this kernel forbids nothing: {world.log}")
        world.works(llm=long_form)
        worker = children(world.process.pid)[-1]
        assert "Seccomp:\t2" in Path(f"/proc/{worker}/status").read_text()
        world.ends()
    with World(prefix=[sys.executable, str(FORBIDS), "all"]) as world:
        world.refused(1, "sched_setscheduler", "SystemCallFilter")


def test_too_few_open_files_are_told_and_enough_are_enough(long_form: bool) -> None:
    with World(prefix=["prlimit", "--nofile=64:64"]) as world:
        world.refused(1, "64 files", "ulimit -n", "LimitNOFILE")
        # a question of its own has no clients, and needs fewer
        assert "Paris" in world.verb("ask", QUESTION, "--no-speech", "--standalone")
    if long_form:
        with World(prefix=["prlimit", "--nofile=256:256"]) as world:
            world.daemon()
            world.works()
            world.ends()


# --- time -------------------------------------------------------------------------------------------------------------
def test_a_wall_clock_that_jumps_moves_no_timer(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        lacks("compiler", "there is no C compiler for a clock of its own")
    (tmp_path / "clock.c").write_text(CLOCK)
    library, offset = tmp_path / "clock.so", tmp_path / "offset"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "clock.c", "-ldl"], check=True)
    offset.write_text("0")
    with World() as world:
        world.environ |= {"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(offset)}
        world.daemon()
        assert world.ask("set a timer for ten minutes").outcome == Outcome.HANDLED
        for hours in (30 * 24, -30 * 24):
            offset.write_text(str(hours * 3600))
            world.works(llm=False)
            assert [540 < timer.left_s <= 600 for timer in world.timers()] == [True]
            with world.client() as client:  # whose clock is ours
                assert abs(client.snapshot().time - time.time() - hours * 3600) < 60
        world.ends()
        # a restart at another time of day on the same boot
        offset.write_text(str(365 * 24 * 3600))
        world.daemon()
        assert [500 < timer.left_s <= 600 for timer in world.timers()] == [True]
        world.ends()


@pytest.mark.root
def test_a_machine_that_was_asleep_finds_its_timers_late_and_none_lost() -> None:
    """A time namespace: the clock that goes on during sleep is two hours later at the next start."""
    if not os.path.exists("/proc/self/ns/time"):
        pytest.skip("this kernel has no time namespaces")
    shm = "mount -t tmpfs tmpfs /dev/shm"  # processes seem to have been started at other times: nobody else's be swept
    with World(shm) as world:
        world.daemon()
        for what in ("set a timer for one hour called roast", "set a timer for three hours called bread"):
            assert world.ask(what).outcome == Outcome.HANDLED
        world.ends()
        # the same state in a later world
        with World(shm, prefix=["unshare", "--time", "--boottime", "7200", "--fork", "--kill-child"]) as later:
            shutil.copytree(world.state, later.state, dirs_exist_ok=True)
            later.start()
            assert until(lambda: "ready: " in later.log, 15), later.log
            assert until(lambda: "timer 1 has ended" in later.log)
            with later.client() as client:
                assert [(timer.id, 3500 < timer.left_s <= 3600) for timer in client.timers()] == [("2", True)]


# --- processes that stand still ---------------------------------------------------------------------------------------
def test_a_daemon_that_was_stopped_goes_on() -> None:
    with World() as world:
        world.daemon()
        assert world.ask("set a timer for ten minutes").outcome == Outcome.HANDLED
        family = [world.process.pid, *children(world.process.pid)]
        stop(family)
        world.verb("status", code=3)
        threading.Timer(0.2, go_on, (family,)).start()
        world.works(llm=False)
        assert len(world.timers()) == 1
        world.ends()


def test_workers_that_were_stopped_for_good_are_replaced() -> None:
    with World() as world:
        world.daemon("stages.intent.start_timeout_s=3", "stages.intent.step_timeout_s=2")
        world.works()
        stopped = children(world.process.pid)
        stop(stopped)
        outcomes = [world.ask(LOCAL) for _ in range(3)]
        assert outcomes[-1].outcome == Outcome.HANDLED, outcomes
        for one in outcomes:
            assert one.error is None or one.error.retryable
        assert until(lambda: world.ask(QUESTION).outcome == Outcome.ANSWERED, 15)
        assert until(lambda: not any(map(alive, stopped)))
        world.ends()


def stop(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


def go_on(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
