"""`assistant doctor`, as a user runs it, on machines on which nothing works."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from assistant import paths
from assistant.cli_doctor import _lines
from assistant.doctor.findings import Finding
from assistant.doctor.visit import Report
from tests.doctor.machines import told
from tests.measured import measured

REMOTE = ("stages.asr.engine=wyoming", "stages.llm.engine=openai", "stages.tts.engine=wyoming")
SETS = tuple(part for one in ("audio.enabled=false", *REMOTE) for part in ("--set", one))


CODE = str(Path(paths.__file__).parents[1])


@pytest.fixture
def home() -> Iterator[Path]:
    """Short, for the sockets below it."""
    with tempfile.TemporaryDirectory(prefix="va-") as folder:
        yield Path(folder)


def doctor(
    *args: str, code: int | None = None, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "assistant", "doctor", *args],
        env={"PYTHONPATH": CODE, **measured(), **(environ or {})}, cwd="/", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr + done.stdout
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done


def at(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "PATH": os.environ["PATH"]}


def test_advice_alone_is_fine_and_json_carries_everything(home: Path) -> None:
    done = doctor("--json", *SETS, code=0, environ=at(home))
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert report["ok"] is True
    assert report["done"] == []
    assert set(report["findings"][0]) == {"id", "level", "found", "why", "fix", "fixable"}
    found = told(done.stdout)
    assert {"settings", "memory", "models", "disk", "versions"} <= set(found)
    assert {"sockets", "daemon-other"} & set(found), "somebody may run a daemon of his own here"
    assert not list(home.iterdir()), "a look changes nothing"


def test_fix_tells_what_it_did_and_what_is_left(home: Path) -> None:
    (home / ".config/assistant").mkdir(parents=True)
    (home / ".config/assistant").chmod(0o755)
    runtime = home / "assistant"
    runtime.mkdir(mode=0o755)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(runtime / "control.sock"))
    report = json.loads(doctor("--fix", "--json", *SETS, code=0, environ=at(home)).stdout)
    assert report["ok"] is True
    assert {done["id"] for done in report["done"] if done["good"]} >= {"folder-mode", "folder-missing", "socket-stale"}
    assert not (runtime / "control.sock").exists()
    assert runtime.stat().st_mode & 0o777 == 0o700
    assert (home / ".local/state/assistant").is_dir()
    plain = doctor("--fix", "--set", "audio.enabled=false", environ=at(home)).stdout
    assert plain.splitlines()[0] == "ok       settings: the defaults", "there is nothing left to mend"
    if "PROBLEM  model-missing: " in plain:
        assert "         fix: assistant models fetch whisper-tiny.en\n" in plain
    problems, advice = (len(re.findall(f"^{mark} ", plain, re.MULTILINE)) for mark in ("PROBLEM", "ADVICE"))
    faults = {0: "no problem", 1: "1 problem"}.get(problems, f"{problems} problems")
    hints = {0: "no piece of advice", 1: "1 piece of advice"}.get(advice, f"{advice} pieces of advice")
    assert re.fullmatch(rf"{faults}, {hints}, \d+ fine", plain.splitlines()[-1])


def test_where_nothing_works_everything_is_a_finding(home: Path) -> None:
    """Broken settings, no models, no sound library, no PATH."""
    (home / ".config/assistant").mkdir(parents=True, mode=0o700)
    (home / ".config/assistant/config.toml").write_text("[wake\n")
    (home / "libportaudio.so.2").touch()
    environ = {"HOME": str(home), "XDG_RUNTIME_DIR": f"{home}/{'long' * 30}", "LD_LIBRARY_PATH": str(home),
               "ASSISTANT_NOTHING": "1", "LANG": "C", "ASSISTANT_STAGES_TTS_MODEL": "no-such-voice"}  # fmt: skip
    done = doctor("--json", "--set", "api.tcp=tcp://127.0.0.1:5123", code=1, environ=environ)
    found = told(done.stdout)
    assert json.loads(done.stdout)["ok"] is False
    assert {"settings-broken", "sound-library", "runtime-dir-long", "model-unfit", "settings-refused"} <= set(found)
    assert len(found["settings-broken"]) == 2
    assert not {"not-looked-at", "looked-too-long"} & set(found)


def test_what_is_fine_is_no_fault_that_fix_would_mend() -> None:
    def mend() -> str:
        return ""

    found = (Finding("folder-missing", "ok", "f", "mkdir f", mend), Finding("swap-full", "advice", "s", "unload"))
    assert [*_lines(Report(found))][-1] == "no problem, 1 piece of advice, 1 fine"
    stale = Finding("socket-stale", "advice", "s", "rm s", mend)
    assert [*_lines(Report((*found, stale)))][-1].endswith("; 'assistant doctor --fix' mends 1")


def test_without_any_environment() -> None:
    found = told(doctor("--json", *SETS).stdout)
    assert "home-unset" in found
    assert not {"not-looked-at", "looked-too-long"} & set(found)


def test_a_wrong_set_is_a_usage_error(home: Path) -> None:
    assert "unknown key" in doctor("--set", "nothing=1", code=2, environ=at(home)).stderr


@pytest.mark.parametrize(("package", "json"), [("numpy", True), ("msgspec", False)])
def test_a_package_that_is_not_whole_is_told(home: Path, package: str, json: bool) -> None:
    (home / f"{package}.py").write_text(f'raise ModuleNotFoundError("No module named {package}")')
    done = doctor("--json", *SETS, code=1, environ={**at(home), "PYTHONPATH": f"{home}:{CODE}"})
    if json:
        (finding,) = told(done.stdout)["package-missing"]
        assert "numpy" in str(finding["found"])
        assert "pip install" in str(finding["fix"])
    else:  # without it there is no command line
        assert done.stdout == ""
        assert "msgspec" in done.stderr
        assert done.stderr.count("\n") == 1
