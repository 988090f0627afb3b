"""Models of the user's own are copied whole, checked like all others, and used like all others."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assistant.errors import FetchFailed, ModelDamaged, ModelUnsupported, UsageError
from assistant.messages import Stage
from assistant.model_store.listing import rows
from assistant.model_store.own import add
from assistant.model_store.remove import remove
from assistant.model_store.store import ModelInfo, State
from tests.model_store.shop import VOICE, VOICE_JSON, World, world


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        yield found


def put(folder: Path, files: dict[str, bytes]) -> Path:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


VOSK = {"am/final.mdl": b"acoustic", "graph/Gr.fst": b"graph", "README": b"hello"}
WHISPER = {"model.bin": b"weights", "config.json": b"{}", "tokenizer.json": b"{}"}


@pytest.mark.parametrize(
    ("files", "source", "stage", "engine", "kept"),
    [
        (VOSK, "", Stage.ASR, "vosk", VOSK),
        (WHISPER, "", Stage.ASR, "whisper", WHISPER),
        ({"v.onnx": VOICE, "v.onnx.json": VOICE_JSON, "other.txt": b"x"}, "v.onnx", Stage.TTS, "piper",
         {"mine.onnx": VOICE, "mine.onnx.json": VOICE_JSON}),
    ],
    ids=["vosk", "whisper", "piper"],
)  # fmt: skip
def test_each_kind_is_known_by_its_files_and_copied(
    here: World, files: dict[str, bytes], source: str, stage: Stage, engine: str, kept: dict[str, bytes]
) -> None:
    folder = put(here.top / "their own", files)
    info = add(here.store(), folder / source, "mine")
    assert (info.stage, info.engine) == (stage, engine)
    assert {path: (info.path / path).read_bytes() for path in kept} == kept
    assert info.bytes == sum(map(len, kept.values()))
    (row,) = (row for row in rows(here.store()) if row["name"] == "mine")
    assert (row["state"], row["licence"]) == ("ready", "your own")
    shutil.rmtree(folder)
    assert here.store().verify("mine") == []


def test_a_damaged_one_names_the_command_that_brings_it_back(here: World) -> None:
    folder = put(here.top / "their own", VOSK)
    info = add(here.store(), folder, "mine")
    (info.path / "am/final.mdl").write_bytes(b"worn out")
    with pytest.raises(ModelDamaged, match=rf"assistant models add '{folder}' --name mine"):
        here.store().open("mine")
    add(here.store(), folder, "mine")
    assert here.store().status("mine").state is State.READY


def test_damage_that_shows_in_no_time_is_repaired_by_the_command_that_verify_names(here: World) -> None:
    info = add(here.store(), put(here.top / "their own", VOSK), "mine")
    file = info.path / "am/final.mdl"
    before = file.stat()
    file.write_bytes(bytes(before.st_size))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    found = here.store().verify("mine")
    assert [problem.file for problem in found] == ["am/final.mdl"]
    command = shlex.split(here.store().repair("mine"))
    assert command[:3] == ["assistant", "models", "add"]
    assert here.store().status("mine").state is State.DAMAGED
    add(here.store(), Path(command[3]), command[5])
    assert here.store().verify("mine") == []


def test_without_a_manifest_that_can_be_read_nobody_is_sent_in_circles(here: World) -> None:
    info = add(here.store(), put(here.top / "their own", VOSK), "mine")
    (info.path / "manifest.json").write_text("{")
    assert here.store().verify("mine")
    assert here.store().repair("mine").startswith("assistant models rm mine, and then add or convert")
    remove(here.store(), here.cache, "mine")
    assert here.store().installed() == []


def test_what_is_none_of_them_is_refused_and_nothing_is_left(here: World) -> None:
    put(here.top, {"empty/x": b"", "a.gguf": b"GGUF", "alone.onnx": VOICE, "v/v.onnx": VOICE, "v/v.onnx.json": b"{}"})
    with pytest.raises(ModelUnsupported, match="taken are a Vosk model's folder"):
        add(here.store(), here.top / "empty", "mine")
    with pytest.raises(ModelUnsupported, match="assistant models convert"):
        add(here.store(), here.top / "a.gguf", "mine")
    with pytest.raises(UsageError, match=r"alone\.onnx\.json is missing"):
        add(here.store(), here.top / "alone.onnx", "mine")
    with pytest.raises(UsageError, match="no such file"):
        add(here.store(), here.top / "none", "mine")
    with pytest.raises(UsageError, match="is a model of the catalog"):
        add(here.store(), here.top / "v/v.onnx", "voice")
    with pytest.raises(FetchFailed, match="free") as full:
        add(here.store(), here.top / "v/v.onnx", "mine", free=lambda folder: 1000)
    assert full.value.code == "disk-full"
    assert here.store().installed() == []
    add(here.store(), here.top / "v/v.onnx", "mine")
    with pytest.raises(UsageError, match="there is a model 'mine' already"):
        add(here.store(), here.top / "v/v.onnx", "mine")


@pytest.mark.engine
def test_a_voice_of_ones_own_opens_as_the_catalogs_does(here: World, model: Callable[[str], ModelInfo]) -> None:
    joe = model("en_US-joe-medium")
    info = add(here.store(), joe.path / "en_US-joe-medium.onnx", "joe-again")
    assert (info.path / "joe-again.onnx").stat().st_size == (joe.path / "en_US-joe-medium.onnx").stat().st_size
    assert (info.kind, info.engine, info.stage) == (joe.kind, joe.engine, joe.stage)
