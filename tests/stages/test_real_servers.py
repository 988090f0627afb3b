"""Our Wyoming stages at the servers that people run: wyoming-piper and wyoming-faster-whisper, with the weights of this
checkout.

The two packages and what only they need are installed by pip into a folder of the test session, at fixed versions; what
is heavy (Piper, faster-whisper) is in our own environment already. Without a package index, `tests.lacking` decides.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import wave
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from assistant.messages import AsrRequest, Progress, Transcript, TtsAudio, TtsRequest
from assistant.model_store.store import ModelInfo
from assistant.stages.asr_wyoming import WyomingAsr
from assistant.stages.base import EngineConfig
from assistant.stages.tts_wyoming import WyomingTts
from tests.lacking import lacks
from tests.stages.remote_servers import free_port

PACKAGES = (
    "wyoming-piper==2.5.2",
    "wyoming-faster-whisper==3.8.1",
    "sentence-stream==1.3.0",
    "regex==2026.11.19",
)
QUESTION = Path(__file__).parents[2] / "assistant/data/question.wav"
WORDS = "what is the capital of france"
START_S = 40

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("servers")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pip += ["--retries", "2", "--timeout", "10", "--target", str(folder), *PACKAGES]
    try:
        done = subprocess.run(pip, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        lacks("packages", "the package index does not answer in time")
    if done.returncode:
        lacks("packages", f"pip cannot install the servers: {done.stderr.strip().splitlines()[-1]}")
    return folder


@contextmanager
def serving(packages: Path, module: str, *arguments: str) -> Iterator[str]:
    """The address of a server that listens; it downloads nothing."""
    port = free_port()
    uri = f"tcp://127.0.0.1:{port}"
    environ = os.environ | {"PYTHONPATH": str(packages), "HF_HUB_OFFLINE": "1"}
    log = packages / f"{module}.log"
    with log.open("w") as file:
        command = [sys.executable, "-m", module, "--uri", uri, "--data-dir", str(packages / "data"), *arguments]
        server = subprocess.Popen(command, env=environ, stdout=file, stderr=subprocess.STDOUT)
    try:
        give_up = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < give_up, log.read_text()
                time.sleep(0.1)
        yield uri
    finally:
        server.terminate()
        server.wait(10)


def config(uri: str) -> EngineConfig:
    options = {"uri": uri, "deadline_s": 15}
    return EngineConfig(model="m", model_dir=Path(), cache_dir=Path(), threads=1, options=options)


def recognised(uri: str, pcm: bytes) -> str:
    outs = [out for out in WyomingAsr(config(uri)).run(AsrRequest(pcm=pcm)) if not isinstance(out, Progress)]
    assert isinstance(outs[-1], Transcript)
    assert outs[-1].final
    return outs[-1].text.casefold().strip(" ?.!")


@pytest.fixture
def whisper(packages: Path, model: Callable[[str], ModelInfo]) -> Iterator[str]:
    weights = str(model("whisper-tiny.en").path)
    more = ("--local-files-only", "--stt-library", "faster-whisper", "--language", "en", "--compute-type", "int8")
    with serving(packages, "wyoming_faster_whisper", "--model", weights, *more) as uri:
        yield uri


def test_wyoming_faster_whisper_hears_a_question(whisper: str) -> None:
    with wave.open(str(QUESTION)) as file:
        pcm = file.readframes(file.getnframes())
    for _ in range(2):  # each request is a connection
        assert recognised(whisper, pcm) == WORDS
    assert recognised(whisper, bytes(16_000)) in ("", "you", "thank you")  # silence, of which whisper invents words


def test_wyoming_piper_speaks_and_wyoming_faster_whisper_understands_it(
    packages: Path, whisper: str, model: Callable[[str], ModelInfo]
) -> None:
    voice = model("en_US-joe-medium").path
    with serving(packages, "wyoming_piper", "--voice", str(voice / "en_US-joe-medium.onnx")) as uri:
        sounds = [
            out
            for out in WyomingTts(config(uri)).run(TtsRequest(text="What is the capital of France?"))
            if isinstance(out, TtsAudio)
        ]
    assert {one.sample_rate for one in sounds} == {22_050}
    pcm = np.frombuffer(b"".join(one.pcm for one in sounds), "<i2")
    assert 1 < len(pcm) / 22_050 < 5
    at = np.arange(0, len(pcm) - 1, 22_050 / 16_000)
    assert recognised(whisper, np.interp(at, np.arange(len(pcm)), pcm).astype("<i2").tobytes()) == WORDS
