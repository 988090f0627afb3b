"""What scripts/coverage counts: lines of the fork server and of a forked worker, too, which end with os._exit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from coverage import CoverageData

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.timeout(60)
def test_lines_of_forked_workers_are_counted(tmp_path: Path) -> None:
    home = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "STATE")}
    ours = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    environment = {**ours, **home, "PYTHONPATH": str(ROOT), "COVERAGE_FILE": str(tmp_path / "lines")}

    def coverage(*args: str) -> None:
        command = [sys.executable, "-m", "coverage", *args]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)

    ask = ["ask", "--standalone", "--no-speech", "--set", "stages.intent.engine=templates", "what time is it"]
    coverage("run", "-m", "assistant", *ask)
    coverage("combine", "--quiet")
    data = CoverageData(str(tmp_path / "lines"))
    data.read()

    def reached(file: str, line: str) -> bool:
        path = ROOT / "assistant" / file
        number = next(nth for nth, text in enumerate(path.read_text().splitlines(), 1) if line in text)
        return number in (data.lines(str(path)) or [])

    assert reached("stages/forkserver.py", "pid = os.fork()")
    assert reached("stages/forkserver.py", "os.dup2(source, target)")  # the worker, just forked
    assert reached("stages/worker.py", "engine.load()")
    assert reached("stages/intent_templates.py", "hassil.recognize_best")
    assert not reached("stages/forkserver.py", "os._exit(1)")  # nothing is counted that did not run
