"""Addresses that this machine alone can reach, and sockets of this user alone."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from assistant.api.loopback import checked_loopback, tcp_listener, unix_listener
from assistant.errors import ConfigError


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1"])
def test_addresses_of_this_machine_stay(address: str) -> None:
    assert checked_loopback(address, "a.key", "why") == address
    assert checked_loopback("localhost", "a.key", "why") == "127.0.0.1"


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.1", "8.8.8.8", "::ffff:10.0.0.1", "", "a b", "127.1"])
def test_others_are_refused_with_the_reason(address: str) -> None:
    with pytest.raises(ConfigError, match=r"^a\.key: "):
        checked_loopback(address, "a.key", "why")


def test_a_port_that_is_taken_is_told() -> None:
    with tcp_listener("127.0.0.1", 0, "a.key") as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=f"a.key: 127.0.0.1 port {port}"):
            tcp_listener("127.0.0.1", port, "a.key")
    with pytest.raises(ConfigError, match="port 70000"):
        tcp_listener("127.0.0.1", 70_000, "a.key")


def test_a_socket_that_a_killed_process_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    unix_listener(path, "a.key").close()
    assert path.is_socket()
    with unix_listener(path, "a.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(ConfigError, match="another process listens"):
            unix_listener(path, "a.key")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


@pytest.mark.parametrize("kind", ["file", "link", "no-folder", "long", "nul"])
def test_what_is_no_socket_of_ours_is_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s"
    match kind:
        case "file":
            path.write_text("mine")
        case "link":
            os.symlink(tmp_path / "elsewhere", path)
        case "no-folder":
            path = tmp_path / "none" / "s"
        case "long":
            path = tmp_path / ("x" * 200)
        case _:
            path = tmp_path / "a\0b"
    with pytest.raises(ConfigError, match=r"^a\.key: "):
        unix_listener(path, "a.key")
    assert kind != "file" or path.read_text() == "mine"
