"""The verbs of `assistant models`, run as a user runs them, in a checkout of their own."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assistant import cli_models
from assistant.model_store.fetch import Outcome
from assistant.model_store.synthetic_shapes import SHAPES
from tests.model_store import tiny_bpe
from tests.model_store.publishers import pip_environment
from tests.model_store.shop import World, world
from tests.model_store.tiny_gguf import Tiny, write_model

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

    def in_terminal(self, columns: int, *args: str) -> str:
        """What a terminal of that width is sent."""
        screen, theirs = pty.openpty()
        try:
            subprocess.run(
                [sys.executable, "-m", "assistant", "models", *args],
                cwd=self.root, env=self._environ | {"COLUMNS": str(columns)}, stdout=theirs, check=True,
            )  # fmt: skip
            return os.read(screen, 65536).decode().replace("\r\n", "\n")
        finally:
            os.close(screen)
            os.close(theirs)

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
        "package tiny-voice 1.0.0 (1 KB)",
        "voice: fetched, ready (57 KB)",
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
    title, *lines = done.stdout.splitlines()
    assert title.split() == ["name", "stage", "engine", "lang", "size", "state", "licence"]
    assert any(line.split() == ["voice", "*", "tts", "piper", "en", "57", "KB", "missing", "MIT"] for line in lines)


def test_a_narrow_terminal_shortens_the_licence_alone(checkout: Checkout) -> None:
    catalog = checkout.root / "models/catalog.toml"
    catalog.write_text(catalog.read_text().replace('"MIT"', '"not stated in the package, nor anywhere else at all"'))
    wide = checkout.run("list").stdout.splitlines()
    narrow = checkout.in_terminal(70, "list").splitlines()
    assert len(narrow) == len(wide)
    assert all("anywhere else at all" in line for line in wide[1:-1])
    assert all(len(line) <= 70 and "missing  not stated" in line and "at all" not in line for line in narrow[1:-1])


def test_a_default_model_that_is_missing_fails_the_check_of_everything(checkout: Checkout) -> None:
    checkout.run("fetch", "tokens", "--quiet")
    found = checkout.json("verify", code=6)
    assert [(model["name"], model["ok"]) for model in found["models"]] == [("tokens", True), ("voice", False)]
    assert found["error"]["code"] == "model-missing"
    done = checkout.run("verify")
    assert (done.returncode, done.stdout) == (6, "tokens: whole\n")
    assert "assistant models fetch voice" in done.stderr
    done = checkout.run("verify", "vosk-en", "voice", "tokens")
    assert (done.returncode, done.stdout) == (6, "tokens: whole\n")
    assert [line.split("'")[1] for line in done.stderr.splitlines()] == ["vosk-en", "voice"]


def test_removing_tells_what_stays_and_how_it_goes(checkout: Checkout) -> None:
    checkout.run("fetch", "voice", "--quiet")
    done = checkout.run("rm", "voice")
    assert "stays in the cache (57 KB)" in done.stderr
    assert "assistant models rm voice --downloads" in done.stderr
    assert checkout.run("rm", "voice", "--downloads").stderr == "voice: removed\n"
    assert checkout.run("rm", "voice", "--downloads").returncode == 6


def test_a_repair_tells_what_is_wrong_and_not_what_it_is_doing_anyway(checkout: Checkout) -> None:
    checkout.run("fetch", "voice", "--quiet")
    os.truncate(checkout.root / "models/voice/v.onnx", 5)
    said = checkout.run("fetch", "voice").stderr
    assert said.splitlines()[0] == "voice: it is damaged: v.onnx has 5 bytes instead of 56,000"
    assert "Repair it" not in said


def test_damage_that_only_verify_can_see_is_repaired_by_the_next_fetch(checkout: Checkout) -> None:
    checkout.run("fetch", "voice", "--quiet")
    file = checkout.root / "models/voice/v.onnx"
    before = file.stat()
    file.chmod(0o644)
    file.write_bytes(bytes(before.st_size))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    (found,) = checkout.json("verify", code=6)["models"]
    assert [one["file"] for one in found["problems"]] == ["v.onnx"]
    assert checkout.json("fetch", "voice")["models"][0]["action"] == "repaired"


@pytest.mark.parametrize("path", ["./notes.txt", "notes.txt"])
def test_a_file_that_is_no_gguf_is_called_so(checkout: Checkout, path: str) -> None:
    (checkout.root / "notes.txt").write_text("to do: everything")
    done = checkout.run("convert", path, "--name", "mine")
    assert done.returncode == 6
    assert "notes.txt is no GGUF file" in done.stderr
    assert "fetch it again" not in done.stderr


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
        (["convert", "models", "--name", "x"], 2, "models: it is no regular file"),
        (["convert", "/dev/zero", "--name", "x"], 2, "/dev/zero: it is no regular file"),
        (["convert", "pyproject.toml"], 2, "--name NAME"),
        (["convert", "voice", "--name", "x"], 2, "are for a GGUF file"),
        (["convert", "voice", "--bits", "4"], 2, "are for a GGUF file"),
        (["convert", "x.gguf", "--name", "x", "--bits", "5"], 2, "4 or 8"),
        (["convert", "voice", "--block", "64"], 2, "are for a GGUF file"),
        (["convert", "x.gguf", "--name", "x", "--bits", "4", "--block", "48"], 2, "32, 64 or 128"),
        (["convert", "x.gguf", "--name", "x", "--block", "64"], 2, "with 4 bits alone"),
        (["convert", "x.gguf", "--name", "x", "--bits", "8", "--block", "64"], 2, "with 4 bits alone"),
        (["synth", "--shape", "smollm2-135m", "--block", "48"], 2, "32, 64 or 128"),
        (["synth", "--shape", "gpt-5"], 2, "known are qwen1.5-1.8b"),
        (["synth", "--shape", "smollm2-135m", "--name", "voice"], 2, "of the catalog"),
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


def test_the_help_of_synth_names_every_shape(checkout: Checkout) -> None:
    told = " ".join(checkout.run("synth", "--help").stdout.replace("│", " ").split())
    assert [name for name in SHAPES if name not in told] == []


@pytest.mark.parametrize(("count", "noun"), [(1, "1 tensor requantised: t0"), (2, "2 tensors requantised: t0, t1")])
def test_one_tensor_is_no_tensors(count: int, noun: str) -> None:
    requantised = tuple(f"t{number}" for number in range(count))
    outcome = Outcome(name="mine", action="converted", path="", bytes=0, requantised=requantised)
    assert noun in cli_models._sentence(outcome).splitlines()[1]


def test_help_loads_no_engine_and_nothing_heavy() -> None:
    code = "import sys; import assistant.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=_ROOT, capture_output=True, text=True, check=True).stdout
    heavy = {"numpy", "MNN", "vosk", "ctranslate2", "piper", "onnxruntime", "onnx", "urllib.request", "zipfile", "zmq"}
    assert not heavy & set(loaded.split())
    assert "assistant.cli_models" in loaded.split()


@pytest.mark.engine
def test_a_model_of_random_weights_from_the_command_line(checkout: Checkout) -> None:
    found = checkout.json("synth", "--shape", "smollm2-135m", "--name", "mine")
    assert (found["name"], found["shape"]["layers"]) == ("mine", 30)
    assert Path(found["path"], "llm.emergency.mnn").is_file()
    assert "ready" in checkout.run("synth", "--shape", "smollm2-135m", "--name", "mine").stderr
    rows = {row["name"]: row for row in checkout.json("list")["models"]}
    assert rows["mine"]["description"] == "random weights in the shape of smollm2-135m"
    assert rows["mine"]["licence"] == "none (random)"
    assert rows["mine"]["bytes"] > 70e6
    manifest = checkout.root / "models/mine/manifest.json"
    assert json.loads(manifest.read_bytes())["choices"]["block"] == 64
    checkout.json("synth", "--shape", "smollm2-135m", "--name", "mine", "--block", "128")
    assert json.loads(manifest.read_bytes())["choices"]["block"] == 128


@pytest.mark.engine
def test_bits_of_ones_own_model(checkout: Checkout) -> None:
    gguf = write_model(checkout.root / "mine.gguf", Tiny(layers=1, weights="Q8_0"), tiny_bpe.metadata())
    found = checkout.json("convert", str(gguf), "--name", "mine", "--bits", "4")
    assert len(found["requantised"]) == 8
    assert "blk.0.attn_q.weight (Q8_0 to 4 bits)" in found["requantised"]
    assert checkout.json("rm", "mine")["removed"][0]["name"] == "mine"
    assert "8 tensors requantised: " in checkout.run("convert", str(gguf), "--name", "mine", "--bits=4").stderr


@pytest.mark.engine
def test_blocks_of_ones_own_model(checkout: Checkout) -> None:
    tiny = Tiny(layers=1, weights="Q4_0", hidden=192, heads=3, kv_heads=1)
    gguf = write_model(checkout.root / "mine.gguf", tiny, tiny_bpe.metadata())
    found = checkout.json("convert", str(gguf), "--name", "mine", "--bits", "4", "--block", "128")
    assert found["requantised"] == ["blk.0.ffn_down.weight (Q4_0 to 4 bits in blocks of 128)"]
    assert found["notes"][0].startswith("7 matrices have smaller blocks")
    manifest = json.loads((checkout.root / "models/mine/manifest.json").read_bytes())
    assert (manifest["choices"]["bits"], manifest["choices"]["block"]) == (4, 128)
