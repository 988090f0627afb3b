"""Models, wake words and prepared files, in folders of real files; nothing is loaded."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assistant.doctor.examine import mend
from assistant.doctor.models import look_at_caches, look_at_models
from assistant.doctor.scene import Scene
from assistant.messages import Stage
from assistant.model_store import derived_make
from assistant.model_store import manifest as manifests
from assistant.model_store.derived import Derived
from assistant.model_store.manifest import Manifest
from assistant.model_store.store import ModelStore
from assistant.stages import mnn_cache
from assistant.stages.base import EngineConfig
from tests.doctor.machines import Machine, look

TINY = ("stages.asr.model=ear", "stages.llm.model=brain", "stages.tts.model=mouth")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """With a model for each stage."""
    machine = Machine(tmp_path)
    machine.model("ear", Stage.ASR, "whisper", kind="whisper-ct2")
    machine.model("brain", Stage.LLM, "mnn", kind="mnn-llm")
    machine.model("mouth", Stage.TTS, "piper")
    return machine


def test_whole_models_are_named(machine: Machine) -> None:
    assert look(look_at_models, machine.scene(*TINY))["models"].found == "ear, brain, mouth"


def test_what_a_server_does_needs_no_model(machine: Machine) -> None:
    remote = ("stages.asr.engine=wyoming", "stages.llm.engine=openai", "stages.tts.engine=wyoming")
    assert "none is needed" in look(look_at_models, machine.scene(*remote))["models"].found


def test_a_missing_model_is_named_with_its_size_and_the_command(machine: Machine) -> None:
    finding = look(look_at_models, machine.scene(*TINY[1:]))["model-missing"]
    assert "stages.asr.model = 'whisper-tiny.en'" in finding.found
    assert "MiB" in finding.found
    assert finding.fix == "assistant models fetch whisper-tiny.en"
    assert finding.mend is None, "nothing is downloaded without being asked for"


@pytest.mark.parametrize("data", [b"123", b"5678"], ids=["size", "content"])
def test_a_damaged_model_is_named_with_what_repairs_it(machine: Machine, data: bytes) -> None:
    (machine.places.models / "mouth/weights").write_bytes(data)
    finding = look(look_at_models, machine.scene(*TINY))["model-damaged"]
    assert "weights" in finding.found
    assert finding.fix == "assistant models fetch mouth"


@pytest.mark.parametrize("file", ["mouth/weights", "mouth/manifest.json"])
def test_a_disk_that_fails_is_no_damage(machine: Machine, file: str) -> None:
    (machine.places.models / file).unlink()
    (machine.places.models / file).symlink_to("/proc/self/mem")  # which gives EIO
    manifest = machine.places.models / "mouth/manifest.json"
    if file.endswith("weights"):  # its size, too, is what the manifest says
        told = json.loads(manifest.read_text())
        told["files"]["weights"]["bytes"] = 0
        manifest.write_text(json.dumps(told))
    found = look(look_at_models, machine.scene(*TINY))
    assert "Input/output error" in found["model-unreachable"].found
    assert "model-damaged" not in found


def test_models_that_cannot_be_seen_make_no_cache_stale(machine: Machine) -> None:
    days_ago(prepared(machine), 20)
    (machine.places.models / "brain/manifest.json").unlink()
    (machine.places.models / "brain/manifest.json").symlink_to("/proc/self/mem")
    found = look(look_at_caches, machine.scene(*TINY))
    assert "cache-stale" not in found
    assert "could not be seen" in found["looked-too-long"].found


def test_a_manifest_that_is_no_manifest_is_damage(machine: Machine) -> None:
    (machine.places.models / "mouth/manifest.json").write_text("{")
    assert "manifest.json" in look(look_at_models, machine.scene(*TINY))["model-damaged"].found


def test_a_model_of_an_older_converter_is_advice(machine: Machine) -> None:
    folder = machine.places.models / "brain"
    older = Manifest(
        name="brain", kind="mnn-llm", stage=Stage.LLM, engine="mnn", files=manifests.records_of(folder),
        converter_version="gguf-0", mnn_version="0",
    )  # fmt: skip
    manifests.write(folder, older)
    assert "gguf-0" in look(look_at_models, machine.scene(*TINY))["model-outdated"].found


@pytest.mark.parametrize("model", ["ear", "no-such-model", "../ear"])
def test_a_model_that_does_not_fit_its_stage(machine: Machine, model: str) -> None:
    found = look(look_at_models, machine.scene(*TINY[:2], f"stages.tts.model={model}"))
    assert "stages.tts.model" in found["model-unfit"].found


def test_a_small_model_is_needed_as_well(machine: Machine) -> None:
    found = look(look_at_models, machine.scene(*TINY, "stages.llm.small_model=synth-tiny"))
    assert "stages.llm.small_model" in found["model-missing"].found


def test_a_catalog_that_cannot_be_read(machine: Machine) -> None:
    machine.places = dataclasses.replace(machine.places, catalog=machine.home / "none.toml")
    assert [*look(look_at_models, machine.scene(*TINY))] == ["models-unreadable"]


def test_wake_words_need_their_models(machine: Machine, tmp_path: Path) -> None:
    sound = ("audio.enabled=true", "wake.stop_words=")
    assert "models" in look(look_at_models, machine.scene(*TINY, *sound)), "the package brings the default ones"
    scene = machine.scene(*TINY, *sound, "wake.words=computer")
    assert look(look_at_models, scene)["wake-word-missing"].level == "problem"
    (tmp_path / "computer.json").write_text(json.dumps({}))
    scene = machine.scene(*TINY, *sound, "wake.words=computer", f"wake.models_dir={tmp_path}")
    assert "models" in look(look_at_models, scene)
    # "stop" is heard without a model, too: who has set nothing is told nothing
    assert "models" in look(look_at_models, machine.scene(*TINY, "audio.enabled=true"))
    scene = machine.scene(*TINY, "audio.enabled=true", "wake.stop_words=stop,basta")
    finding = look(look_at_models, scene)["wake-word-missing"]
    assert (finding.level, finding.fix) == ("advice", "assistant models list")
    assert "'basta'" in finding.found
    # as a wake word it has no other way to be heard
    finding = look(look_at_models, machine.scene(*TINY, *sound, "wake.words=stop"))["wake-word-missing"]
    assert (finding.level, finding.fix) == ("problem", "assistant models fetch wake-stop")


# --- what is made of them -------------------------------------------------------------------------------------------
def prepared(machine: Machine, digest: str | None = None) -> Derived:
    """Files for the LLM's model, or for one that is not here."""
    model = ModelStore(machine.places.models, machine.places.catalog).open("brain")
    root = machine.places.cache / "mnn"
    config = EngineConfig(model="brain", model_dir=model.path, digest=digest or model.digest, threads=1, cache_dir=root)
    cache = mnn_cache.cache_of(config)
    with derived_make.building(cache, 10) as work:
        (work / "weights").write_bytes(b"laid out")
    return cache


