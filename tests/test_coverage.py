"""What scripts/coverage counts: lines of the fork server and of a forked worker, too, which end with os._exit, and of
pytest's own workers; and what it leaves out."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from coverage import Coverage, CoverageData

ROOT = Path(__file__).resolve().parent.parent
TEST = """
from assistant.plain_text import plain

def test_nothing_is_obeyed() -> None:
    assert plain("a\\x1bb") == "ab"
"""


class Counted:
    """A run of coverage that is none of the tests' own, and what it found."""

    def __init__(self, place: Path) -> None:
        self._data = place / "lines"
        home = {f"XDG_{name}_HOME": str(place / name) for name in ("CONFIG", "STATE")}
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE_", "PYTEST_"))}
        self._environment = {**ours, **home, "PYTHONPATH": str(ROOT), "COVERAGE_FILE": str(self._data)}

    def run(self, *args: str) -> None:
        for arguments in (("run", "-m", *args), ("combine", "--quiet")):
            command = [sys.executable, "-m", "coverage", *arguments]
            subprocess.run(command, cwd=ROOT, env=self._environment, check=True, capture_output=True)

    def reached(self, file: str, line: str) -> bool:
        path = ROOT / "assistant" / file
        number = next(nth for nth, text in enumerate(path.read_text().splitlines(), 1) if line in text)
        data = CoverageData(str(self._data))
        data.read()
        return number in (data.lines(str(path)) or [])


@pytest.mark.timeout(60)
def test_lines_of_forked_workers_are_counted(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    own = ["--standalone", "--no-speech", "--set", "stages.intent.engine=templates"]
    counted.run("assistant", "ask", *own, "what time is it")
    assert counted.reached("stages/forkserver.py", "pid = os.fork()")
    assert counted.reached("stages/forkserver.py", "os.dup2(source, target)")  # the worker, just forked
    assert counted.reached("stages/worker.py", "engine.load()")
    assert counted.reached("stages/intent_templates.py", "hassil.recognize_best")
    assert not counted.reached("stages/forkserver.py", "os._exit(1)")  # nothing is counted that did not run


@pytest.mark.timeout(60)
def test_lines_of_pytests_workers_are_counted(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(TEST)
    counted = Counted(tmp_path)
    counted.run("pytest", "-n", "1", "--rootdir", str(tmp_path), "-p", "no:cacheprovider", str(tmp_path))
    assert counted.reached("plain_text.py", '_LEFT_OUT.sub("", text)')
    assert not counted.reached("plain_text.py", "_LEFT_OUT.sub(lambda")


def test_lines_of_a_copy_are_those_of_the_file(tmp_path: Path) -> None:
    data = CoverageData(str(tmp_path / "lines.copy"))
    data.add_lines({str(tmp_path / "checkout/assistant/plain_text.py"): [17]})
    data.write()
    combined = Coverage(data_file=str(tmp_path / "lines"), config_file=str(ROOT / "pyproject.toml"))
    combined.combine([str(tmp_path)])
    assert combined.get_data().measured_files() == {str(ROOT / "assistant/plain_text.py")}


def test_left_out_is_what_needs_torch_and_nothing_else() -> None:
    omit = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coverage"]["run"]["omit"]
    left_out = {Path(name).stem for name in omit}

    def needs_torch(path: Path) -> bool:
        imported = set()
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, ast.Import):
                imported |= {name.name.partition(".")[0] for name in statement.names}
            elif isinstance(statement, ast.ImportFrom):
                imported |= {(statement.module or "").rpartition(".")[2], *(name.name for name in statement.names)}
        return bool(imported & {"torch", *left_out})

    training = ROOT / "assistant/training"
    assert {f"*/assistant/training/{path.name}" for path in training.glob("*.py") if needs_torch(path)} == set(omit)
