"""`assistant install-service` as a process: what is written, refused, removed; and a daemon in what the unit sets."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assistant.cli_service import check_target
from assistant.errors import UsageError
from assistant.service_unit import MARKER
from tests.lacking import lacks
from tests.measured import measured

CODE = {name: value for name, value in os.environ.items() if not name.startswith(("ASSISTANT_", "XDG_", "WATCHDOG"))}


@pytest.fixture
def home() -> Iterator[Path]:
    """Short, because sockets are made in it."""
    folder = Path(tempfile.mkdtemp(prefix="va s-"))
    yield folder
    shutil.rmtree(folder)


def call(home: Path, *args: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "assistant", *args],
        env={**CODE, "HOME": str(home)}, capture_output=True, text=True, check=False, timeout=15,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_users_service_comes_and_goes(home: Path) -> None:
    path = home / ".config/systemd/user/assistant.service"
    told = json.loads(call(home, "install-service", "--user", "--json", "--set", "house.names=big lamp"))
    assert (told["path"], told["written"]) == (str(path), True)
    assert path.read_text("utf-8") == told["unit"]
    assert path.stat().st_mode & 0o777 == 0o644
    assert '--set "house.names=big lamp"' in told["unit"]
    assert f'ReadWritePaths="-{home}/.local/state/assistant"' in told["unit"]
    assert "systemctl --user enable --now assistant" in told["commands"]
    assert (home / ".local/state/assistant").stat().st_mode & 0o777 == 0o700
    # what a shell sets is not what the service will see; ours may be written again
    said = call(home, "install-service", "--user")
    assert said.startswith(f"written: {path}")
    assert "house.names" not in path.read_text("utf-8")
    wants = path.parent / "default.target.wants"
    wants.mkdir()
    (wants / path.name).symlink_to(path)
    assert json.loads(call(home, "uninstall-service", "--user", "--json"))["removed"]
    assert not path.exists()
    assert list(wants.iterdir()) == []


def test_people_are_told_what_is_left_to_do_when_it_goes(home: Path) -> None:
    call(home, "install-service", "--user")
    said = call(home, "uninstall-service", "--user")
    assert said.splitlines() == [
        f"removed: {home}/.config/systemd/user/assistant.service",
        "  systemctl --user stop assistant",
        "  systemctl --user daemon-reload",
    ]
    assert "there is no" in call(home, "uninstall-service", "--user", code=2)


def test_a_folder_for_timers_that_cannot_be_made_is_told_before_anything_is_written(home: Path) -> None:
    (home / ".local").mkdir()
    (home / ".local/state").write_text("")
    told = call(home, "install-service", "--user", code=2)
    assert f"{home}/.local/state/assistant, where timers are kept, cannot be made" in told
    assert not (home / ".config").exists()


def test_a_dry_run_prints_the_unit_alone(home: Path) -> None:
    said = call(home, "install-service", "--user", "--dry-run")
    assert said.startswith(f"{MARKER}\n\n[Unit]")
    assert said.endswith("WantedBy=default.target\n")
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("what", ["another's", "masked", "folder"])
def test_what_somebody_else_has_written_stays(home: Path, what: str) -> None:
    path = home / ".config/systemd/user/assistant.service"
    path.parent.mkdir(parents=True)
    if what == "masked":
        path.symlink_to("/dev/null")
    elif what == "folder":
        path.mkdir()
    else:
        path.write_text("[Service]\nExecStart=/bin/true\n")
    for verb in ("install-service", "uninstall-service"):
        said = call(home, verb, "--user", code=2)
        assert len(said.splitlines()) == 1
        assert str(path) in said
    assert os.path.lexists(path)


def test_an_image_gets_the_systems_service(home: Path) -> None:
    told = json.loads(call(home, "install-service", "--system", "--root", str(home), "--json", "--account", "voice"))
    assert told["path"] == str(home / "etc/systemd/system/assistant.service")
    assert "User=voice\nSupplementaryGroups=audio\n" in told["unit"]
    make, enable = map(shlex.split, told["commands"])
    assert make[:3] == ["sudo", "systemd-sysusers", f"--root={home}"]
    assert enable == ["sudo", "systemctl", f"--root={home}", "enable", "assistant"]
    (home / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nvoice:x:990:990::/var/lib/assistant:/sbin/nologin\n")
    told = json.loads(call(home, "install-service", "--system", "--root", str(home), "--json", "--account", "voice"))
    assert [shlex.split(one) for one in told["commands"]] == [enable], "the account is there"
    assert call(home, "uninstall-service", "--system", "--root", str(home)).startswith("removed: ")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="an account is made by root")
def test_the_commands_for_an_image_make_what_the_unit_names(home: Path) -> None:
    if shutil.which("systemd-sysusers") is None:
        lacks("systemd", "systemd is not installed")
    (home / "etc").mkdir()
    args = ("install-service", "--system", "--root", str(home), "--account", "voice", "--json")
    for command in json.loads(call(home, *args))["commands"]:
        subprocess.run(command.removeprefix("sudo "), shell=True, check=True, timeout=15, capture_output=True)
    users = [line.split(":") for line in (home / "etc/passwd").read_text("utf-8").splitlines()]
    assert [(user[0], user[4], user[5]) for user in users] == [("voice", "Local voice assistant", "/var/lib/assistant")]
    wanted = home / "etc/systemd/system/multi-user.target.wants/assistant.service"
    assert str(wanted.readlink()) == "/etc/systemd/system/assistant.service"


def test_what_cannot_be_is_refused_in_one_line(home: Path) -> None:
    assert "no name of a user" in call(home, "install-service", "--account", "a b", "--dry-run", code=2)
    assert "did you mean" in call(home, "install-service", "--dry-run", "--set", "memory.budget=1", code=2)
    assert "there is no" in call(home, "uninstall-service", "--user", code=2)
    (home / ".config").write_text("a file")
    assert "cannot be" in call(home, "install-service", "--user", code=2)


def test_the_systems_service_wants_root(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run this with sudo"):
        check_target(tmp_path / "none", system=True, root=Path("/"), user=1000)
    check_target(tmp_path / "none", system=True, root=Path("/"), user=0)
    check_target(tmp_path / "none", system=True, root=tmp_path, user=1000)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--user", "--system"), "--system and --user exclude each other"),
        (("--system", "--user"), "--system and --user exclude each other"),
        (("--user", "--root", "/tmp"), "--root goes with --system"),
        (("--system", "--root", "no such image"), "there is no such folder"),
        (("--system", "--root", ""), "there is no such folder"),
    ],
)
def test_scopes_that_contradict_and_images_that_are_not_there(home: Path, args: tuple[str, ...], words: str) -> None:
    # below a folder of our own: this machine's service is not what is tried
    for verb in (("install-service", "--dry-run"), ("uninstall-service", "--root", str(home))):
        assert words in call(home, *verb, *args, code=2)
    assert list(home.iterdir()) == []


def test_an_account_is_the_systems(home: Path) -> None:
    assert "(--system)" in call(home, "install-service", "--dry-run", "--user", "--account", "voice", code=2)


def test_the_commands_for_an_image_can_be_run_from_anywhere(home: Path) -> None:
    root = os.path.relpath(home)
    told = json.loads(call(home, "install-service", "--system", "--root", root, "--json", "--dry-run"))
    assert told["path"] == f"{home}/etc/systemd/system/assistant.service"
    for command in map(shlex.split, told["commands"]):
        assert command[0] == "sudo"
        assert f"--root={home}" in command


def environment_of(unit: str, **roots: str) -> dict[str, str]:
    """What a manager hands to the daemon: the unit's variables, and those of the folders that it made."""
    words = [shlex.split(line)[0] for line in re.findall(r"^Environment=(.*)$", unit, re.MULTILINE)]
    variables = dict(word.split("=", 1) for word in words)
    for name, value in variables.items():
        for specifier, folder in roots.items():
            value = value.replace(f"%{specifier}", folder)
        variables[name] = value.replace("%%", "%")
    return variables


