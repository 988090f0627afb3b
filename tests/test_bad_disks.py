"""The models' disk keeps whoever looks at it, or is not there, from the start on."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from assistant import config, paths
from assistant.cli_output import reported
from assistant.daemon import Assistant
from assistant.daemon_specs import stage_spec
from assistant.disk import Disk
from assistant.errors import ModelUnreachable
from assistant.messages import Stage
from assistant.model_store import manifest as manifests
from assistant.model_store.store import ModelStore


def test_a_checkout_is_known_without_a_look_at_the_disk_of_its_models(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    assert paths.checkout(tmp_path / "assistant") is None
    (tmp_path / "models").symlink_to("models")  # nobody can look into it
    assert paths.checkout(tmp_path / "assistant") == tmp_path
    assert paths.checkout(tmp_path / "none/assistant") is None


def test_a_daemon_starts_without_what_it_cannot_see_and_says_so(tmp_path: Path) -> None:
    async def test() -> list[str]:
        settings = config.load([], files=[], environ={})
        store = ModelStore(tmp_path / "models", catalog)
        async with Assistant(settings, owner=f"bad-{os.getpid()}", store=store, disk=Disk(0.2)) as assistant:
            return await assistant.missing()

    catalog = tmp_path / "catalog.toml"
    os.mkfifo(catalog)
    begun = time.monotonic()
    told = asyncio.run(test())
    assert time.monotonic() - begun < 5
    assert len(told) == 3
    assert all("the disk has not answered for 0.2 s" in one for one in told)
    for _ in told:  # whoever waits gets an end of file
        os.close(os.open(catalog, os.O_RDWR | os.O_NONBLOCK))


def test_an_error_of_a_disk_names_the_path(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), reported():
        os.listdir("/nowhere")
    assert "error: /nowhere: No such file or directory" in capfd.readouterr().err


def test_a_voice_whose_file_cannot_be_read_is_out_of_reach(tmp_path: Path) -> None:
    """Where its language is written, which no manifest need name."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mine.onnx").write_bytes(b"weights")
    voice = manifests.Manifest(
        name="mine", kind="piper", stage=Stage.TTS, engine="piper", files=manifests.records_of(folder)
    )
    manifests.write(folder, voice)
    (folder / "mine.onnx.json").symlink_to("/proc/self/mem")  # which gives EIO
    settings = config.load(["stages.tts.model=mine"], files=[], environ={})
    with pytest.raises(ModelUnreachable, match="Input/output error"):
        stage_spec(Stage.TTS, settings, ModelStore(tmp_path, paths.catalog_file()))
