"""A user's own GGUF, from the file to an answer: converted by the command line and asked through it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.model_store.tiny_bpe import metadata
from tests.model_store.tiny_gguf import Tiny, write_model

ROOT = Path(__file__).parents[1]

pytestmark = [pytest.mark.engine, pytest.mark.timeout(60)]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the sources, so that the model does not land in ours."""
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "assistant", root / "assistant", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "models").mkdir()
    for name in ("pyproject.toml", "models/catalog.toml"):
        shutil.copy(ROOT / name, root / name)
    return root


def run(root: Path, *args: str) -> Any:
    environ = {**os.environ, "XDG_CACHE_HOME": str(root / "cache"), "XDG_STATE_HOME": str(root / "state")}
    done = subprocess.run(
        [sys.executable, "-m", "assistant", *args, "--json"], cwd=root, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


@pytest.mark.parametrize(("weights", "requantised"), [("Q8_0", False), ("F16", True)])
def test_a_gguf_of_ones_own_is_converted_and_asked(checkout: Path, weights: str, requantised: bool) -> None:
    spec = Tiny(architecture="qwen2", bias=True, weights=weights, context=512)
    write_model(checkout / "mine.gguf", spec, metadata("qwen2", template=None))
    outcome = run(checkout, "models", "convert", "mine.gguf", "--name", "mine")
    assert bool(outcome["requantised"]) == requantised
    assert all(weights in tensor for tensor in outcome["requantised"])
    assert outcome["notes"], "a file without a chat template gets one, and that is said"
    model = "stages.llm.model=mine"
    report = run(checkout, "ask", "Why?", "--no-speech", "--set", model, "--set", "stages.llm.max_new_tokens=4")
    assert report["outcome"] == "answered"
    assert report["reply"]
    assert report["stages"][-1]["model"] == "mine"
