"""A query inside a real memory cgroup: the limit is found, kept, and the OOM killer never wakes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assistant import paths
from assistant.model_store.store import ModelInfo

pytestmark = [pytest.mark.engine, pytest.mark.root, pytest.mark.timeout(60)]

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
MIB = 1 << 20


class Cgroup:
    """A memory cgroup of version 1 or 2, whichever this machine has."""

    def __init__(self, name: str) -> None:
        self._v1 = V1.is_dir()
        self.path = (V1 if self._v1 else V2) / name
        self.path.mkdir()

    def limit(self, mib: int) -> None:
        name = "memory.limit_in_bytes" if self._v1 else "memory.max"
        (self.path / name).write_text(str(mib * MIB))

    def kills(self) -> int:
        name = "memory.oom_control" if self._v1 else "memory.events"
        lines = (self.path / name).read_text().splitlines()
        return int(next(line for line in lines if line.startswith("oom_kill ")).split()[1])

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        enter = f'echo $$ > {self.path}/cgroup.procs && exec "$@"'
        return subprocess.run(
            ["sh", "-c", enter, "sh", sys.executable, "-m", "assistant", "ask", "--json", *args],
            capture_output=True, text=True, cwd=paths.checkout(),
        )  # fmt: skip


@pytest.fixture
def cgroup() -> Iterator[Cgroup]:
    if os.geteuid() != 0:
        pytest.skip("only root can make a memory cgroup")
    try:
        one = Cgroup(f"assistant-test-{os.getpid()}")
    except OSError as error:
        pytest.skip(f"memory cgroups cannot be made here: {error}")
    yield one
    one.path.rmdir()


@pytest.fixture(autouse=True)
def models(model: Callable[[str], ModelInfo]) -> None:
    for name in ("whisper-tiny.en", "smollm2-135m-instruct", "en_US-joe-medium"):
        model(name)


@pytest.mark.alone("memory at its limit")
def test_a_spoken_question_is_answered_inside_a_small_cgroup(cgroup: Cgroup, tmp_path: Path) -> None:
    question = ["--wav", str(paths.data_file("question.wav")), "--out", str(tmp_path / "answer.wav")]
    cgroup.limit(800)
    first = cgroup.run(*question)  # what it measures lets the next one into less
    assert first.returncode == 0, first.stdout
    cgroup.limit(700)
    done = cgroup.run(*question)
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert "Paris" in report["reply"]
    # less what the kernel charges to the cgroup beyond our processes
    assert 690 <= report["memory"]["budget_mib"] <= 700
    # 300 MiB on a machine with 2 GB; on one with 700 MiB in proportion
    assert report["memory"]["margin_mib"] == pytest.approx(300 * 700 / 1792, abs=1)
    assert report["memory"]["peak_mib"] <= report["memory"]["budget_mib"] - report["memory"]["margin_mib"]
    assert cgroup.kills() == 0


def test_a_cgroup_too_small_for_any_stage_is_a_refusal_and_not_a_kill(cgroup: Cgroup, tmp_path: Path) -> None:
    cgroup.limit(180)
    done = cgroup.run("--wav", str(paths.data_file("question.wav")), "--out", str(tmp_path / "answer.wav"))
    assert done.returncode == 5, done.stdout
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "memory-never-fits"
    assert re.search(r"budget of 1[78]\d MiB - margin 30 \(300 \* 180/1792", error["message"])
    assert cgroup.kills() == 0
