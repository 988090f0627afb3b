"""`assistant --version`, and what shells are told when somebody presses the tabulator."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from assistant import __version__, versions

TAB = "COMPREPLY=(); COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _assistant_completion assistant"


def call(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "assistant", *args],
        env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=15,
    )  # fmt: skip


@pytest.mark.parametrize("args", [("--version", "--json"), ("--json", "--version")])
def test_versions_are_those_that_are_installed(args: tuple[str, ...]) -> None:
    told = json.loads(call(*args).stdout)
    assert told["assistant"] == __version__
    for name in versions.ENGINES:
        assert told[name] == metadata.version(name)


def test_versions_are_lines_for_people() -> None:
    lines = call("--version").stdout.splitlines()
    assert lines == [f"{name} {version}" for name, version in versions.installed().items()]


def test_nothing_is_imported_to_know_its_version() -> None:
    code = "import sys; from assistant import versions; versions.installed(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"MNN", "ctranslate2", "onnxruntime", "piper", "vosk", "zmq", "numpy"} & set(done.stdout.split())


def test_what_is_not_installed_is_said_to_be_so(tmp_path: Path) -> None:
    def of(name: str) -> metadata.Distribution:
        if name == "vosk":
            raise metadata.PackageNotFoundError(name)
        folder = tmp_path / f"{name}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: 9\n")
        (folder / "RECORD").write_text("pyzmq.libs/libzmq-2f0.so.5.2.6,,\n" if name == "pyzmq" else "")
        return metadata.Distribution.at(folder)

    found = versions.installed(of)
    assert (found["vosk"], found["MNN"], found["libzmq.so"]) == (None, "9", "5.2.6")


def test_json_belongs_to_a_verb_or_to_the_version() -> None:
    done = call("--json", "status")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "bad-arguments")


@pytest.mark.parametrize(("words", "wanted"), [("models f", {"fetch"}), ("install", {"install-service"})])
def test_bash_completes_verbs(tmp_path: Path, words: str, wanted: set[str]) -> None:
    """bash itself runs the script that it is given."""
    (tmp_path / "assistant").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m assistant "$@"\n')
    (tmp_path / "assistant").chmod(0o755)
    script = call(_ASSISTANT_COMPLETE="source_bash").stdout
    script += f'\nPATH="{tmp_path}:$PATH"\n{TAB.format(words="assistant " + words)}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True, check=True, timeout=15)
    assert set(done.stdout.split()) == wanted


@pytest.mark.parametrize(("shell", "told"), [("zsh", "#compdef assistant"), ("fish", "complete --command assistant")])
def test_other_shells_have_their_script_and_are_answered(shell: str, told: str) -> None:
    assert told in call(_ASSISTANT_COMPLETE=f"source_{shell}").stdout
    asked = {"_ASSISTANT_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "assistant models f"}
    assert "fetch" in call(**asked, _TYPER_COMPLETE_FISH_ACTION="get-args").stdout


@pytest.mark.parametrize("args", [[], ["models"], ["bench"]])
def test_who_asks_for_nothing_is_shown_what_there_is_and_no_error(args: list[str]) -> None:
    done = call(*args)
    assert (done.returncode, "Commands" in done.stdout, done.stderr) == (2, True, "")
