"""Who runs where: decided from made-up machines, checked on real workers by what the kernel says of them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from assistant.machine import Cpu, usable_cpus
from assistant.messages import STAGE_ORDER, AsrRequest, LlmDelta, LlmRequest, Stage, StageRequest, TtsRequest, Turn
from assistant.model_store.store import ModelInfo
from assistant.stages.base import EngineConfig
from assistant.stages.channel import Prepare, decode_to_worker, encode
from assistant.stages.fork_client import ForkServer
from assistant.stages.placement import NICE, Placement, placement, threads_for
from assistant.stages.process import Worker
from assistant.stages.registry import engine_path
from tests.stages.running import config_of, question
from tests.stages.self_portrait import THREADS

ENGINE = "tests.stages.self_portrait:SelfPortrait"
REQUEST = LlmRequest(turns=(Turn(role="user", content="who are you"),))


# --- which place ----------------------------------------------------------------------------------------------------
def cores(*capacities: int, siblings: int = 1) -> list[Cpu]:
    """One core for each capacity; `siblings` hyper-threads each, numbered as x86 does: first all first ones."""
    return [
        Cpu(number + turn * len(capacities), (0, 0, number), capacity)
        for turn in range(siblings)
        for number, capacity in enumerate(capacities)
    ]


@pytest.mark.parametrize(
    ("cpus", "llm", "threads"),
    [
        pytest.param(cores(1024), (), 1, id="one core"),
        pytest.param(cores(1024, 1024, 1024), (), 3, id="three cores are too few to give one away"),
        pytest.param(cores(1024, 1024, siblings=2), (), 2, id="two cores with hyper-threads are two cores"),
        pytest.param(cores(1024, 1024, 1024, 1024), (1, 2, 3), 3, id="a Raspberry Pi"),
        pytest.param(cores(*[1024] * 4, siblings=2), (1, 2, 3, 5, 6, 7), 3, id="a core is left with its sibling"),
        pytest.param(cores(446, 446, 446, 446, 1024, 1024), (4, 5), 2, id="RK3399: two big of six"),
        pytest.param(cores(1024, 1024, 530, 530, 530, 530), (0, 1), 2, id="big ones first"),
        pytest.param(cores(280, 280, 280, 280, 800, 800, 800, 1024), (4, 5, 6, 7), 4, id="a prime core is a big one"),
        pytest.param(cores(300, 300, 300, 1024), (1, 2, 3), 3, id="one big core is no team"),
        pytest.param(cores(1009, 1024, 1009, 1000), (0, 1, 2), 3, id="nearly equal ones leave the slowest"),
    ],
)
def test_the_llm_leaves_a_core_to_audio_where_there_are_enough(
    cpus: list[Cpu], llm: tuple[int, ...], threads: int
) -> None:
    placed = placement(Stage.LLM, cpus)
    assert placed.cpus == llm
    assert threads_for(placed, cpus) == threads
    for stage in (Stage.ASR, Stage.INTENT, Stage.TTS):
        assert placement(stage, cpus) == Placement(nice=NICE[stage])
        assert threads_for(placement(stage, cpus), cpus) == len({cpu.core for cpu in cpus})


def test_hearing_and_speaking_go_before_understanding_and_that_before_thinking_and_audio_before_all() -> None:
    nice = {stage: placement(stage, usable_cpus()).nice for stage in STAGE_ORDER}
    assert 0 < nice[Stage.ASR] == nice[Stage.TTS] < nice[Stage.INTENT] < nice[Stage.LLM]


def test_a_place_without_a_usable_core_still_has_a_thread() -> None:
    assert threads_for(Placement(cpus=(7,)), cores(1024, 1024)) == 1


def test_a_place_goes_over_the_channel() -> None:
    frame = Prepare(stage="llm", engine="a:B", placement=Placement(nice=5, cpus=(1, 2)))
    assert decode_to_worker(encode(frame)[4:]) == frame


# --- which CPUs -----------------------------------------------------------------------------------------------------
def cpu_files(root: Path, number: int, **files: int) -> None:
    folder = root / f"sys/devices/system/cpu/cpu{number}"
    (folder / "topology").mkdir(parents=True)
    for name, value in files.items():
        (folder / name if name == "cpu_capacity" else folder / "topology" / name).write_text(f"{value}\n")


def test_cores_of_two_clusters_may_have_the_same_id(tmp_path: Path) -> None:
    # what an RK3399 shows: core_id starts anew in each cluster, and both are in package 0
    for number in range(6):
        big = number >= 4
        cpu_files(
            tmp_path, number, physical_package_id=0, cluster_id=int(big), core_id=number - 4 * big,
            cpu_capacity=1024 if big else 446,
        )  # fmt: skip
    cpus = usable_cpus(tmp_path, range(6))
    assert len({cpu.core for cpu in cpus}) == 6
    assert [cpu.capacity for cpu in cpus] == [446] * 4 + [1024] * 2
    assert placement(Stage.LLM, cpus).cpus == (4, 5)


def test_hyper_threads_share_a_core_and_sockets_do_not(tmp_path: Path) -> None:
    for number in range(8):
        cpu_files(tmp_path, number, physical_package_id=number // 2 % 2, core_id=number % 2)
    cpus = usable_cpus(tmp_path, range(8))
    assert len({cpu.core for cpu in cpus}) == 4
    assert {cpu.capacity for cpu in cpus} == {1024}


def test_a_kernel_that_tells_nothing_has_as_many_cores_as_cpus(tmp_path: Path) -> None:
    (tmp_path / "sys/devices/system/cpu/cpu1/topology").mkdir(parents=True)
    (tmp_path / "sys/devices/system/cpu/cpu1/topology/core_id").write_text("nonsense\n")
    assert [cpu.number for cpu in usable_cpus(tmp_path, {2, 0, 1})] == [0, 1, 2]
    assert len({cpu.core for cpu in usable_cpus(tmp_path, {2, 0, 1})}) == 3


def test_the_cpus_of_this_machine() -> None:
    cpus = usable_cpus()
    assert {cpu.number for cpu in cpus} == os.sched_getaffinity(0)
    assert 1 <= len({cpu.core for cpu in cpus}) <= len(cpus)
    assert all(0 < cpu.capacity <= 1024 for cpu in cpus)


# --- real workers ---------------------------------------------------------------------------------------------------
def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


@asynccontextmanager
async def placed_worker(placed: Placement) -> AsyncIterator[tuple[Worker, ForkServer]]:
    server = ForkServer()
    server.start()
    one = Worker(Stage.LLM, server)
    try:
        await one.prepare(ENGINE, 10, placed)
        await one.load(EngineConfig(model="m", model_dir=Path(), cache_dir=Path("/tmp"), threads=1), 10)
        yield one, server
    finally:
        await one.stop()
        await server.close()


async def portrait(one: Worker) -> dict[str, object]:
    (said,) = [body async for body in one.run(REQUEST, 5)]
    assert isinstance(said, LlmDelta)
    seen: dict[str, object] = json.loads(said.text)
    return seen


def niceness(pid: int, task: int) -> int:
    """Field 19 of its stat; the second field, a name, may hold spaces."""
    return int(Path(f"/proc/{pid}/task/{task}/stat").read_text().rpartition(")")[2].split()[19 - 3])


def tasks(pid: int) -> list[int]:
    return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]


def test_a_worker_and_every_thread_of_its_engine_have_the_place_that_was_asked_for() -> None:
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    every, one_cpu = os.sched_getaffinity(0), max(os.sched_getaffinity(0))

    async def test() -> None:
        async with placed_worker(Placement(nice=5, cpus=(one_cpu,))) as (one, server):
            assert len(tasks(one.pid)) > THREADS
            for task in tasks(one.pid):
                assert niceness(one.pid, task) == min(19, ours + 5)
                assert os.sched_getaffinity(task) == {one_cpu}
            # the engine's libraries count CPUs and start threads when they are imported
            seen = await portrait(one)
            assert (seen["nice"], seen["cpus"]) == (min(19, ours + 5), [one_cpu])
            # the next worker is forked from a server that has moved nowhere
            assert niceness(server.pid, server.pid) == ours
            assert os.sched_getaffinity(server.pid) == every

    run(test)


def session_nice(pid: int) -> str:
    """As in "/autogroup-12 nice 0"; nothing where the kernel does not share CPUs among sessions."""
    file = Path(f"/proc/{pid}/autogroup")
    return file.read_text().rpartition(" ")[2].strip() if file.exists() else ""


def test_the_workers_session_yields_to_the_daemons() -> None:
    ours = session_nice(os.getpid())
    if not ours:
        pytest.skip("this kernel has no sched_autogroup")

    async def test() -> None:
        async with placed_worker(Placement()) as (_, server):
            assert session_nice(server.pid) == "0"
        async with placed_worker(Placement(nice=1)) as (one, server):
            assert session_nice(one.pid) == session_nice(server.pid) == "1"
        assert session_nice(os.getpid()) == ours

    run(test)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("stage", "engine", "name", "request_"),
    [
        (Stage.ASR, "whisper", "whisper-tiny.en", AsrRequest(pcm=bytes(64000))),
        (Stage.LLM, "mnn", "smollm2-135m-instruct", question("Hi", max_new_tokens=2)),
        (Stage.TTS, "piper", "en_US-joe-medium", TtsRequest(text="hello")),
    ],
)
def test_real_engines_stay_where_they_were_put(
    model: Callable[[str], ModelInfo], tmp_path: Path, stage: Stage, engine: str, name: str, request_: StageRequest
) -> None:
    one_cpu = max(os.sched_getaffinity(0))

    async def test() -> None:
        server = ForkServer()
        server.start()
        one = Worker(stage, server)
        try:
            await one.prepare(engine_path(stage, engine), 20, Placement(nice=3, cpus=(one_cpu,)))
            await one.load(config_of(model(name), tmp_path), 60)
            assert [body async for body in one.run(request_, 30)]
            assert len(tasks(one.pid)) > 1
            places = {(niceness(one.pid, task), *os.sched_getaffinity(task)) for task in tasks(one.pid)}
            assert places == {(min(19, os.getpriority(os.PRIO_PROCESS, 0) + 3), one_cpu)}
        finally:
            await one.stop()
            await server.close()

    run(test)


def test_a_worker_without_a_place_is_where_the_daemon_is() -> None:
    async def test() -> None:
        async with placed_worker(Placement()) as (one, _):
            assert {niceness(one.pid, task) for task in tasks(one.pid)} == {os.getpriority(os.PRIO_PROCESS, 0)}
            assert os.sched_getaffinity(one.pid) == os.sched_getaffinity(0)

    run(test)


@pytest.mark.parametrize("cpus", [(4000,), (-1,), (1 << 40,)])
def test_cpus_that_are_not_there_are_a_line_in_the_log(caplog: pytest.LogCaptureFixture, cpus: tuple[int, ...]) -> None:
    async def test() -> None:
        async with placed_worker(Placement(nice=1, cpus=cpus)) as (one, _):
            assert (await portrait(one))["cpus"] == sorted(os.sched_getaffinity(0))
            deadline = time.monotonic() + 5
            while "not set" not in caplog.text and time.monotonic() < deadline:
                await asyncio.sleep(0.02)

    with caplog.at_level("DEBUG", logger="assistant"):
        run(test)
    assert f"CPUs ({cpus[0]},) not set" in caplog.text


def test_a_niceness_that_the_kernel_refuses_is_a_line_in_the_log() -> None:
    code = (
        "import logging, os; logging.basicConfig(level=logging.DEBUG)\n"
        "from assistant.stages.placement import Placement\n"
        "from assistant.stages.worker import take_place\n"
        "if os.geteuid() == 0: os.setresuid(65534, 65534, 65534)  # root may be as nice as it likes\n"
        "take_place(Placement(nice=-5)); print(os.nice(0))\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == os.getpriority(os.PRIO_PROCESS, 0)
    assert "niceness -5 not set" in done.stderr


# --- hygiene --------------------------------------------------------------------------------------------------------
def status_field(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:")), "")


def test_hygiene_no_huge_pages_one_heap_arena_and_workers_die_before_the_daemon() -> None:
    async def test() -> None:
        async with placed_worker(Placement()) as (one, server):
            for pid in (server.pid, one.pid):
                assert status_field(pid, "THP_enabled") == "0"
                assert b"MALLOC_ARENA_MAX=1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            assert (await portrait(one))["arenas"] == 1
            score = {pid: int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in (one.pid, os.getpid())}
            assert score[one.pid] > score[os.getpid()]

    run(test)
