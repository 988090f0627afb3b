"""What a caller closed of stdin, stdout and stderr: verbs work all the same, and end with their own code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

VERBS = [
    ("models list", 0),
    ("config", 0),
    ("status", 3),
    ("ps", 3),
    ("top", 3),
    ("load llm", 3),
    ("models nonsense", 2),
]

LOOKS = """
import os, subprocess, sys
from assistant.__main__ import open_missing_descriptors

def look(name):
    with open(name, "w") as file:
        file.write(" ".join(os.readlink(f"/proc/self/fd/{number}") for number in range(3)))

if sys.argv[2:]:
    look("child")
else:
    open_missing_descriptors()
    print("lost", flush=True)
    print("lost", file=sys.stderr, flush=True)
    assert sys.stdin.read() == ""
    assert os.open(os.devnull, os.O_RDONLY) > 2
    subprocess.run([sys.executable, __file__, "", "child"], cwd=sys.argv[1], check=True)
    look(sys.argv[1] + "/own")
"""


def run(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    folder.chmod(0o700)
    environ = os.environ | {"XDG_RUNTIME_DIR": str(folder), "XDG_CONFIG_HOME": str(folder)}
    return subprocess.run(["sh", "-c", command], env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("verb", "code"), VERBS)
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_verbs_end_with_their_own_code(tmp_path: Path, verb: str, code: int, closed: str) -> None:
    done = run(tmp_path, f"exec {sys.executable} -m assistant {verb} {closed}")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert bool(done.stderr) == (code != 0 and "2>" not in closed)  # errors are still told to whoever listens
    assert bool(done.stdout) == (code == 0 and " >" not in f" {closed}")


def test_their_numbers_go_to_nothing_else_and_children_have_them(tmp_path: Path) -> None:
    program = tmp_path / "looks.py"
    program.write_text(LOOKS)
    done = run(tmp_path, f"PYTHONPATH=$PWD exec {sys.executable} {program} {tmp_path} <&- >&- 2>&-")
    assert done.returncode == 0
    assert (tmp_path / "own").read_text() == "/dev/null /dev/null /dev/null"
    assert (tmp_path / "child").read_text() == "/dev/null /dev/null /dev/null"
