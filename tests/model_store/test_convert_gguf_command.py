"""`python -m assistant.model_store.convert_gguf`: what it prints, what it leaves alone, what an interruption leaves."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.model_store import no_sockets, tiny_bpe
from tests.model_store.tiny_gguf import Tiny, write_model

COMMAND = [sys.executable, "-m", "assistant.model_store.convert_gguf"]


def lines(raw: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in raw.splitlines()]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("small") / "x.gguf", Tiny(layers=1), tiny_bpe.metadata())


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Takes about a second to convert, in some fifty steps."""
    tiny = Tiny(layers=6, hidden=512, ffn=2048, weights="F32")
    return write_model(tmp_path_factory.mktemp("large") / "x.gguf", tiny, tiny_bpe.metadata())


def test_stdout_is_json_lines_and_the_last_is_the_report(small: Path, tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, str(small), str(tmp_path / "out"), "--json"], capture_output=True, check=True)
    *progress, last = lines(done.stdout)
    assert all(set(line) == {"done", "total"} for line in progress)
    assert progress[-1]["done"] == progress[-1]["total"]
    assert last["report"]["shape"]["layers"] == 1
    assert last["report"]["peak_anon_mib"] < 100


def test_an_error_is_the_last_line_and_the_exit_status(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF\3" + bytes(7))
    done = subprocess.run([*COMMAND, str(tmp_path / "x.gguf"), str(tmp_path / "out"), "--json"], capture_output=True)
    assert done.returncode == 6
    assert lines(done.stdout)[-1]["error"]["type"] == "ModelDamaged"
    assert b"Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["x.gguf"]


def environment() -> tuple[set[tuple[str, str]], set[str]]:
    """Installed packages with their versions, and the names in the folders that pip installs to."""
    packages = {(d.metadata["Name"], d.version) for d in importlib.metadata.distributions()}
    folders = [Path(p) for p in [*site.getsitepackages(), site.getusersitepackages()]]
    return packages, {str(p) for folder in folders if folder.is_dir() for p in folder.iterdir()}


def test_a_conversion_opens_no_socket_and_leaves_the_environment_alone(small: Path, tmp_path: Path) -> None:
    """MNN's own command installs a telemetry package while it runs."""
    before = environment()
    guarded = [sys.executable, no_sockets.__file__, "assistant.model_store.convert_gguf"]
    done = subprocess.run([*guarded, str(small), str(tmp_path / "out"), "--json"], capture_output=True)
    if done.returncode == no_sockets.UNAVAILABLE:
        pytest.skip("this kernel has no seccomp filter")
    assert done.returncode == 0, done.stderr
    assert "report" in lines(done.stdout)[-1]
    assert environment() == before


def test_the_guard_against_sockets_bites(tmp_path: Path) -> None:
    (tmp_path / "opener.py").write_text("import socket\nsocket.socket()\n")
    done = subprocess.run(
        [sys.executable, no_sockets.__file__, "opener"], env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=False
    )
    if done.returncode == no_sockets.UNAVAILABLE:
        pytest.skip("this kernel has no seccomp filter")
    assert done.returncode == -signal.SIGSYS


def interrupted(source: Path, out: Path, number: int) -> subprocess.CompletedProcess[bytes]:
    """Sends the signal in the middle: the child stands still from its first progress until the signal is there."""
    child = subprocess.Popen([*COMMAND, str(source), str(out), "--json"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        first = child.stdout.readline()
        child.send_signal(signal.SIGSTOP)
        assert b"done" in first
        assert [p.name for p in out.parent.iterdir()] == [f".{out.name}.tmp-{child.pid}"]
        child.send_signal(number)
        child.send_signal(signal.SIGCONT)
        rest, _ = child.communicate(timeout=10)
    finally:
        child.kill()
        child.wait()
    return subprocess.CompletedProcess(child.args, child.returncode, rest)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_conversion_leaves_nothing(number: int, large: Path, tmp_path: Path) -> None:
    done = interrupted(large, tmp_path / "out", number)
    assert done.returncode == 130
    assert lines(done.stdout)[-1]["error"]["type"] == "Cancelled"
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_conversion_leaves_the_next_one_removes(large: Path, small: Path, tmp_path: Path) -> None:
    assert interrupted(large, tmp_path / "out", signal.SIGKILL).returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    assert [p.name[:9] for p in tmp_path.iterdir()] == [".out.tmp-"]
    subprocess.run([*COMMAND, str(small), str(tmp_path / "out"), "--json"], capture_output=True, check=True)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
