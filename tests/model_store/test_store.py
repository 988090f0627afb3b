"""`open` lets nothing pass that is not whole, says what to do, and costs next to nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.errors import ModelDamaged, ModelMissing, ModelUnknown, UsageError
from assistant.messages import Stage
from assistant.model_store.listing import rows
from assistant.model_store.store import ModelStore, State
from tests.model_store.shop import VOICE, World, world


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        found.fetcher().fetch("voice")
        yield found


def test_a_whole_model_is_described(here: World) -> None:
    info = here.store().open("voice")
    assert (info.name, info.stage, info.kind, info.engine) == ("voice", Stage.TTS, "piper", "piper")
    assert info.path == here.models / "voice"
    assert info.bytes == len(VOICE) + 33
    assert len(info.digest) == 64


@pytest.mark.alone("within two milliseconds")
def test_it_takes_less_than_two_milliseconds(here: World) -> None:
    store = here.store()
    took = []
    for _ in range(20):
        start = time.perf_counter()
        store.open("voice")
        took.append(time.perf_counter() - start)
    assert min(took) < 0.002


def test_a_missing_byte_is_named_with_sizes_and_the_command(here: World) -> None:
    os.truncate(here.models / "voice/v.onnx", len(VOICE) - 1)
    with pytest.raises(ModelDamaged) as caught:
        here.store().open("voice")
    assert "v.onnx has 55,999 bytes instead of 56,000" in caught.value.message
    assert "assistant models fetch voice" in caught.value.message
    assert caught.value.exit_code == 6


def test_changed_content_of_the_same_size_is_damage(here: World) -> None:
    (here.models / "voice/v.onnx").chmod(0o644)
    (here.models / "voice/v.onnx").write_bytes(b"X" + VOICE[1:])
    with pytest.raises(ModelDamaged, match="content has changed"):
        here.store().open("voice")


def test_a_copied_model_is_read_once_and_then_trusted(here: World) -> None:
    os.utime(here.models / "voice/v.onnx", ns=(7, 7))
    before = (here.models / "voice/manifest.json").read_bytes()
    here.store().open("voice")
    after = (here.models / "voice/manifest.json").read_bytes()
    assert after != before
    here.store().open("voice")
    assert (here.models / "voice/manifest.json").read_bytes() == after


def test_unknown_missing_and_bad_names_are_told_apart(here: World) -> None:
    with pytest.raises(ModelUnknown, match="Did you mean vosk-en"):
        here.store().open("vosk-enn")
    with pytest.raises(ModelMissing, match="assistant models fetch vosk-en"):
        here.store().open("vosk-en")
    with pytest.raises(UsageError):
        here.store().open("../voice")


def test_a_folder_without_a_manifest_is_missing(here: World) -> None:
    (here.models / "vosk-en").mkdir()
    with pytest.raises(ModelMissing):
        here.store().open("vosk-en")


@pytest.mark.engine
def test_the_default_models_are_here_and_the_catalog_tells_the_truth_about_them() -> None:
    store = ModelStore.default()
    for entry in store.catalog.defaults():
        info = store.open(entry.name)
        assert (info.stage, info.kind, info.engine) == (entry.stage, entry.kind, entry.engine)
        assert store.status(entry.name).state is State.READY
        if entry.convert:
            assert info.shape == entry.shape


def test_the_list_tells_every_state(here: World) -> None:
    (here.top / "mine.gguf").write_bytes(b"GGUF mine")
    here.fetcher().convert_file(here.top / "mine.gguf", "mine")
    here.fetcher().fetch("tokens")
    (here.models / "tokens/deep/tokens.txt").unlink()
    found = rows(here.store())
    assert {row["name"]: row["state"] for row in found} == {
        "voice": "ready", "llm": "missing", "vosk-en": "missing", "tokens": "damaged", "wake-halt": "missing",
        "mine": "ready",
    }  # fmt: skip
    assert [row["stage"] for row in found if row["kind"] == "wake"] == ["wake"]
