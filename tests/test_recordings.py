"""Debug recordings: private, bounded, and never in anybody's way."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from assistant.audio.formats import read_audio
from assistant.messages import IntentReport, MemoryReport, Outcome, QueryReport, Timings
from assistant.recordings import MOST_WAITING, Recordings

NOON = 1_796_040_000.0
"""2026-11-30 12:00 UTC"""
SECOND = b"\1\2" * 16_000


def report(query_id: str = "ab12") -> QueryReport:
    return QueryReport(
        query_id=query_id,
        transcript="what time is it",
        intent=IntentReport(),
        reply="Noon.",
        outcome=Outcome.ANSWERED,
        error=None,
        audio=None,
        timings_ms=Timings(),
        stages=(),
        memory=MemoryReport(budget_mib=1, margin_mib=1, peak_mib=1, peak_anon_mib=1, mode="resident"),
    )


class Clock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def keep(folder: Path, count: int, step_s: float = 1, clock: Clock | None = None, **limits: float) -> list[str]:
    """Keeps as many, one after another; the names of all files then."""
    clock = clock or Clock()
    recordings = Recordings(folder, clock=clock, **limits)
    for number in range(count):
        recordings.keep(report(f"q{number:03d}"), SECOND)
        until(lambda: recordings.idle)
        clock.now += step_s
    recordings.close()
    return names(folder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def until(done: Callable[[], bool]) -> None:
    for _ in range(1000):
        if done():
            return
        time.sleep(0.005)
    raise AssertionError("it did not happen")


def test_sound_and_report_are_kept_for_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state/recordings"
    old = os.umask(0)
    try:
        assert keep(folder, 1) == ["20261130T120000.000Z-q000.json", "20261130T120000.000Z-q000.wav"]
    finally:
        os.umask(old)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    clip = read_audio(folder / "20261130T120000.000Z-q000.wav")
    assert (clip.pcm, clip.source_rate, clip.source_channels) == (SECOND, 16_000, 1)
    assert json.loads((folder / "20261130T120000.000Z-q000.json").read_text())["reply"] == "Noon."


def test_a_folder_that_others_can_read_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir(mode=0o755)
    keep(folder, 1)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_typed_query_has_no_sound_and_odd_ids_no_way_out(tmp_path: Path) -> None:
    recordings = Recordings(tmp_path, clock=Clock())
    for query_id in ("../../x", "", "a b/ü" * 100):
        recordings.keep(report(query_id), b"")
    recordings.close()
    assert names(tmp_path)[0] == "20261130T120000.000Z-______x.json"
    assert len(names(tmp_path)) == 3
    assert all(len(name) < 100 for name in names(tmp_path))


def test_the_oldest_go_when_there_is_no_more_room(tmp_path: Path) -> None:
    left = keep(tmp_path, 10, max_mib=0.13)
    assert [name[21:25] for name in left] == ["q006", "q006", "q007", "q007", "q008", "q008", "q009", "q009"][
        -len(left) :
    ]
    assert sum((tmp_path / name).stat().st_size for name in left) <= 0.13 * 2**20
    assert len(left) == 8


def test_the_too_old_go(tmp_path: Path) -> None:
    left = keep(tmp_path, 5, step_s=86_400, max_age_days=2)
    assert sorted({name[21:25] for name in left}) == ["q002", "q003", "q004"]


def test_files_of_others_stay_and_leftovers_go(tmp_path: Path) -> None:
    mine = tmp_path / "notes.txt"
    mine.write_text("x")
    old, new = tmp_path / ".20200101T000000.000Z-q.wav.1.2.part", tmp_path / ".20200101T000000.000Z-r.json.part"
    for part in (old, new):
        part.write_text("x")
    os.utime(old, (NOON - 7200, NOON - 7200))
    os.utime(new, (NOON, NOON))
    keep(tmp_path, 1, max_mib=0)
    assert names(tmp_path) == [new.name, "notes.txt"]


def test_trouble_is_said_once_and_ends_when_it_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "recordings"
    folder.write_text("a file in its place")
    recordings = Recordings(folder)
    for _ in range(3):
        recordings.keep(report(), SECOND)
    until(lambda: recordings.idle)
    assert [one.levelno for one in caplog.records] == [logging.WARNING]
    assert str(folder) in caplog.text
    folder.unlink()
    recordings.keep(report(), SECOND)
    until(lambda: recordings.idle)
    assert len(names(folder)) == 2
    assert len(caplog.records) == 1
    shutil.rmtree(folder)
    folder.write_text("again")
    recordings.keep(report(), SECOND)
    recordings.close()
    assert len(caplog.records) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], capture_output=True).returncode:
        pytest.skip("cannot mount a tmpfs here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.root
def test_a_full_disk_is_said_once_and_leaves_no_halves(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    recordings = Recordings(small_disk / "recordings")
    for _ in range(3):
        recordings.keep(report(), SECOND * 4)
    recordings.close(5)
    assert names(small_disk / "recordings") == []
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text


def test_text_that_cannot_be_written_does_not_end_the_writer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recordings = Recordings(tmp_path)
    recordings.keep(msgspec.structs.replace(report(), reply="\ud800"), b"")
    recordings.keep(report(), b"")
    recordings.close()
    assert len(names(tmp_path)) == 1
    assert len(caplog.records) == 1


def test_nobody_waits_for_the_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()

    def clock() -> float:
        """The writing thread stands still."""
        if threading.current_thread() is not threading.main_thread():
            gate.wait(10)
        return NOON

    recordings = Recordings(tmp_path, clock=clock)
    started = time.monotonic()
    for number in range(MOST_WAITING + 5):
        recordings.keep(report(f"q{number}"), SECOND)
    recordings.close(0.05)
    assert time.monotonic() - started < 1
    assert "the disk is too slow" in caplog.text
    assert len(caplog.records) == 1
    gate.set()
    until(lambda: len(names(tmp_path)) >= 2 * MOST_WAITING)


def test_nothing_is_made_where_nothing_is_kept(tmp_path: Path) -> None:
    Recordings(tmp_path / "recordings").close()
    assert names(tmp_path) == []