@pytest.mark.parametrize("scope", ["--user", "--system"])
def test_a_daemon_in_what_the_unit_sets_tells_systemd_that_it_lives(home: Path, scope: str) -> None:
    args = ["--dry-run", scope, "--set", "audio.enabled=false"]
    unit = call(home, "install-service", *args)
    folders = {letter: home / name for letter, name in (("t", "run"), ("S", "state"), ("C", "cache"))}
    for folder in folders.values():
        (folder / "assistant").mkdir(parents=True, mode=0o700)
    command = shlex.split(re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)[0])
    variables = environment_of(unit, **{letter: str(folder) for letter, folder in folders.items()})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(home / "notify"))
        sock.settimeout(15)
        more: dict[str, Any] = {"cwd": "/", "stderr": subprocess.PIPE, "text": True}
        service = subprocess.Popen(
            command,
            env={**measured(), "PATH": os.defpath, "HOME": str(home), "NOTIFY_SOCKET": str(home / "notify"),
                 "WATCHDOG_USEC": "400000", "RUNTIME_DIRECTORY": str(folders["t"] / "assistant"), **variables},
            **more,
        )  # fmt: skip
        try:
            # the watchdog may be fed before everything else is told
            heard = [sock.recv(1024).decode()]
            started = time.monotonic()
            while not {"READY=1", "WATCHDOG=1"} <= {one.partition("\n")[0] for one in heard}:
                heard.append(sock.recv(1024).decode())
                assert time.monotonic() < started + 15, heard
            assert (folders["t"] / "assistant/control.sock").is_socket()
            service.terminate()
            while heard[-1] != "STOPPING=1":
                heard.append(sock.recv(1024).decode())
            assert service.wait(10) == 0
        finally:
            service.kill()
            assert service.stderr is not None
            service.stderr.close()
            service.wait()
    if scope == "--system":
        assert (folders["S"] / "assistant").is_dir()
    assert not (home / ".cache").exists()
    assert not (home / ".config").exists()
