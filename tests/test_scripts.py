"""What `scripts/run` takes for a recording and what for a question; the help of the scripts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
ENDS = "#!/bin/sh\nexit 0\n"
TELLS = "#!/bin/sh\nprintf '%s\\n' \"$@\"\n"


class Place:
    """A checkout that holds the script and nothing to set up; its assistant prints how it was called."""

    def __init__(self, top: Path) -> None:
        self.root = top / "check out"
        self.here = top / "somewhere"
        self.here.mkdir()
        (self.root / "scripts").mkdir(parents=True)
        shutil.copy(SCRIPTS / "run", self.root / "scripts")
        self.program("scripts/setup", ENDS)
        self.program(".venv/bin/assistant", TELLS)

    def program(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run(self, *args: str, script: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(script or self.root / "scripts/run"), *args]
        return subprocess.run(command, cwd=self.here, capture_output=True, text=True, check=False)

    def asked(self, *args: str, script: Path | None = None) -> list[str]:
        """What the assistant was given as its question."""
        done = self.run(*args, script=script)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[:4] == ["ask", "--standalone", "--out", "answer.wav"]
        return lines[4:]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["none.wav", "my own question.wav", "none.wva", "none.m4a", "none.webm", "none.au", "sounds/none", "/none", "-"],
)
def test_what_looks_like_the_name_of_a_recording_is_one(place: Place, name: str) -> None:
    assert place.asked(name) == [f"--wav={name}"]


def test_a_file_that_exists_is_a_recording_whatever_its_name(place: Place) -> None:
    for name in ("question", "What is this?"):
        (place.here / name).write_bytes(b"")
        assert place.asked(name) == [f"--wav={name}"]


@pytest.mark.parametrize(
    "text",
    ["What is 24/7?", "Who wrote readme.txt and why", "Hello.", "Hello", "Who are you? Answer in 3.5 words.", ""],
)
def test_anything_else_is_typed(place: Place, text: str) -> None:
    assert place.asked(text) == ["--", text]


def test_without_an_argument_the_question_is_ours(place: Place) -> None:
    assert place.asked() == [f"--wav={place.root}/assistant/data/question.wav"]


def test_two_dashes_end_the_options(place: Place) -> None:
    assert place.asked("--", "-1 plus 2?") == ["--", "-1 plus 2?"]
    assert place.asked("--", "-h.wav") == ["--wav=-h.wav"]
    assert place.asked("--") == place.asked()


@pytest.mark.parametrize("args", [["--hepl"], ["-x"], ["--wav", "a.wav"], ["one", "two"], ["--", "one", "two"]])
def test_a_wrong_call_is_told_the_usage_before_anything_is_set_up(place: Place, args: list[str]) -> None:
    (place.root / "scripts/setup").unlink()
    done = place.run(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("run: ")
    assert "Usage: scripts/run" in done.stderr


def test_a_symbolic_link_works(place: Place) -> None:
    link = place.here / "ask"
    link.symlink_to("../check out/scripts/run")
    assert place.asked(script=link) == [f"--wav={place.root}/assistant/data/question.wav"]


def _passes(place: Place, script: str, *args: str) -> list[str]:
    """How Python's modules are run by a script, one a line."""
    for name in ("test", "coverage"):
        shutil.copy(SCRIPTS / name, place.root / "scripts")
    place.program(".venv/bin/python", '#!/bin/sh\nprintf "%s " "$@"\necho\n')
    done = place.run(*args, script=place.root / "scripts" / script)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.strip() for line in done.stdout.splitlines() if " models fetch " not in line]


@pytest.mark.parametrize("args", [(), ("-k", "one"), ("--hostile",)])
def test_coverage_runs_what_the_tests_run(place: Place, args: tuple[str, ...]) -> None:
    tests = _passes(place, "test", *args)
    assert len(tests) == (1 if args else 3)
    *counted, combined, _ = _passes(place, "coverage", *args)
    assert counted == [line.replace("-m pytest", "-m coverage run -m pytest") for line in tests]
    assert combined == "-m coverage combine --quiet"


@pytest.mark.parametrize("missing", [True, False])
def test_setup_says_what_sound_needs_and_goes_on(place: Place, missing: bool) -> None:
    shutil.copy(SCRIPTS / "setup", place.root / "scripts")
    for name in ("pyproject.toml", "models/one/manifest.json"):
        (place.root / name).parent.mkdir(parents=True, exist_ok=True)
        (place.root / name).write_text("")
    place.program(".venv/bin/python", f'#!/bin/sh\n[ "$2" != "import sounddevice" ] || exit {int(missing)}\n')
    done = place.run(script=place.root / "scripts/setup")
    assert done.returncode == 0
    assert ("sudo apt install libportaudio2" in done.stderr) is missing
    assert "preparing the models" in done.stderr
    again = place.run(script=place.root / "scripts/setup")
    assert (again.returncode, again.stderr) == (0, ""), "told once"


@pytest.mark.parametrize("name", ["run", "test", "coverage"])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_short_and_sets_nothing_up(tmp_path: Path, name: str, flag: str) -> None:
    shutil.copy(SCRIPTS / name, tmp_path)
    done = subprocess.run([tmp_path / name, flag], cwd="/", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: scripts/{name}")


@pytest.mark.parametrize("name", ["run", "test", "setup", "lint", "coverage"])
def test_every_script_finds_its_checkout_through_a_link(name: str) -> None:
    assert 'cd "$(dirname "$(readlink -f "$0")")/.."' in (SCRIPTS / name).read_text()
