"""The list of clients: read anew when it changes, and what is not understood lets nobody in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.api.allowed import Allowed, AllowList
from assistant.api.rights import Right


def key() -> str:
    return zmq.curve_keypair()[0].decode()


def put(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.fixture
def listed(tmp_path: Path) -> tuple[Path, AllowList, list[str]]:
    told: list[str] = []
    return tmp_path / "clients", AllowList(tmp_path / "clients", told.append), told


Listed = tuple[Path, AllowList, list[str]]


def test_clients_come_change_and_go(listed: Listed) -> None:
    folder, allowed, told = listed
    one, two = key(), key()
    assert allowed.of(one) is None
    path = put(folder, "phone.toml", f'public_key = "{one}"\nrights = ["speak"]\n')
    assert allowed.of(one) == Allowed("phone", one, frozenset({Right.SPEAK}))
    assert allowed.of(two) is None
    for _ in range(20):  # within one tick of the file system's clock, and of the same length
        for right in ("admin", "speak"):
            path.write_text(f'public_key = "{one}"\nrights = ["{right}"]\n')
            assert allowed.of(one) == Allowed("phone", one, frozenset({Right(right)}))
    put(folder, "tablet.toml", f'public_key = "{two}"\n')
    assert allowed.of(two) == Allowed("tablet", two, frozenset())
    path.write_text(f'public_key = "{key()}"\nrights = ["speak"]\n')  # the name has another key now
    assert allowed.of(one) is None
    path.unlink()
    assert set(allowed.look()) == {two}
    assert len(told) == 1  # there was no folder


def test_what_has_not_changed_is_not_read_again(listed: Listed) -> None:
    folder, allowed, _ = listed
    one = key()
    path = put(folder, "phone.toml", f'public_key = "{one}"\n')
    os.utime(path, ns=(0, 0))
    first = allowed.look()
    allowed._settled = True
    assert allowed.look() is first
    os.utime(path)
    assert allowed.look() is not first


WRONG = {
    "no toml": "public_key = ",
    "no key": 'rights = ["speak"]',
    "a short key": 'public_key = "abc"\n',
    "a number": "public_key = 7\n",
    "an unknown right": 'public_key = "KEY"\nrights = ["root"]\n',
    "rights as text": 'public_key = "KEY"\nrights = "admin"\n',
    "a right as list": 'public_key = "KEY"\nrights = [["admin"]]\n',
    "an unknown field": 'public_key = "KEY"\nright = ["speak"]\n',
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_is_wrong_lets_nobody_in_and_is_told_once(listed: Listed, wrong: str) -> None:
    folder, allowed, told = listed
    good, bad = key(), key()
    put(folder, "good.toml", f'public_key = "{good}"\n')
    put(folder, "bad.toml", WRONG[wrong].replace("KEY", bad))
    for _ in range(3):
        assert set(allowed.look()) == {good}
    assert [line for line in told if "bad.toml" in line] == told
    assert len(told) == 1


@pytest.mark.parametrize("wrong", ["link", "others write", "name", "folder", "twice", "fifo"])
def test_a_file_that_others_may_have_made_lets_nobody_in(listed: Listed, tmp_path: Path, wrong: str) -> None:
    folder, allowed, told = listed
    one = key()
    text = f'public_key = "{one}"\nrights = ["admin"]\n'
    path = put(folder, "phone.toml", text)
    assert allowed.of(one)
    match wrong:
        case "link":
            path.rename(tmp_path / "elsewhere")
            path.symlink_to(tmp_path / "elsewhere")
        case "others write":
            path.chmod(0o620)
        case "name":
            path.rename(folder / "pho ne.toml")
        case "folder":
            path.unlink()
            path.mkdir()
        case "fifo":
            path.unlink()
            os.mkfifo(path, 0o600)
        case _:
            put(folder, "second.toml", text)
    assert allowed.of(one) is None
    assert told


def test_a_folder_that_others_may_enter_lets_nobody_in(listed: Listed) -> None:
    folder, allowed, told = listed
    one = key()
    put(folder, "phone.toml", f'public_key = "{one}"\n')
    assert allowed.of(one)
    folder.chmod(0o770)
    assert allowed.of(one) is None
    assert "others may enter it" in told[0]
    folder.chmod(0o700)
    assert allowed.of(one)


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.binary(max_size=300), st.text(max_size=200).map(lambda text: f"rights = {text}".encode())))
def test_whatever_is_in_a_file_nobody_comes_in_by_it(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("c") / "clients"
    put(folder, "a.toml", "")
    (folder / "a.toml").write_bytes(data)
    assert AllowList(folder, lambda _: None).look() == {}
