"""wyoming-bench, a client from the package index, drives a daemon with real engines."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from assistant.model_store.store import ModelInfo
from tests.api.daemon_process import Place

SAID = {"cmd_lock_the_front_door.wav": "lock the front door", "cmd_cancel_all_timers.wav": "cancel all timers"}


@pytest.mark.engine
@pytest.mark.timeout(90)
def test_a_published_client_transcribes_and_synthesises(
    tmp_path: Path, speech: Path, model: Callable[[str], ModelInfo]
) -> None:
    model("whisper-tiny.en")
    model("en_US-joe-medium")
    for name, text in SAID.items():
        shutil.copy(speech / name, tmp_path)
        (tmp_path / name).with_suffix(".txt").write_text(text)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{free.getsockname()[1]}"

    def bench(*args: str) -> str:
        command = [sys.executable, "-W", "ignore", "-c", "from wyoming_bench.cli import main; main()", *args, "--", at]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with Place() as place:
        place.daemon("--set", "wyoming.enabled=true", "--set", f"wyoming.uri=tcp://{at}")
        heard = bench("stt", "--corpus", str(tmp_path), "--rounds", "1", "--warmup", "0")
        assert heard.count("ok=2 fail=0") == 2  # streaming, and not
        assert "whisper - non-streaming, streaming" in heard
        spoken = bench("tts", "--texts", "The door is open.", "--rounds", "1", "--warmup", "0")
        assert spoken.count("ok=1 fail=0") == 2
        assert "piper - non-streaming, streaming" in spoken
        status = json.loads(place.run("status", "--json").stdout)
        assert {row["name"] for row in status["stages"]} == {"asr", "tts"}
