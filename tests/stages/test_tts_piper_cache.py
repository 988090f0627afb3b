"""The prepared files of the real voice: used when they are good, made anew on any doubt."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from assistant.errors import EngineFailed
from assistant.messages import TtsRequest
from assistant.model_store.derived import MARKER, Derived, Marker
from assistant.model_store.store import ModelInfo
from assistant.stages import tts_piper_cache
from assistant.stages.base import EngineConfig
from assistant.stages.tts_piper import PiperTts
from tests.stages.disks import mounted_tmpfs, read_only

pytestmark = pytest.mark.engine

STILL = {"noise_scale": 0.0, "noise_w_scale": 0.0}


@pytest.fixture(scope="module")
def voice(model: Callable[[str], ModelInfo]) -> ModelInfo:
    return model("en_US-joe-medium")


@pytest.fixture(scope="module")
def good(voice: ModelInfo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("good")
    said(voice, root)
    return root


@pytest.fixture
def cache(good: Path, tmp_path: Path) -> Path:
    """A copy that may be harmed."""
    return Path(shutil.copytree(good, tmp_path / "cache"))


def config_of(voice: ModelInfo, cache: Path) -> EngineConfig:
    return EngineConfig(
        model=voice.name, model_dir=voice.path, digest=voice.digest, cache_dir=cache, threads=2, options=STILL
    )


def said(voice: ModelInfo, cache: Path, *, distrust_cache: bool = False) -> bytes:
    engine = PiperTts(
        msgspec.structs.replace(config_of(voice, cache), distrust_cache=distrust_cache), free=lambda folder: 1 << 40
    )
    engine.load()
    pcm = b"".join(audio.pcm for audio in engine.run(TtsRequest(text="Yes.")))
    engine.close()
    assert len(pcm) > 1000
    return pcm


def folder(cache: Path) -> Path:
    (found,) = (path for path in cache.iterdir() if not path.name.startswith("."))
    return found


def made(cache: Path) -> str:
    return msgspec.json.decode((folder(cache) / MARKER).read_bytes(), type=Marker).id


def test_an_engine_names_its_files_and_says_whether_it_made_them(voice: ModelInfo, tmp_path: Path) -> None:
    for made_now in (True, False):
        engine = PiperTts(config_of(voice, tmp_path))
        engine.load()
        assert (engine.info.derived, engine.info.exceptional) == (str(folder(tmp_path)), made_now)
        engine.close()


def test_prepared_files_are_used_again(voice: ModelInfo, good: Path) -> None:
    before = made(good)
    assert said(voice, good) == said(voice, good)
    assert made(good) == before


def truncated(folder: Path) -> None:
    os.truncate(folder / "encoder.bin", 1000)


def one_bit(folder: Path) -> None:
    with (folder / "encoder.bin").open("r+b") as file:
        file.seek(1_000_000)
        byte = file.read(1)[0]
        file.seek(1_000_000)
        file.write(bytes([byte ^ 1]))


def graph(folder: Path) -> None:
    (folder / "decoder.onnx").write_bytes(bytes((folder / "decoder.onnx").stat().st_size))


def no_file(folder: Path) -> None:
    (folder / "decoder.bin").unlink()


def no_sights(folder: Path) -> None:
    (folder / "sights.json").write_text("{}")


def marker(folder: Path) -> None:
    (folder / MARKER).write_text("{")


@pytest.mark.parametrize(
    "harm", [truncated, one_bit, graph, no_file, no_sights, marker], ids=lambda harm: harm.__name__
)
def test_harmed_files_are_made_anew(voice: ModelInfo, good: Path, cache: Path, harm: Callable[[Path], None]) -> None:
    before = made(cache)
    harm(folder(cache))
    assert said(voice, cache) == said(voice, good)
    assert made(cache) != before


def test_a_start_after_a_crash_makes_them_anew(voice: ModelInfo, good: Path, cache: Path) -> None:
    before = made(cache)
    (folder(cache) / tts_piper_cache.GAIN).write_text('{"gain": 0.06}')
    assert said(voice, cache, distrust_cache=True) == said(voice, good)
    assert made(cache) != before


def test_another_onnxruntime_or_voice_has_files_of_its_own(voice: ModelInfo, tmp_path: Path) -> None:
    def path(digest: str, version: str) -> Path:
        config = msgspec.structs.replace(config_of(voice, tmp_path), digest=digest)
        return tts_piper_cache.cache_of(config, voice.path, version).path

    assert len({path("a", "1"), path("a", "2"), path("b", "1"), path("a", "1")}) == 3


@pytest.mark.root
def test_read_only_files_are_used(voice: ModelInfo, good: Path, cache: Path) -> None:
    before = made(cache)
    with read_only(cache):
        assert said(voice, cache) == said(voice, good)
    assert made(cache) == before


@pytest.mark.root
def test_read_only_files_that_are_distrusted_are_read_in_full_and_used(
    voice: ModelInfo, good: Path, cache: Path
) -> None:
    said(voice, cache)
    with read_only(cache):
        assert said(voice, cache, distrust_cache=True) == said(voice, good)


@pytest.mark.root
@pytest.mark.parametrize("size", ["3m", "30m", "58m"])
def test_a_disk_that_fills_up_meanwhile_is_told_and_nothing_stays(
    voice: ModelInfo, good: Path, tmp_path: Path, size: str
) -> None:
    assert made(good)
    with mounted_tmpfs(tmp_path / "disk", size) as disk:
        with pytest.raises(EngineFailed, match="filled up") as caught:
            said(voice, disk)
        assert caught.value.code == "cache-disk-full"
        assert list(disk.iterdir()) == []


def test_the_maker_does_not_outlive_a_caller_that_is_killed(voice: ModelInfo, tmp_path: Path) -> None:
    """Killed at many moments, among them those at which the maker still imports."""
    code = """
import sys
from pathlib import Path
from assistant.stages.tts_piper_cache import build
from assistant.model_store.derived import Derived
build(Path(sys.argv[1]), Derived(Path(sys.argv[2]), "cut", "d", {}))
"""
    onnx = voice.path / f"{voice.name}.onnx"
    for delay_s in (0.0, 0.05, 0.15, 0.4):
        caller = subprocess.Popen([sys.executable, "-c", code, str(onnx), str(tmp_path)])
        until(children, caller.pid)
        (maker,) = children(caller.pid)
        time.sleep(delay_s)
        caller.kill()
        caller.wait()
        until(ended, maker)
    assert list(tmp_path.iterdir()) == []
    assert Derived(tmp_path, "cut", "d", {}).find() is None


def until(true: Callable[[int], object], pid: int, timeout_s: float = 8) -> None:
    deadline = time.monotonic() + timeout_s
    while not true(pid):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ended(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True
