"""The fork server of real workers: killed, standing still, asked by one who has left; nobody outlives the daemon."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assistant.errors import StageDied, StageHung, StageStartTimeout
from assistant.messages import Stage
from assistant.stages.fork_client import ForkServer
from assistant.stages.process import Worker
from tests.stages.workers import ENGINE, REQUEST, config, gone, run, worker


def test_workers_die_with_the_daemon_even_when_it_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "daemon.py"
    script.write_text(
        "import asyncio, os, signal\n"
        "from tests.stages.workers import *\n"
        "async def main():\n"
        "    server = ForkServer(); server.start()\n"
        "    one = Worker(Stage.LLM, server)\n"
        "    await one.prepare(ENGINE, 10)\n"
        "    await one.load(config('hang-on-run'), 10)\n"
        "    print(one.pid, server.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )

    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(root)}
    )
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    deadline = time.monotonic() + 5
    while not all(gone(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert all(gone(pid) for pid in pids)


def test_the_kernel_prefers_workers_over_the_daemon() -> None:
    async def test() -> None:
        async with worker() as one:
            theirs = int(Path(f"/proc/{one.pid}/oom_score_adj").read_text())
            assert theirs > int(Path("/proc/self/oom_score_adj").read_text())

    run(test)


def test_a_killed_fork_server_fails_what_waits_at_once() -> None:
    async def test() -> None:
        server = ForkServer()
        async with worker("hang-on-run", server=server) as one:
            task = asyncio.ensure_future(anext(one.run(REQUEST, 30)))
            await asyncio.sleep(0.1)
            os.kill(server.pid, 9)
            with pytest.raises(StageDied):
                await asyncio.wait_for(task, 5)

    run(test)


def test_a_killed_fork_server_is_started_again_by_the_next_worker() -> None:
    async def test() -> None:
        server = ForkServer()
        async with worker("slow", server=server) as one:
            first = server.pid
            os.kill(first, 9)
            with pytest.raises(StageDied):
                async for _ in one.run(REQUEST, 5):
                    pass
            two = Worker(Stage.LLM, server)
            try:
                await two.prepare(ENGINE, 10)
                await two.load(config(""), 10)
                assert len([body async for body in two.run(REQUEST, 5)]) == 4
                assert server.pid != first
            finally:
                await two.stop()

    run(test)


def test_a_fork_that_nobody_waited_for_is_killed_and_the_next_worker_gets_its_own_process() -> None:
    async def test() -> None:
        async with worker() as one:
            server = one._server
            late = Worker(Stage.LLM, server)
            task = asyncio.create_task(late.prepare(ENGINE, 10))
            await asyncio.sleep(0)  # the request is out, the answer is not in
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
            other = Worker(Stage.LLM, server)
            try:
                await other.prepare(ENGINE, 10)
                await other.load(config(""), 10)
                assert len([body async for body in other.run(REQUEST, 5)]) == 4
                deadline = time.monotonic() + 3
                while (ours := set(children.read_text().split())) != {str(one.pid), str(other.pid)}:
                    assert time.monotonic() < deadline, ours
                    await asyncio.sleep(0.02)
            finally:
                await other.stop()

    run(test)


def test_a_fork_server_that_stands_still_delays_nobody_for_ever() -> None:
    async def test() -> None:
        server = ForkServer()
        async with worker("hang-on-run", server=server) as one:
            os.kill(server.pid, signal.SIGSTOP)
            started = time.monotonic()
            with pytest.raises(StageHung):
                async for _ in one.run(REQUEST, 0.3):
                    pass
            assert time.monotonic() - started < 4
            late = Worker(Stage.LLM, server)  # a new server, since the old one was of no use
            await late.prepare(ENGINE, 10)
            os.kill(server.pid, signal.SIGSTOP)
            with pytest.raises(StageStartTimeout, match="fork server") as caught:
                await Worker(Stage.LLM, server).prepare(ENGINE, 0.3)
            assert caught.value.stage == "llm"
            await late.stop()

    run(test)
