"""The cache of mapped weights in a real worker: fast when it is good, and unable to hurt when it is not."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from assistant.errors import EngineFailed
from assistant.messages import LlmDelta, Stage
from assistant.model_store.derived import MARKER, NOTE, Marker, Note
from assistant.model_store.derived_check import mark_of
from assistant.model_store.store import ModelInfo
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.fork_client import ForkServer
from assistant.stages.llm_mnn import CACHE_DAMAGED
from assistant.stages.mnn_cache import build, cache_of
from assistant.stages.process import Worker
from assistant.stages.registry import engine_path
from tests.stages.disks import mounted_tmpfs, read_only
from tests.stages.running import FRANCE, answer, collect, config_of, question, running, text_of

pytestmark = pytest.mark.engine

WEIGHTS = "0_0_0_0_0.static"
PUNCH_HOLE, KEEP_SIZE = 2, 1


@pytest.fixture(scope="module")
def llm(model: Callable[[str], ModelInfo]) -> ModelInfo:
    return model("smollm2-135m-instruct")


@pytest.fixture(scope="module")
def good(llm: ModelInfo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("good")
    answer(llm, root)
    return root


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    """A copy of a good cache, holes kept, to be harmed."""
    subprocess.run(["cp", "-a", "--sparse=always", str(good), str(tmp_path / "cache")], check=True)
    return tmp_path / "cache"


def folder(cache: Path) -> Path:
    (found,) = (path for path in cache.iterdir() if not path.name.startswith("."))
    return found


def made(cache: Path) -> str:
    """Changes when the cache is made anew."""
    return msgspec.json.decode((folder(cache) / MARKER).read_bytes(), type=Marker).id


def harmed_at(weights: Path, begin: int, size: int, byte: bytes) -> None:
    with weights.open("r+b") as file:
        file.seek(begin)
        file.write(byte * size)


def test_a_warm_start_uses_the_cache_and_says_the_same(llm: ModelInfo, good: Path) -> None:
    before = made(good)
    assert answer(llm, good) == answer(llm, good)
    assert made(good) == before


def test_the_engine_names_its_cache_and_says_whether_it_made_it(llm: ModelInfo, tmp_path: Path) -> None:
    async def loaded() -> EngineInfo:
        server = ForkServer()
        server.start()
        worker = Worker(Stage.LLM, server)
        try:
            await worker.prepare(engine_path(Stage.LLM, "mnn"), 20)
            info, _ = await worker.load(config_of(llm, tmp_path), 60)
            return info
        finally:
            await worker.stop()
            await server.close()

    for made_now in (True, False):
        info = asyncio.run(loaded())
        assert (info.derived, info.exceptional) == (str(folder(tmp_path)), made_now)


def test_a_start_of_the_same_boot_reads_nothing_in_full(llm: ModelInfo, good: Path) -> None:
    answer(llm, good)
    found = cache_of(config_of(llm, good)).find()
    assert found is not None
    assert not found.doubtful
    assert not found.check().pending


def truncate(path: Path) -> None:
    os.truncate(path / WEIGHTS, (path / WEIGHTS).stat().st_size // 2)


def punch(path: Path) -> None:
    """Six percent of the data, times put back: what a file system may do to a file that was never synced."""
    stat = (path / WEIGHTS).stat()
    fd = os.open(path / WEIGHTS, os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    off = ctypes.c_long
    if libc.fallocate(fd, PUNCH_HOLE | KEEP_SIZE, off(40 << 20), off(8 << 20)):
        pytest.skip("this file system punches no holes")
    os.close(fd)
    os.utime(path / WEIGHTS, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def overwrite(path: Path) -> None:
    harmed_at(path / WEIGHTS, 40 << 20, 2 << 20, b"\x55")


def lost_in_a_power_cut(path: Path) -> None:
    """As seen after the next boot: nothing but the content has changed."""
    overwrite(path)
    note = msgspec.json.decode((path / NOTE).read_bytes(), type=Note)
    stats = {name: (path / name).stat() for name in note.files}
    files = {name: (stat.st_ino, stat.st_ctime_ns, stat.st_blocks) for name, stat in stats.items()}
    (path / NOTE).write_bytes(msgspec.json.encode(Note("another boot", files)))


def unmark(path: Path) -> None:
    (path / MARKER).unlink()


def scribble(path: Path) -> None:
    (path / MARKER).write_text('{"files": {"../../etc": 3')


def no_numbers(path: Path) -> None:
    """Damage that no digest tells: the marker agrees with it."""
    harmed_at(path / WEIGHTS, 0, 100 << 20, b"\xff")
    names = msgspec.json.decode((path / MARKER).read_bytes(), type=Marker).files
    marker = Marker(format=1, id="harmed", files={name: mark_of(path / name) for name in names})
    (path / MARKER).write_bytes(msgspec.json.encode(marker))


@pytest.mark.parametrize(
    "harm",
    [truncate, punch, overwrite, lost_in_a_power_cut, unmark, scribble, no_numbers],
    ids=lambda harm: harm.__name__,
)
def test_a_harmed_cache_is_made_anew_before_anything_is_said(
    llm: ModelInfo, good: Path, copy: Path, harm: Callable[[Path], None]
) -> None:
    before = made(copy)
    harm(folder(copy))
    assert answer(llm, copy) == answer(llm, good)
    assert made(copy) not in (before, "harmed")
    assert cache_of(config_of(llm, copy)).find() is not None


def test_a_start_after_a_crash_makes_the_cache_anew(llm: ModelInfo, copy: Path) -> None:
    before = made(copy)
    assert "Paris" in answer(llm, copy, distrust_cache=True)
    assert made(copy) != before


def test_numbers_that_go_bad_in_the_middle_are_an_error_once(llm: ModelInfo, copy: Path) -> None:
    """The file is mapped shared, so writing to it harms the weights of the running worker."""

    async def go() -> None:
        async with running(Stage.LLM, "mnn", config_of(llm, copy)) as worker:
            stream = worker.run(question("Tell me a long story.", max_new_tokens=300), 30)
            weights = folder(copy) / WEIGHTS
            with pytest.raises(EngineFailed, match="ask again") as caught:
                async for out in stream:
                    if isinstance(out, LlmDelta) and weights.exists():
                        harmed_at(weights, 0, 100 << 20, b"\xff")
            assert caught.value.code == CACHE_DAMAGED
            assert text_of(await collect(worker, question(FRANCE, max_new_tokens=8)))

    asyncio.run(go())
    assert "Paris" in answer(llm, copy)


def test_a_cache_of_other_settings_or_another_model_is_never_opened(tmp_path: Path) -> None:
    def path(digest: str) -> Path:
        return cache_of(EngineConfig(model="m", model_dir=tmp_path, digest=digest, cache_dir=tmp_path, threads=1)).path

    assert path("a") != path("b")
    assert path("a") == path("a")


# --- disks ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_tmpfs(tmp_path / "disk", "40m") as disk:
        yield disk


@pytest.mark.root
def test_a_full_disk_is_told_before_anything_is_written(llm: ModelInfo, tiny_disk: Path) -> None:
    with pytest.raises(EngineFailed, match="MiB free") as caught:
        answer(llm, tiny_disk)
    assert caught.value.code == "cache-disk-full"
    assert list(tiny_disk.iterdir()) == []


@pytest.mark.root
def test_a_disk_that_fills_up_meanwhile_is_told_and_nothing_stays(llm: ModelInfo, tiny_disk: Path) -> None:
    cache = cache_of(config_of(llm, tiny_disk), free=lambda folder: 1 << 40)
    with pytest.raises(EngineFailed, match="filled up") as caught:
        build(llm.path, cache, 1)
    assert caught.value.code == "cache-disk-full"
    assert list(tiny_disk.iterdir()) == []


@pytest.mark.root
def test_a_read_only_cache_answers_from_memory(llm: ModelInfo, good: Path, copy: Path) -> None:
    before = made(copy)
    with read_only(copy):
        assert answer(llm, copy) == answer(llm, good)
    assert made(copy) == before


@pytest.mark.root
def test_a_read_only_disk_without_a_cache_answers_from_memory(llm: ModelInfo, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    with read_only(tmp_path / "cache"):
        assert "Paris" in answer(llm, tmp_path / "cache")


# --- makers ---------------------------------------------------------------------------------------------------------
def test_the_maker_of_a_cache_does_not_outlive_its_worker(llm: ModelInfo, tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.mnn_cache import build, cache_of
model, cache = Path(sys.argv[1]), Path(sys.argv[2])
build(model, cache_of(EngineConfig(model="m", model_dir=model, digest="d", cache_dir=cache, threads=1)), 1)
"""
    worker = subprocess.Popen([sys.executable, "-c", code, str(llm.path), str(tmp_path)])
    deadline = time.monotonic() + 10
    while not list(tmp_path.glob(".tmp-*/*.static")) and time.monotonic() < deadline:
        time.sleep(0.005)
    worker.kill()
    worker.wait()
    deadline = time.monotonic() + 10
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []
