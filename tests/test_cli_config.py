"""`assistant config` and `assistant config keys`, as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from assistant import config
from assistant.config_checks import tcp_address
from assistant.errors import ConfigError
from tests.api.daemon_process import Place


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ASSISTANT_")}
    return subprocess.run(
        [sys.executable, "-m", "assistant", "config", *args],
        env=environ | {"XDG_CONFIG_HOME": str(folder)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_settings_are_printed_as_before(tmp_path: Path) -> None:
    assert 'api.tcp = ""' in run(tmp_path).stdout
    told = json.loads(run(tmp_path, "--json", "--set", "api.tcp=tcp://127.0.0.1:5123").stdout)
    assert told["api"]["tcp"] == "tcp://127.0.0.1:5123"
    assert run(tmp_path, "--set", "api.tcp=5123").returncode == 2
    assert run(tmp_path, "nothing").returncode == 2


def test_keys_are_made_and_what_the_other_side_needs_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "assistant" / "keys"
    done = run(tmp_path, "keys", "--client", "phone", "--right", "observe", "--right", "listen")
    assert done.returncode == 0, done.stderr
    server = tomllib.loads((folder / "server.key").read_text())
    theirs = tomllib.loads((folder / "outgoing/phone.key").read_text())
    assert server["public_key"] in done.stdout
    assert str(folder / "outgoing/phone.key") in done.stdout
    assert not [
        secret for secret in (server["secret_key"], theirs["secret_key"]) if secret in done.stdout + done.stderr
    ]
    assert tomllib.loads((folder / "clients/phone.toml").read_text())["rights"] == ["listen", "observe"]
    assert "until api.tcp" in done.stderr
    told = json.loads(run(tmp_path, "keys", "--json").stdout)
    assert told == {
        "server_public_key": server["public_key"], "server_key_file": str(folder / "server.key"), "new": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--client", "phone"), "no key is ever overwritten"),
        (("--client", "../x"), "no name of a client"),
        (("--client", "new", "--right", "root"), "there are observe, speak, listen, admin"),
        (("--right", "speak"), "name it with --client"),
        (("--client", "new", "--public-key", "x"), "40 characters"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(tmp_path: Path, args: tuple[str, ...], words: str) -> None:
    assert run(tmp_path, "keys", "--client", "phone").returncode == 0
    done = run(tmp_path, "keys", *args)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert words in done.stderr


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["metrics.enabled=true", "metrics.address=0.0.0.0"], "metrics.address"),
        (["wyoming.enabled=true", "wyoming.uri=tcp://192.0.2.1:10700"], "wyoming.uri"),
        (["api.tcp=tcp://0.0.0.0:5123"], "no server key"),
        (["stages.llm.engine=openai", "stages.llm.api_key_file=/none/key"], "api_key_file"),
        (["stages.llm.engine=openai", "stages.llm.api_key_env=SURELY_NOT_SET"], "SURELY_NOT_SET"),
        (["metrics.address=0.0.0.0"], ""),  # it is off
    ],
)
def test_what_a_daemon_would_refuse_is_told_beside_the_settings(tmp_path: Path, sets: list[str], words: str) -> None:
    done = run(tmp_path, "--json", *[part for one in sets for part in ("--set", one)])
    assert done.returncode == 0
    assert json.loads(done.stdout)["metrics"]["port"] == 9107
    assert (words in done.stderr, "would refuse to start" in done.stderr) == (True, bool(words))


@pytest.mark.parametrize("text", ["tcp://0.0.0.0:5123", "tcp://*:1", "tcp://[::1]:65533", "tcp://192.0.2.1:80"])
def test_addresses(text: str) -> None:
    host, port = tcp_address(text) or ("", 0)
    assert f"tcp://{host}:{port}" == text
    assert config.load([f"api.tcp={text}"], files=(), environ={}).api.tcp == text


@pytest.mark.parametrize(
    "text",
    ["5123", "tcp://", "tcp://0.0.0.0", "tcp://:5", "tcp://host:5", "tcp://0.0.0.0:0", "tcp://0.0.0.0:65534",
     "udp://0.0.0.0:5", "0.0.0.0:5", "tcp://::1:5", "tcp://[0.0.0.0]:5", "tcp://0.0.0.0:5/", "tcp://0.0.0.0:٥",
     "tcp://0.0.0.0:-5", "tcp://eth0:5", "ipc:///tmp/x"],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"api\.tcp is"):
        config.load([f"api.tcp={text}"], files=(), environ={})
    assert tcp_address("") is None


def test_a_daemon_without_keys_does_not_listen() -> None:
    with Place() as place:
        daemon = place.start("run", "--set", "api.tcp=tcp://127.0.0.1:5123")
        _, err = daemon.communicate(timeout=15)
        assert daemon.returncode == 2
        assert "assistant config keys" in err
        assert not list(place.runtime.glob("*.sock"))
