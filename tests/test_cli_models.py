"""The verbs of `assistant models`, run as a user runs them, in a checkout of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.model_store.publishers import pip_environment
from tests.model_store.shop import World, world

_ROOT = Path(__file__).parents[1]


class Checkout:
    """A copy of the sources with the small world's catalog, so that its `models/` is not ours."""

    def __init__(self, here: World) -> None:
        self.world = here
        self.root = here.top / "checkout"
        shutil.copytree(_ROOT / "assistant", self.root / "assistant", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(_ROOT / "pyproject.toml", self.root)
        (self.root / "models").mkdir()
        shutil.copy(here.top / "catalog.toml", self.root / "models")
        self._environ = pip_environment(here.top / "shelf") | {"XDG_CACHE_HOME": str(here.cache), "COLUMNS": "200"}

    def run(self, *args: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "assistant", "models", *args],
            cwd=self.root, env=self._environ, capture_output=True, text=True, check=False, **more,
        )  # fmt: skip

    def json(self, *args: str, code: int = 0) -> Any:
        done = self.run(*args, "--json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    with world(tmp_path) as here:
        yield Checkout(here)


def test_from_nothing_to_whole_and_back(checkout: Checkout) -> None:
    done = checkout.run("fetch", "--default")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        "package tiny-voice 1.0.0 (0.0 MB)",
        "voice: fetched, ready (0.1 MB)",
    ]
    assert checkout.json("fetch", "voice")["models"][0]["action"] == "none"
    rows = {row["name"]: row for row in checkout.json("list")["models"]}
    assert (rows["voice"]["state"], rows["vosk-en"]["state"]) == ("ready", "missing")
    assert {"stage", "engine", "licence", "bytes", "default", "language"} <= set(rows["voice"])
    assert checkout.json("verify") == {"models": [{"name": "voice", "ok": True, "problems": []}]}
    assert checkout.json("rm", "voice")["removed"][0]["name"] == "voice"
    assert checkout.json("verify", "voice", code=6)["error"]["code"] == "model-missing"


def test_the_list_for_people(checkout: Checkout) -> None:
    done = checkout.run("list")
    assert done.returncode == 0
    assert any(line.startswith("voice *") and "missing" in line for line in done.stdout.splitlines())


def test_damage_is_told_with_exit_code_6_and_repaired(checkout: Checkout) -> None:
    checkout.run("fetch", "voice", "--quiet")
    os.truncate(checkout.root / "models/voice/v.onnx", 5)
    (found,) = checkout.json("verify", code=6)["models"]
    assert found["problems"] == [{"file": "v.onnx", "message": "v.onnx has 5 bytes instead of 56,000"}]
    assert "assistant models fetch voice" in checkout.run("verify").stderr
    assert checkout.json("fetch", "voice")["models"][0]["action"] == "repaired"


def test_one_failure_does_not_keep_the_others_away(checkout: Checkout) -> None:
    del checkout.world.site.files["/vosk-en.zip"]
    done = checkout.run("fetch", "vosk-en", "nothing", "voice")
    assert done.returncode == 1
    assert "404" in done.stderr
    assert "no model called 'nothing'" in done.stderr
    assert "voice: fetched" in done.stderr
    assert "Traceback" not in done.stderr
    found = checkout.json("fetch", "vosk-en", "voice", code=1)
    assert found["error"]["code"] == "fetch-failed"
    assert [model["action"] for model in found["models"]] == ["failed", "none"]


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["fetch"], 2, "say --default"),
        (["fetch", "../x"], 2, "no name for a model"),
        (["fetch", "voise"], 6, "Did you mean voice"),
        (["verify", "voise"], 6, "Did you mean voice"),
        (["rm", "voise"], 6, "Did you mean voice"),
        (["rm", "voice"], 6, "not on this disk"),
        (["convert", "voice"], 6, "not on this disk"),
        (["convert", "x.gguf"], 2, "--name"),
        (["convert", "x.gguf", "--name", "x"], 2, "no such file"),
        (["convert", "voice", "--name", "x"], 2, "--name is for"),
    ],
)
def test_bad_requests_get_one_sentence_and_their_code(
    checkout: Checkout, args: list[str], code: int, says: str
) -> None:
    done = checkout.run(*args)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("error: ")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_reader_that_leaves_early_gets_no_traceback(checkout: Checkout) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stdout:
        done = subprocess.run(
            [sys.executable, "-m", "assistant", "models", "list", "--json"],
            cwd=checkout.root, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == ""


def test_help_loads_no_engine_and_nothing_heavy() -> None:
    code = "import sys; import assistant.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=_ROOT, capture_output=True, text=True, check=True).stdout
    heavy = {"numpy", "MNN", "vosk", "ctranslate2", "piper", "onnxruntime", "onnx", "urllib.request", "zipfile", "zmq"}
    assert not heavy & set(loaded.split())
    assert "assistant.cli_models" in loaded.split()