def days_ago(cache: Derived, days: float) -> None:
    when = time.time() - days * 86_400
    os.utime(cache.path / "complete.json", (when, when))


def test_a_cache_that_is_used_stays(machine: Machine) -> None:
    days_ago(cache := prepared(machine), 20)
    assert "caches" in look(look_at_caches, machine.scene(*TINY))
    assert time.time() - (cache.path / "complete.json").stat().st_mtime > 86_400, "a look is no use"


def test_a_damaged_cache_is_removed_by_fix(machine: Machine) -> None:
    cache = prepared(machine)
    (cache.path / "weights").write_bytes(b"cut")
    found = look(look_at_caches, machine.scene(*TINY))
    assert "'brain'" in found["cache-damaged"].found
    (done,) = mend(found.values())
    assert (done.good, str(cache.path) in done.text, cache.path.exists()) == (True, True, False)
    assert "caches" in look(look_at_caches, machine.scene(*TINY))


def test_a_stale_cache_is_removed_by_fix_and_others_are_left_alone(machine: Machine) -> None:
    days_ago(stale := prepared(machine, "another model"), 2)
    fresh = prepared(machine, "another checkout's model")
    kept = machine.places.cache / "mnn/kv"
    kept.mkdir()
    found = look(look_at_caches, machine.scene(*TINY))
    assert str(stale.path) in found["cache-stale"].found
    (done,) = mend(found.values())
    assert done.good
    assert not stale.path.exists()
    assert fresh.path.exists()
    assert kept.exists()
    assert "caches" in look(look_at_caches, machine.scene(*TINY))


def test_all_of_this_imports_no_engine(machine: Machine) -> None:
    prepared(machine)
    libraries = ("MNN", "ctranslate2", "onnxruntime", "onnx", "piper", "vosk", "sounddevice", "pymicro_wakeword")
    code = f"""
import sys
from pathlib import Path
from assistant import config, paths
from assistant.doctor import models
from assistant.doctor.scene import Places, Scene
places = Places(models=Path({str(machine.places.models)!r}), cache=Path({str(machine.places.cache)!r}))
scene = Scene(places=places, config=config.load({TINY!r}, files=(), environ={{}}))
assert [*models.look_at_models(scene), *models.look_at_caches(scene)]
print(*(name for name in {libraries!r} if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_the_scene_of_this_machine_is_its_own() -> None:
    assert Scene().root == Path("/")
