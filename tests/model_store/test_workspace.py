"""Locks exclude, temporary folders vanish, dead runs are swept, a full disk is refused in advance."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread

import pytest

from assistant.errors import FetchFailed
from assistant.model_store.workspace import link_or_copy, locked, need_space, sweep, workspace

_HOLD = """
import sys, time
from pathlib import Path
from assistant.model_store.workspace import workspace
with workspace(Path(sys.argv[1])) as path:
    (path / "half").write_bytes(b"x")
    print(path, flush=True)
    time.sleep(60)
"""


def test_the_second_holder_waits_and_says_so(tmp_path: Path) -> None:
    order: list[str] = []
    waiting = Event()

    def second() -> None:
        with locked(tmp_path, "key", waiting.set):
            order.append("second")

    with locked(tmp_path, "key"), locked(tmp_path, "another key"):
        thread = Thread(target=second)
        thread.start()
        assert waiting.wait(5)
        time.sleep(0.05)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]


def test_a_workspace_goes_even_when_its_block_fails(tmp_path: Path) -> None:
    def fail() -> None:
        with workspace(tmp_path) as path:
            (path / "half").write_bytes(b"x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_the_living_are_left_alone_and_the_dead_are_swept(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        path = Path(child.stdout.readline().strip())
        try:
            sweep(tmp_path)
            assert (path / "half").exists()
        finally:
            child.kill()
    assert path.exists()
    with workspace(tmp_path) as ours:
        assert list(tmp_path.iterdir()) == [ours]


def test_too_little_room_is_said_in_advance(tmp_path: Path) -> None:
    need_space(tmp_path, 100 << 20, "the model", lambda folder: 200 << 20)
    with pytest.raises(FetchFailed, match=r"the model needs 116 MiB .* and 50 MiB are free") as caught:
        need_space(tmp_path, 100 << 20, "the model", lambda folder: 50 << 20)
    assert caught.value.code == "disk-full"


def test_a_link_shares_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    link_or_copy(tmp_path / "a", tmp_path / "deep/b")
    assert (tmp_path / "a").samefile(tmp_path / "deep/b")


def test_a_copy_is_made_where_links_are_not_to_be_had(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system to copy to")
    with workspace(other / "assistant-test-copy") as target:
        (tmp_path / "a").write_bytes(b"x")
        link_or_copy(tmp_path / "a", target / "b")
        assert (target / "b").read_bytes() == b"x"
    (other / "assistant-test-copy").rmdir()
