"""The int8 copy is what CTranslate2 would have made, and its loss or damage never shows."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.errors import EngineFailed, ModelDamaged, ModelMissing, ModelUnsupported
from assistant.messages import AsrRequest, Transcript
from assistant.model_store.derived import MARKER, NOTE, Found, Marker
from assistant.model_store.store import ModelInfo
from assistant.stages.asr_whisper import WhisperAsr
from assistant.stages.base import EngineConfig
from assistant.stages.whisper_weights import cache_of, check_files, int8_copy, quantise, read_layout
from tests.speech_corpus import clip_pcm
from tests.stages.asr_engines import CASES
from tests.stages.disks import mounted_tmpfs, read_only

WHISPER = next(case for case in CASES if case.engine == "whisper")


def text(value: str) -> bytes:
    return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"


def tiny_model(folder: Path, spec: str = "WhisperSpec") -> Path:
    """Two variables and an alias in the published format."""
    folder.mkdir()
    weight = np.array([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0]], "<f2")
    bias = np.array([1.0, 2.0], "<f2")
    data = struct.pack("<I", 6) + text(spec) + struct.pack("<II", 3, 2)
    data += text("a/weight") + struct.pack("<BIIBI", 2, 2, 3, 4, weight.nbytes) + weight.tobytes()
    data += text("a/bias") + struct.pack("<BIBI", 1, 2, 4, bias.nbytes) + bias.tobytes()
    data += struct.pack("<I", 1) + text("b/weight") + text("a/weight")
    (folder / "model.bin").write_bytes(data)
    (folder / "config.json").write_text("{}")
    (folder / "vocabulary.txt").write_text("a\nb\n")
    return folder


def config_of(source: Path, cache: Path) -> EngineConfig:
    return EngineConfig(model="m", model_dir=source, cache_dir=cache, threads=2)


def copied(source: Path, cache: Path) -> Found:
    return int8_copy(source, check_files("m", source), cache_of(config_of(source, cache)))


def test_matrices_become_int8_with_a_scale_and_the_rest_stays(tmp_path: Path) -> None:
    source = tiny_model(tmp_path / "model")
    copy = copied(source, tmp_path / "cache").path
    layout = read_layout(copy / "model.bin")
    assert [(v.name, v.shape, v.type_id) for v in layout.variables] == [
        ("a/weight", (2, 3), 1),
        ("a/weight_scale", (2,), 0),
        ("a/bias", (2,), 4),
    ]
    assert layout.aliases == (("b/weight", "a/weight"),)
    assert sorted(os.listdir(copy)) == [NOTE, MARKER, "config.json", "model.bin", "vocabulary.txt"]


def test_quantising_keeps_each_row_within_half_a_step() -> None:
    weight = np.random.default_rng(0).normal(0, 1, (5000, 8)).astype(np.float16)
    quantised, scale = quantise(weight)
    assert quantised.dtype == np.int8
    assert np.abs(quantised / scale[:, None] - weight).max(axis=1).max() <= (0.5 / scale).max() + 1e-6
    assert np.abs(quantised).max(axis=1).min() == 127


def test_the_copy_is_named_by_the_content_of_the_model(tmp_path: Path) -> None:
    source = tiny_model(tmp_path / "model")
    found = copied(source, tmp_path / "cache")
    os.utime(source / "model.bin", ns=(1, 1))
    assert cache_of(config_of(source, tmp_path / "cache")).path == found.path
    moved = source.rename(tmp_path / "another checkout")
    assert cache_of(config_of(moved, tmp_path / "cache")).path == found.path
    (moved / "model.bin").write_bytes((moved / "model.bin").read_bytes() + b"x")
    assert cache_of(config_of(moved, tmp_path / "cache")).path != found.path


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    source = tiny_model(tmp_path / "model")
    (tmp_path / "file").touch()
    with pytest.raises(EngineFailed, match="XDG_CACHE_HOME") as caught:
        copied(source, tmp_path / "file")
    assert caught.value.code == "cache-not-writable"


# --- checking -------------------------------------------------------------------------------------------------------
@settings(max_examples=80, deadline=None)
@given(kept=st.integers(0, 200), extra=st.binary(max_size=3))
def test_any_other_length_is_damage(tmp_path_factory: pytest.TempPathFactory, kept: int, extra: bytes) -> None:
    source = tiny_model(tmp_path_factory.mktemp("damage") / "model")
    path = source / "model.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:kept] if kept < len(whole) else whole + b"\0" + extra)
    with pytest.raises(ModelDamaged, match="assistant models rm m"):
        check_files("m", source)


def test_other_models_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelUnsupported, match="TransformerSpec"):
        check_files("m", tiny_model(tmp_path / "other", "TransformerSpec"))
    source = tiny_model(tmp_path / "model")
    (source / "vocabulary.txt").unlink()
    with pytest.raises(ModelMissing, match=r"no vocabulary\.txt"):
        check_files("m", source)


# --- with real weights ----------------------------------------------------------------------------------------------
def heard(whisper: ModelInfo, pcm: bytes, cache: Path, *, distrust_cache: bool = False, free: int = 1 << 40) -> str:
    config = EngineConfig(
        model=whisper.name,
        model_dir=whisper.path,
        digest=whisper.digest,
        cache_dir=cache,
        threads=2,
        distrust_cache=distrust_cache,
    )
    engine = WhisperAsr(config, free=lambda folder: free)
    engine.load()
    *_, last = engine.run(AsrRequest(pcm=pcm))
    engine.close()
    assert isinstance(last, Transcript)
    return f"{last.text} {last.confidence}"


@pytest.fixture(scope="module")
def whisper(model: Callable[[str], ModelInfo]) -> ModelInfo:
    return model(WHISPER.model)


@pytest.fixture(scope="module")
def pcm(speech: Path) -> bytes:
    return clip_pcm(speech, WHISPER.clip)


@pytest.fixture(scope="module")
def good(whisper: ModelInfo, pcm: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("good")
    heard(whisper, pcm, root)
    return root


@pytest.fixture
def cache(good: Path, tmp_path: Path) -> Path:
    """A copy that may be harmed."""
    return Path(shutil.copytree(good, tmp_path / "cache"))


def copy_in(cache: Path) -> Path:
    (copy,) = (path for path in cache.iterdir() if not path.name.startswith("."))
    return copy


def made(cache: Path) -> str:
    return msgspec.json.decode((copy_in(cache) / MARKER).read_bytes(), type=Marker).id


@pytest.mark.engine
def test_the_copy_hears_exactly_what_the_original_hears(
    whisper: ModelInfo, pcm: bytes, good: Path, tmp_path: Path
) -> None:
    before = made(good)
    assert heard(whisper, pcm, good) == heard(whisper, pcm, tmp_path / "no room", free=0)
    assert made(good) == before
    assert list((tmp_path / "no room").iterdir()) == []
    assert (copy_in(good) / "model.bin").stat().st_size < 0.55 * (whisper.path / "model.bin").stat().st_size


@pytest.mark.engine
def test_the_engine_names_its_copy_and_says_whether_it_made_it(whisper: ModelInfo, tmp_path: Path) -> None:
    for made_now in (True, False):
        engine = WhisperAsr(config_of(whisper.path, tmp_path))
        engine.load()
        assert (engine.info.derived, engine.info.exceptional) == (str(copy_in(tmp_path)), made_now)
        engine.close()


def overwrite(copy: Path) -> None:
    """The structure stays right."""
    with (copy / "model.bin").open("r+b") as file:
        file.seek(20 << 20)
        file.write(b"\x55" * (2 << 20))


def truncate(copy: Path) -> None:
    os.truncate(copy / "model.bin", 30 << 20)


def unmark(copy: Path) -> None:
    (copy / MARKER).unlink()


def vocabulary(copy: Path) -> None:
    path = copy / "vocabulary.txt"
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.engine
@pytest.mark.parametrize("harm", [overwrite, truncate, unmark, vocabulary], ids=lambda harm: harm.__name__)
def test_a_harmed_copy_is_made_anew(
    whisper: ModelInfo, pcm: bytes, good: Path, cache: Path, harm: Callable[[Path], None]
) -> None:
    before = made(cache)
    harm(copy_in(cache))
    assert heard(whisper, pcm, cache) == heard(whisper, pcm, good)
    assert made(cache) != before


@pytest.mark.engine
def test_a_start_after_a_crash_makes_the_copy_anew(whisper: ModelInfo, pcm: bytes, cache: Path) -> None:
    before = made(cache)
    assert WHISPER.text in heard(whisper, pcm, cache, distrust_cache=True).lower()
    assert made(cache) != before


@pytest.mark.engine
@pytest.mark.root
def test_a_read_only_copy_is_used(whisper: ModelInfo, pcm: bytes, good: Path, cache: Path) -> None:
    before = made(cache)
    with read_only(cache):
        assert heard(whisper, pcm, cache) == heard(whisper, pcm, good)
    assert made(cache) == before


@pytest.mark.engine
@pytest.mark.root
def test_a_disk_that_fills_up_meanwhile_leaves_nothing_and_the_original_is_used(
    whisper: ModelInfo, pcm: bytes, good: Path, tmp_path: Path
) -> None:
    with mounted_tmpfs(tmp_path / "disk", "10m") as disk:
        assert heard(whisper, pcm, disk) == heard(whisper, pcm, good)
        assert list(disk.iterdir()) == []
        config = EngineConfig(model="m", model_dir=whisper.path, cache_dir=disk, threads=1)
        cache = cache_of(config, free=lambda folder: 1 << 40)
        with pytest.raises(EngineFailed, match="filled up") as caught:
            int8_copy(whisper.path, check_files("m", whisper.path), cache)
        assert caught.value.code == "cache-disk-full"
        assert list(disk.iterdir()) == []
