"""The commands of the documentation are run: with a daemon without sound, in a folder that looks like the checkout."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.daemon_process import Place
from tests.docs.pages import ROOT, Block, all_blocks, command_lines

pytestmark = [pytest.mark.engine, pytest.mark.timeout(90)]

_LONGEST_S = 60
COMMANDS = [block for block in all_blocks("sh", "console") if block.marks == "run"]
PROGRAMS = [block for block in all_blocks("python") if block.marks == "run"]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """With a running daemon, `assistant` and `python` to be called by name, and a copy of what commands write to."""
    with Place() as place:
        here = place.folder / "checkout"
        here.mkdir()
        for name in ("assistant", "docs", "examples", "models", "scripts"):
            (here / name).symlink_to(ROOT / name)
        programs = place.folder / "bin"
        programs.mkdir()
        for name, called in (("assistant", "-m assistant"), ("python", "")):
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {called} "$@"\n')
            (programs / name).chmod(0o755)
        place.environ |= {
            "PATH": f"{programs}:{Path(sys.executable).parent}:{place.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "120",
        }
        place.daemon("--set", "stages.llm.max_new_tokens=12")
        yield place


def script_of(block: Block) -> str:
    """Stops at the first command that does not end as the page says; what it has left running ends with it."""
    lines = ["set -eu", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for line in command_lines(block):
        if expected := re.search(r"# exit: (\d+)", line):
            lines += ["code=0", f"{line[: expected.start()].rstrip()} || code=$?", f'[ "$code" = {expected[1]} ]']
        else:
            lines.append(line)
            if re.search(r"&\s*(#.*)?$", line):
                lines.append("sleep 1")  # until it has registered
    return "\n".join(lines) + "\n"


def run(place: Place, command: list[str], script: str) -> None:
    done = subprocess.run(
        command, input=script, cwd=place.folder / "checkout", env=place.environ, text=True, capture_output=True,
        check=False, timeout=_LONGEST_S,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}\n{done.stdout}\nof\n{script}"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_commands_do_what_the_page_says(place: Place, block: Block) -> None:
    run(place, ["bash"], script_of(block))


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_programs_run(place: Place, block: Block) -> None:
    run(place, [sys.executable, "-W", "error", "-"], block.code)


@pytest.mark.parametrize("block", [block for block in PROGRAMS if "Client" in block.code], ids=str)
def test_a_program_that_needs_a_daemon_says_that_there_is_none(block: Block) -> None:
    with Place() as lonely:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-"], input=block.code, cwd=ROOT, env=lonely.environ, text=True,
            capture_output=True, check=False, timeout=10,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("no daemon listens at")
    assert "Traceback" not in done.stderr


def test_a_command_that_fails_is_noticed(place: Place) -> None:
    for code in ("false\ntrue\n", "true  # exit: 3\n", "true\nno-such-program\n"):
        with pytest.raises(AssertionError):
            run(place, ["bash"], script_of(Block(ROOT / "README.md", 1, "sh", "run", code)))
    run(place, ["bash"], script_of(Block(ROOT / "README.md", 1, "sh", "run", "sh -c 'exit 2'  # exit: 2\n")))
    assert COMMANDS
