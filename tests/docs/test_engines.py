"""docs/engines.md from its start to its end, in a copy of the checkout: what is entered there speaks."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import wave
from collections.abc import Callable
from pathlib import Path

import pytest

from assistant.messages import Stage
from assistant.model_store import manifest
from assistant.model_store.store import ModelInfo
from tests.api.daemon_process import Place
from tests.docs.pages import ROOT

TEXT = (ROOT / "docs/engines.md").read_text("utf-8")
VOICE = "en_US-joe-medium"


def only(pattern: str) -> str:
    (found,) = re.findall(pattern, TEXT, re.S)
    return str(found)


def put_in(file: Path, before: str, text: str) -> None:
    code = file.read_text("utf-8")
    assert code.count(before) == 1, f"{file}: {before}"
    file.write_text(code.replace(before, text + before), "utf-8")


def as_the_page_says(copy: Path) -> None:
    for name in ("assistant", "models/catalog.toml", "pyproject.toml"):
        source, target = ROOT / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    engine, _, _ = only(r"```python run\n(.*?)```").partition("\nengine = ")
    (copy / only(r"1\. `(\S+\.py)`")).write_text(engine, "utf-8")
    put_in(copy / only(r"2\. `(\S+\.py)`"), "}\nREMOTE", f"    {only(r'one row, `([^`]+)`')},\n")
    put_in(copy / only(r"3\. `(\S+\.py)`"), "}\n\n\ndef slot_tokens", f"    {only(r'of `SHAPES`, `([^`]+)`')}\n")
    put_in(copy / only(r"in `Kind` of `(\S+)`"), "]\nShape = ", f", {only(r'`Kind` of .*?here `([^`]+)`')}")
    with (copy / only(r"4\. `(\S+\.toml)`")).open("a") as catalog:
        catalog.write("\n" + re.sub("^   ", "", only(r"```toml other\n(.*?)```"), flags=re.MULTILINE))


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_an_engine_that_is_entered_as_the_page_says_speaks(tmp_path: Path, model: Callable[[str], ModelInfo]) -> None:
    as_the_page_says(tmp_path)
    fetch, ask = only(r"```sh not run: [^\n]+\n(.*?)```").splitlines()
    folder = tmp_path / "models" / fetch.split()[-1]  # as `fetch` would leave it: no test asks a package index
    folder.mkdir()
    shutil.copy(model(VOICE).path / f"{VOICE}.onnx.json", folder / only(r'path = "([^"]+)"'))
    told = manifest.Manifest(
        name=folder.name, kind="tone", stage=Stage.TTS, engine="tone", files=manifest.records_of(folder)
    )
    manifest.write(folder, told)
    with Place() as place:
        environ = {**place.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            ["bash", "-c", ask.replace("assistant", f"{sys.executable} -m assistant", 1)],
            cwd=tmp_path, env=environ, text=True, capture_output=True, check=False, timeout=40,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        verified = subprocess.run(
            [sys.executable, "-m", "assistant", "models", "verify", folder.name],
            cwd=tmp_path, env=environ, text=True, capture_output=True, check=False, timeout=20,
        )  # fmt: skip
        assert verified.returncode == 0, verified.stderr + verified.stdout
    with wave.open(str(tmp_path / "tone.wav")) as sound:
        assert sound.getframerate() == 16_000
        assert sound.getnframes() > 16_000 * 0.3
