"""The observer beside the orchestrator, what its readings mean, and the plot."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from assistant import paths
from assistant.bench import memory
from assistant.bench.memory import judged, record, table
from assistant.bench.memory_phases import Recorded, full_readings, phases, spans, truth_of_readings, truth_of_writes
from assistant.bench.memory_plot import plot, write_plot
from assistant.bench.observer import Held, LedgerLog, Reading, gone, read_tree, workers
from assistant.errors import UsageError
from assistant.memory_orchestrator.ledger import LedgerReader, LedgerView, LedgerWriter, Row, RowState
from assistant.model_store.store import ModelInfo

MS = 1_000_000
MB = 1_000_000


# --- the observer ---------------------------------------------------------------------------------------------------
def _process(proc: Path, pid: int, parent: int, pss: int, file: int, *, name: str = "python", swap: int = 0) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0")
    lines = f"00400000-7fff ---p 00000000 00:00 0 [rollup]\nRss: 99999 kB\nPss: {pss} kB\nPss_Dirty: 7 kB\n"
    (folder / "smaps_rollup").write_text(f"{lines}Pss_File: {file} kB\nPss_Shmem: 0 kB\nSwapPss: {swap} kB\n")


def test_a_process_and_all_its_descendants_are_read(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 4000 kB\nMemAvailable: 3000 kB\n")
    _process(tmp_path, 10, 1, 100, 40)
    _process(tmp_path, 30, 20, 50, 10, swap=5)
    _process(tmp_path, 20, 10, 70, 0, name="a) S 99 (b")  # a name may hold anything
    _process(tmp_path, 40, 1, 1000, 0)  # somebody else's
    (tmp_path / "50").mkdir()  # one that has just ended
    found = read_tree(10, tmp_path)
    assert found.processes == {10: Held(61440, 40960), 20: Held(71680, 0), 30: Held(46080, 10240)}
    assert (found.total, found.anon, found.available) == (225 * 1024, 175 * 1024, 3000 * 1024)
    assert read_tree(77, tmp_path).processes == {}


# --- what readings mean ---------------------------------------------------------------------------------------------
def reading(at_ms: int, **held_mb: int) -> Reading:
    """`p7=5`: process 7 holds 5 MB."""
    processes = {int(name[1:]): Held(anon=mb * MB) for name, mb in held_mb.items()}
    return Reading(at_ms * MS, (at_ms + 2) * MS, processes)


def view(read_ms: int, base_mb: int, *rows: Row, written_ms: int | None = None) -> LedgerView:
    """`read_ms`: when its writer read all processes; it writes at once, or at `written_ms`."""
    written = read_ms if written_ms is None else written_ms
    return LedgerView(
        writer_pid=1, base_anon=base_mb * MB, measured_ns=read_ms * MS, updated_ns=written * MS, rows=rows
    )  # fmt: skip


def row(stage: str, pid: int, mb: int) -> Row:
    return Row(stage, "engine", "model", pid=pid, state=RowState.IDLE, anon=mb * MB)


def test_the_ledgers_full_readings_are_compared_with_the_observers_around_them() -> None:
    readings = [reading(0, p1=10), reading(20, p1=10, p2=30), reading(40, p1=10, p2=40)]
    between = view(10, 10, row("llm", 2, 15))  # 25 MB, between 10 and 40
    low = view(30, 10, row("llm", 2, 28))  # 38 MB where 40 to 50 were measured
    early, late = view(-5, 1), view(60, 1)  # nobody looked before the one and after the other
    found = truth_of_readings(readings, [early, between, low, late])
    assert (found.compared, found.max_percent, found.max_mb, found.over) == (2, 5.0, 2.0, 0)
    assert truth_of_readings(readings, [low, view(31, 60)]).over == 1
    assert truth_of_readings([], [low]).compared == 0


@pytest.mark.parametrize(("told_mb", "percent"), [(80, 0), (90, 0), (99, 10.0), (10, 0), (8, 20.0)])
def test_what_is_told_during_a_reading_is_compared_with_that_one_too(told_mb: int, percent: float) -> None:
    readings = [reading(0, p1=10), reading(20, p1=90), reading(40, p1=10)]  # each takes 2 ms
    for judged_by in (truth_of_readings, truth_of_writes):
        found = judged_by(readings, [view(21, told_mb)])
        assert (found.compared, found.max_percent) == (1, percent)


def test_a_full_reading_is_judged_when_it_was_made_and_a_write_when_it_was_written() -> None:
    readings = [reading(0, p1=10), reading(20, p1=10), reading(40, p1=50), reading(60, p1=50)]
    views = [view(10, 10), view(10, 10, written_ms=50), view(55, 51)]  # the second repeats what has changed meanwhile
    full, every = truth_of_readings(readings, views), truth_of_writes(readings, views)
    assert (full.compared, full.max_percent, full.over) == (2, 2.0, 0)
    assert (every.compared, every.max_percent, every.over) == (3, 80.0, 1)


def test_the_first_write_after_each_full_reading_tells_it() -> None:
    before = view(0, 10)  # nobody has read anything yet
    first, second = view(1, 10, row("llm", 2, 5)), view(4, 10, row("llm", 2, 5))
    between = [view(1, 10, row("llm", 2, 5), row("tts", 3, 40), written_ms=2), view(1, 10, written_ms=3)]
    assert full_readings([before, first, *between, second]) == [first, second]


def test_every_write_that_stands_long_enough_is_logged_though_no_reading_is_new(tmp_path: Path) -> None:
    writer = LedgerWriter("ledger", tmp_path)
    writes = [view(1, 10, written_ms=at) for at in range(2, 8)] + [view(9, 10, written_ms=9)]
    with LedgerLog(LedgerReader("ledger", tmp_path), every_s=0.001) as log:
        for one in writes:
            writer.write(replace(one, writer_pid=os.getpid()))
            give_up = time.monotonic() + 5
            while not log.views or log.views[-1].updated_ns != one.updated_ns:
                assert time.monotonic() < give_up
                time.sleep(0.001)
        time.sleep(0.02)  # the last one is looked at again and again, and is one write
    writer.close()
    assert [one.updated_ns for one in log.views if one.updated_ns] == [one.updated_ns for one in writes]


def test_a_worker_that_the_ledger_names_no_longer_has_gone() -> None:
    views = [view(1, 1, row("llm", 2, 5)), view(2, 1, row("tts", 3, 5)), view(3, 1, row("llm", 4, 5))]
    assert workers(views) == {2: "llm", 3: "tts", 4: "llm"}
    assert gone(views) == 2


def test_phases_follow_the_events_of_a_query() -> None:
    told = [(5, "stt-start"), (20, "stt-end"), (21, "intent-end"), (30, "reply-delta"), (32, "tts-start"),
            (40, "reply-delta"), (50, "tts-end"), (51, "run-end")]  # fmt: skip
    found = spans(-10 * MS, 0, 90 * MS, [(at * MS, name) for at, name in told])
    assert [(one.phase, one.begin_ns // MS, one.end_ns // MS) for one in found] == [
        ("standby", -10, 0), ("listening", 0, 20), ("LLM inference", 21, 40), ("speaking", 32, 50), ("after", 51, 90),
    ]  # fmt: skip
    readings = [reading(-5, p1=10), reading(15, p1=10, p2=30), reading(35, p1=9, p2=30, p3=70), reading(70, p1=10)]
    standby, listening, inference, speaking, after = phases(readings, found, {2: "asr", 3: "llm"}, 0)
    assert (standby.total_mb, standby.stage_mb, standby.published_mb) == (10, 0, 320)
    assert (listening.total_mb, listening.stage_mb) == (40, 30)
    assert (inference.total_mb, inference.stage_mb) == (109, 70)
    assert (speaking.stage_mb, after.total_mb, after.published_mb) == (0, 10, None)


def test_a_local_command_has_no_inference() -> None:
    found = spans(0, 1, 9, [(2, "stt-end"), (3, "intent-end"), (4, "tts-start"), (5, "tts-end"), (6, "run-end")])
    assert [one.phase for one in found] == ["standby", "listening", "speaking", "after"]


# --- a real query ---------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def seen(model: Callable[[str], ModelInfo]) -> Recorded:
    for name in ("whisper-tiny.en", "smollm2-135m-instruct", "en_US-joe-medium"):
        model(name)
    return record(paths.data_file("question.wav"), [], settle_s=0.4)


@pytest.mark.alone("of pages that others map too, a part is counted")
@pytest.mark.engine
@pytest.mark.timeout(60)
def test_a_spoken_query_is_seen_from_outside(seen: Recorded) -> None:
    found = judged(seen)
    assert "Paris" in found.reply
    standby, listening, inference, speaking, _ = found.phases
    assert [one.name for one in found.phases[:4]] == ["standby", "listening", "LLM inference", "speaking"]
    assert standby.stage_mb == 0
    assert 60 < listening.stage_mb < listening.total_mb
    assert 60 < inference.stage_mb < inference.total_mb <= found.peak_mb
    assert speaking.stage_mb > 50
    # both count the same processes, each in its own way
    assert found.ledger_peak_mb == pytest.approx(found.peak_mb, rel=0.15)
    full, every = found.truth_of_readings, found.truth_of_writes
    assert 5 <= full.compared < every.compared
    assert full.median_percent <= 5
    assert f"full readings: {full.compared}, " in table(found)
    assert f"all writes: {every.compared}, " in table(found)
    assert "published" in table(found)


@pytest.mark.alone("looks at the same query")
@pytest.mark.engine
@pytest.mark.timeout(60)
def test_the_plot_needs_nothing_but_itself(seen: Recorded, tmp_path: Path) -> None:
    file = tmp_path / "memory.svg"
    write_plot(file, seen, judged(seen))
    text = file.read_text("utf-8")
    drawing = ElementTree.fromstring(text)
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    tags = {one.tag.rpartition("}")[2] for one in drawing.iter()}
    assert not tags & {"script", "image", "foreignObject", "a", "use"}
    assert not re.search(r"href|@import|url\(\s*['\"]?(?!#)|javascript", text)
    assert set(re.findall(r"\w+://[^\"' <)]+", text)) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    for word in ("base", "asr", "intent", "llm", "tts", "published figures", "listening 0.."):
        assert word in text


@pytest.mark.alone("looks at the same query")
@pytest.mark.engine
@pytest.mark.timeout(60)
def test_a_budget_in_range_is_drawn_and_another_is_told(seen: Recorded) -> None:
    found = judged(seen)
    far = plot(seen, found).decode()
    assert "above this range" in far
    assert "usable budget</text>" not in far
    near = plot(seen, msgspec.structs.replace(found, usable_mb=420.0)).decode()
    assert "usable budget</text>" in near


@pytest.mark.alone("looks at the same query")
@pytest.mark.engine
@pytest.mark.timeout(60)
def test_a_plot_that_cannot_be_written_is_a_typed_error(seen: Recorded, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        write_plot(tmp_path / "no" / "memory.svg", seen, judged(seen))


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_the_command_prints_one_document_for_a_small_budget(
    model: Callable[[str], ModelInfo], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("whisper-tiny.en", "smollm2-135m-instruct", "en_US-joe-medium"):
        model(name)
    memory.main(["--json", "--set", "memory.budget_mib=700"])
    found = json.loads(capsys.readouterr().out)
    assert found["budget_mb"] == pytest.approx(734.0, abs=0.1)
    assert found["peak_mb"] <= found["usable_mb"] == pytest.approx(419.4, abs=0.1)


def test_a_recording_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert memory.main(["--wav", str(tmp_path / "none.wav")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_settings_that_are_none_are_told_in_the_daemons_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert memory.main(["--json", "--set", "memory.budget=1"]) == 2
    assert "budget_mib" in json.loads(capsys.readouterr().out)["error"]["message"]
