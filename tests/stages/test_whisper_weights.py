"""The int8 copy is what CTranslate2 would have made, and its loss or damage never shows."""

from __future__ import annotations

import os
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.errors import ModelDamaged, ModelMissing, ModelUnsupported
from assistant.messages import AsrRequest, Transcript
from assistant.model_store.store import ModelInfo
from assistant.stages.whisper_weights import check_files, int8_copy, quantise, read_layout
from tests.speech_corpus import clip_pcm
from tests.stages.asr_engines import CASES

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


def test_matrices_become_int8_with_a_scale_and_the_rest_stays(tmp_path: Path) -> None:
    source = tiny_model(tmp_path / "model")
    copy = int8_copy("m", source, check_files("m", source), tmp_path)
    layout = read_layout(copy / "model.bin")
    assert [(v.name, v.shape, v.type_id) for v in layout.variables] == [
        ("a/weight", (2, 3), 1),
        ("a/weight_scale", (2,), 0),
        ("a/bias", (2,), 4),
    ]
    assert layout.aliases == (("b/weight", "a/weight"),)
    assert sorted(os.listdir(copy)) == ["config.json", "model.bin", "vocabulary.txt"]


def test_quantising_keeps_each_row_within_half_a_step() -> None:
    weight = np.random.default_rng(0).normal(0, 1, (5000, 8)).astype(np.float16)
    quantised, scale = quantise(weight)
    assert quantised.dtype == np.int8
    assert np.abs(quantised / scale[:, None] - weight).max(axis=1).max() <= (0.5 / scale).max() + 1e-6
    assert np.abs(quantised).max(axis=1).min() == 127


def test_a_copy_is_reused_and_a_damaged_or_outdated_one_is_replaced(tmp_path: Path) -> None:
    source = tiny_model(tmp_path / "model")
    cache = tmp_path / "cache"
    cache.mkdir()

    def copied() -> Path:
        return int8_copy("m", source, check_files("m", source), cache)

    first = copied()
    made = (first / "model.bin").stat().st_ino
    assert copied() == first
    assert (first / "model.bin").stat().st_ino == made
    whole = (first / "model.bin").read_bytes()
    os.truncate(first / "model.bin", len(whole) - 1)
    assert (copied() / "model.bin").read_bytes() == whole
    os.utime(source / "model.bin", ns=(1, 1))
    assert copied() != first
    assert len(os.listdir(cache)) == 1


def test_what_a_killed_worker_left_is_swept_when_it_is_old(tmp_path: Path) -> None:
    source = tiny_model(tmp_path / "model")
    old, young = tmp_path / ".m-int8-old", tmp_path / ".m-int8-young"
    old.mkdir()
    young.mkdir()
    os.utime(old, (time.time() - 3600,) * 2)
    int8_copy("m", source, check_files("m", source), tmp_path)
    assert (old.exists(), young.exists()) == (False, True)


def test_a_cache_that_cannot_be_written_is_an_os_error(tmp_path: Path) -> None:
    source = tiny_model(tmp_path / "model")
    with pytest.raises(OSError, match="none"):
        int8_copy("m", source, check_files("m", source), tmp_path / "none")


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
@pytest.mark.engine
def test_the_copy_hears_exactly_what_the_original_hears(
    model: Callable[[str], ModelInfo], speech: Path, tmp_path: Path
) -> None:
    pcm = clip_pcm(speech, WHISPER.clip)

    def heard(cache: Path) -> Transcript:
        engine = WHISPER.build(model(WHISPER.model).path, cache)
        engine.load()
        *_, last = engine.run(AsrRequest(pcm=pcm))
        engine.close()
        assert isinstance(last, Transcript)
        return last

    fallback = heard(tmp_path / "cannot-be-written")
    assert heard(tmp_path) == fallback
    (copy,) = tmp_path.iterdir()
    assert (copy / "model.bin").stat().st_size < 0.55 * (model(WHISPER.model).path / "model.bin").stat().st_size
    shutil.rmtree(copy)
