"""Key files: made whole, for their owner alone, never overwritten, and refused when others could have touched them."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import zmq

from assistant.api import keys
from assistant.api.rights import Right
from assistant.errors import ConfigError, UsageError
from tests.stages.disks import mounted_tmpfs


def modes(folder: Path) -> set[int]:
    return {path.lstat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}


def test_the_server_key_is_made_once(tmp_path: Path) -> None:
    made, new = keys.make_server(tmp_path / "keys")
    again, not_new = keys.make_server(tmp_path / "keys")
    assert (new, not_new) == (True, False)
    assert made == again == keys.read_server(tmp_path / "keys")
    assert zmq.curve_public(made.secret.encode()).decode() == made.public
    assert made.secret not in repr(made)
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700
    assert modes(tmp_path) == {0o600}


def test_a_file_is_never_open_to_others_whatever_the_umask(tmp_path: Path) -> None:
    """Seen by a process that looks at each file as soon as it is there."""
    code = (
        "import os, sys; from pathlib import Path; os.umask(0); from assistant.api import keys;"
        "real = os.open;"
        "seen = [];"
        "os.open = lambda *a, **k: (fd := real(*a, **k), seen.append(os.fstat(fd).st_mode & 0o777))[0];"
        "keys.make_client(Path(sys.argv[1]), 'phone', []);"
        "print(sorted({oct(mode) for mode in seen}))"
    )
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path / "k")], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "['0o600']"
    assert modes(tmp_path) == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "k").rglob("*") if path.is_dir()} == {0o700}


def test_a_client_gets_its_pair_and_our_public_key(tmp_path: Path) -> None:
    made = keys.make_client(tmp_path / "k", "phone", [Right.SPEAK, Right.OBSERVE])
    assert made.outgoing is not None
    theirs, listed = tomllib.loads(made.outgoing.read_text()), tomllib.loads(made.listed.read_text())
    assert theirs["server_public_key"] == keys.read_server(tmp_path / "k").public
    assert zmq.curve_public(theirs["secret_key"].encode()).decode() == theirs["public_key"] == listed["public_key"]
    assert listed["rights"] == ["observe", "speak"]
    assert theirs["secret_key"] not in made.listed.read_text()
    assert not [path for path in tmp_path.rglob(".*")]  # nothing half-made is left


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    keys.make_client(tmp_path / "k", "phone", [Right.SPEAK])
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    for public in (None, zmq.curve_keypair()[0].decode()):
        with pytest.raises(UsageError, match="no key is ever overwritten"):
            keys.make_client(tmp_path / "k", "phone", [Right.ADMIN], public)
    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.root
def test_on_a_full_disk_nothing_half_made_is_in_the_way_of_another_try(tmp_path: Path) -> None:
    """With room for one file more each time, so that each of them is once the one that does not fit."""
    failed = 0
    with mounted_tmpfs(tmp_path / "disk", "1m,nr_inodes=2") as disk:
        for inodes in range(3, 12):
            subprocess.run(["mount", "-o", f"remount,nr_inodes={inodes}", str(disk)], check=True)
            try:
                made = keys.make_client(disk / "k", "phone", [Right.SPEAK])
                break
            except ConfigError as error:
                failed += "No space left" in error.message
        assert failed >= 4
        assert made.outgoing is not None
        assert tomllib.loads(made.outgoing.read_text())["public_key"] in made.listed.read_text()


def test_a_client_may_keep_its_secret(tmp_path: Path) -> None:
    public = zmq.curve_keypair()[0].decode()
    made = keys.make_client(tmp_path / "k", "phone", [], public)
    assert (made.public, made.outgoing) == (public, None)
    assert not (tmp_path / "k" / keys.OUTGOING / "phone.key").exists()
    with pytest.raises(UsageError, match="40 characters"):
        keys.make_client(tmp_path / "k", "tablet", [], public[:-1])


def test_a_key_is_listed_once(tmp_path: Path) -> None:
    """Twice, it would let nobody in: the first client would be shut out by the second."""
    public = zmq.curve_keypair()[0].decode()
    keys.make_client(tmp_path / "k", "phone", [Right.SPEAK], public)
    (tmp_path / "k" / keys.CLIENTS / "broken.toml").write_text("[[[")
    with pytest.raises(UsageError, match="listed already, as the client 'phone'"):
        keys.make_client(tmp_path / "k", "tablet", [Right.ADMIN], public)
    assert not (tmp_path / "k" / keys.CLIENTS / "tablet.toml").exists()
    (tmp_path / "k" / keys.CLIENTS / "phone.toml").unlink()
    assert keys.make_client(tmp_path / "k", "tablet", [Right.ADMIN], public).name == "tablet"


@pytest.mark.parametrize("name", ["", "../phone", "a b", ".hidden", "x" * 25, "a:b", "ä", "a/b", "a\n"])
def test_what_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no name of a client"):
        keys.make_client(tmp_path / "k", name, [])
    assert not (tmp_path / "k").exists()


@pytest.mark.parametrize(
    "wrong", ["mode", "link", "folder", "toml", "short", "pair", "missing", "fifo", "bytes", "large"]
)
def test_a_server_key_that_is_not_right_is_refused(tmp_path: Path, wrong: str) -> None:
    folder = tmp_path / "k"
    keys.make_server(folder)
    path = folder / keys.SERVER
    text = path.read_text()
    path.unlink()
    match wrong:
        case "link":
            (tmp_path / "elsewhere").write_text(text)
            (tmp_path / "elsewhere").chmod(0o600)
            path.symlink_to(tmp_path / "elsewhere")
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path, 0o600)
        case "missing":
            path.write_text(text.splitlines()[0])
        case "toml":
            path.write_text(text.replace('"', ""))
        case "short":
            path.write_text(text.replace('"\n', '\n"', 1))
        case "pair":
            path.write_text(f'public_key = "{zmq.curve_keypair()[0].decode()}"\n' + text.splitlines()[1])
        case "bytes":
            path.write_bytes(b"\xff\xfe" + text.encode())
        case "large":
            path.write_text("#" * 5000 + "\n" + text)
        case _:
            path.write_text(text)
    if path.is_file() and not path.is_symlink():
        path.chmod(0o644 if wrong == "mode" else 0o600)
    with pytest.raises(ConfigError, match=r"server\.key") as caught:
        keys.read_server(folder)
    secret = text.split('"')[3]
    assert secret not in caught.value.message


def test_keys_are_not_made_in_a_folder_of_others(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "k").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigError, match="it is a link"):
        keys.make_server(tmp_path / "k")
    (tmp_path / "real").chmod(0o750)
    with pytest.raises(ConfigError, match=r"api\.keys_dir"):
        keys.make_server(tmp_path / "real")
    assert not list((tmp_path / "real").iterdir())
